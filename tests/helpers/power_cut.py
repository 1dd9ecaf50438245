"""The possible contents of a disk after a power cut: any part of the writes since the last sync.

`write_log.c` records the calls of a process for some files. A `Disk` replays them, and `cut` writes
files as they might be found at that moment: with all synced data, any sectors of later writes, and
any of the files created or deleted since the folder was synced.
"""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

SOURCE: Final = Path(__file__).with_name("write_log.c")
SECTOR: Final = 512
"""Bytes that a disk writes whole or not at all."""

_HEADER: Final = struct.Struct("<cQQI")


def compiler() -> str | None:
    return shutil.which("gcc") or shutil.which("cc")


def recording(folder: Path, files: Path) -> tuple[Path, dict[str, str]]:
    """Compile the recorder; return the path of its log, and the environment for a process.

    It records the calls for the files whose path begins with `files`.
    """
    library, log = folder / "write_log.so", folder / "write.log"
    name = compiler()
    assert name is not None
    options = ["-shared", "-fPIC", "-O1", "-ldl", "-lpthread"]
    subprocess.run([name, SOURCE, "-o", library, *options], check=True, timeout=60)
    log.touch()
    return log, {
        "LD_PRELOAD": str(library),
        "WRITE_LOG": str(log),
        "WRITE_LOG_FILES": str(files.absolute()),
    }


class Record(NamedTuple):
    """A recorded call, and the offset in the log at which its record ends."""

    kind: str
    inode: int
    offset: int
    data: bytes
    end: int


def records(log: bytes) -> Iterator[Record]:
    """Read a log; omit an incomplete last record."""
    at = 0
    while at + _HEADER.size <= len(log):
        what, inode, offset, size = _HEADER.unpack_from(log, at)
        data = log[at + _HEADER.size : at + _HEADER.size + size] if what in b"WCU" else b""
        at += _HEADER.size + size
        if at > len(log):
            return
        yield Record(what.decode(), inode, offset, data, at)


class Disk:
    """Synced files by their inodes, and the recorded calls since their last sync.

    `unsynced_file` is the name of a file whose syncs have no effect, as if they were not done.
    """

    def __init__(self, files: Mapping[int, Path], unsynced_file: str = "") -> None:
        self._unsynced_file = unsynced_file
        self._synced = {inode: bytearray(file.read_bytes()) for inode, file in files.items()}
        self._unsynced: dict[int, list[Record]] = {inode: [] for inode in files}
        self._name_of = {inode: file.name for inode, file in files.items()}
        self._names = {name: inode for inode, name in self._name_of.items()}
        self._unsynced_names: list[Record] = []

    def replay(self, record: Record) -> None:
        if record.kind == "C":
            self._synced[record.inode] = bytearray()
            self._unsynced[record.inode] = []
            self._name_of[record.inode] = record.data.decode()
            self._unsynced_names.append(record)
        elif record.kind == "U":
            self._unsynced_names.append(record)
        elif record.kind == "D":
            for change in self._unsynced_names:
                _rename(self._names, change)
            self._unsynced_names.clear()
        elif record.kind == "S":
            self._sync(record.inode)
        elif record.kind == "F":  # after a failed sync, the system discards the writes
            self._unsynced.get(record.inode, []).clear()
        else:
            self._unsynced[record.inode].append(record)

    def _sync(self, inode: int) -> None:
        if self._name_of[inode] == self._unsynced_file:
            return
        for change in self._unsynced[inode]:
            _change(self._synced[inode], change.offset, change)
        self._unsynced[inode].clear()

    def cut(self, folder: Path, chance: random.Random) -> None:
        """Write files as they might be found after a cut at this moment into an empty folder."""
        odds = chance.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        names = dict(self._names)
        for change in self._unsynced_names:
            if chance.random() < odds:
                _rename(names, change)
        for name, inode in names.items():
            content = bytearray(self._synced[inode])
            for change in self._unsynced[inode]:
                for piece in _sectors(change):
                    if chance.random() < odds:
                        _change(content, piece.offset, piece)
            (folder / name).write_bytes(content)


def _rename(names: dict[str, int], change: Record) -> None:
    if change.kind == "C":
        names[change.data.decode()] = change.inode
    else:
        names.pop(change.data.decode(), None)


def _change(file: bytearray, offset: int, change: Record) -> None:
    if change.kind == "T":
        del file[offset:]
    if len(file) < offset:
        file.extend(bytes(offset - len(file)))
    file[offset : offset + len(change.data)] = change.data


def _sectors(change: Record) -> Iterator[Record]:
    """Split a write at the boundaries of sectors; a truncation is one part."""
    if change.kind == "T":
        yield change
    at, end = change.offset, change.offset + len(change.data)
    while at < end:
        stop = min(end, (at // SECTOR + 1) * SECTOR)
        data = change.data[at - change.offset : stop - change.offset]
        yield change._replace(offset=at, data=data)
        at = stop
