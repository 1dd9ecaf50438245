"""What a disk shows after a power cut: of what was written since the last sync, any part.

`write_log.c` records what a process does to some files. A `Disk` plays that back, and `cut` writes
down what might be found at that moment: all that was synced; of later writes any sectors, in any
mixture; of files that came or went since the folder was synced, any.
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
    """Compile the recorder; returns where it writes, and the environment in which it does.

    Recorded is what happens to the files whose path begins with `files`.
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
    """What was done, and where in the log the record of it ends."""

    what: str
    inode: int
    offset: int
    data: bytes
    end: int


def records(log: bytes) -> Iterator[Record]:
    """Read a log; a last record that is not whole is left out."""
    at = 0
    while at + _HEADER.size <= len(log):
        what, inode, offset, size = _HEADER.unpack_from(log, at)
        data = log[at + _HEADER.size : at + _HEADER.size + size] if what in b"WCU" else b""
        at += _HEADER.size + size
        if at > len(log):
            return
        yield Record(what.decode(), inode, offset, data, at)


class Disk:
    """Files as they are for sure, by their inodes, and what was done to them since.

    `forgets` names files whose syncs are not waited for: those of a gateway that would not.
    """

    def __init__(self, files: Mapping[int, Path], forgets: str = "") -> None:
        self._forgets = forgets
        self._sure = {inode: bytearray(file.read_bytes()) for inode, file in files.items()}
        self._since: dict[int, list[Record]] = {inode: [] for inode in files}
        self._name_of = {inode: file.name for inode, file in files.items()}
        self._names = {name: inode for inode, name in self._name_of.items()}
        self._names_since: list[Record] = []

    def play(self, record: Record) -> None:
        if record.what == "C":
            self._sure[record.inode] = bytearray()
            self._since[record.inode] = []
            self._name_of[record.inode] = record.data.decode()
            self._names_since.append(record)
        elif record.what == "U":
            self._names_since.append(record)
        elif record.what == "D":
            for change in self._names_since:
                _rename(self._names, change)
            self._names_since.clear()
        elif record.what == "S":
            self._sync(record.inode)
        elif record.what == "F":  # the system forgets what it could not write
            self._since.get(record.inode, []).clear()
        else:
            self._since[record.inode].append(record)

    def _sync(self, inode: int) -> None:
        if self._name_of[inode] == self._forgets:
            return
        for change in self._since[inode]:
            _change(self._sure[inode], change.offset, change)
        self._since[inode].clear()

    def cut(self, folder: Path, chance: random.Random) -> None:
        """Write what might be found after a cut at this moment into an empty folder."""
        odds = chance.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        names = dict(self._names)
        for change in self._names_since:
            if chance.random() < odds:
                _rename(names, change)
        for name, inode in names.items():
            found = bytearray(self._sure[inode])
            for change in self._since[inode]:
                for piece in _sectors(change):
                    if chance.random() < odds:
                        _change(found, piece.offset, piece)
            (folder / name).write_bytes(found)


def _rename(names: dict[str, int], change: Record) -> None:
    if change.what == "C":
        names[change.data.decode()] = change.inode
    else:
        names.pop(change.data.decode(), None)


def _change(file: bytearray, offset: int, change: Record) -> None:
    if change.what == "T":
        del file[offset:]
    if len(file) < offset:
        file.extend(bytes(offset - len(file)))
    file[offset : offset + len(change.data)] = change.data


def _sectors(change: Record) -> Iterator[Record]:
    """Part a write at the borders of sectors; a truncation is one."""
    if change.what == "T":
        yield change
    at, end = change.offset, change.offset + len(change.data)
    while at < end:
        stop = min(end, (at // SECTOR + 1) * SECTOR)
        data = change.data[at - change.offset : stop - change.offset]
        yield change._replace(offset=at, data=data)
        at = stop
