"""The possible contents of a disk after a power cut: any part of the changes since the last syncs.

`write_log.c` records the calls of processes below some folders. A `Disk` replays them, and `cut`
writes a folder as it might be found after a cut at that moment. The model is that of POSIX, which
promises less than most file systems do:

- A sync of a file makes its content durable, and a sync of a folder the names in it. A new file
  needs both.
- Of the writes to a file since its last sync, any sectors may be on the disk, in any order.
- Of the names made, removed or replaced since the last sync of their folder, any may be. A rename
  is atomic, as in every file system with a journal; the sync of the new folder makes it durable.
- A failed sync discards the writes, and a later sync does not bring them back.
"""

from __future__ import annotations

import copy
import random
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, Self

SOURCE: Final = Path(__file__).with_name("write_log.c")
SECTOR: Final = 512
"""Bytes that a disk writes whole or not at all."""

_HEADER: Final = struct.Struct("<cQQQI")
_WITH_DATA: Final = b"CMLRUW"


def compiler() -> str | None:
    return shutil.which("gcc") or shutil.which("cc")


class Recorder:
    """The compiled library and the log of recorded calls, both below `folder`."""

    def __init__(self, folder: Path) -> None:
        self._library, self.log = folder / "write_log.so", folder / "write.log"
        name = compiler()
        assert name is not None
        options = ["-shared", "-fPIC", "-O1", "-ldl", "-lpthread"]
        subprocess.run([name, SOURCE, "-o", self._library, *options], check=True, timeout=60)
        self.log.touch()

    def environment(self, folder: Path) -> dict[str, str]:
        """Return the environment of a process whose calls below `folder` are recorded."""
        return {
            "LD_PRELOAD": str(self._library),
            "WRITE_LOG": str(self.log),
            "WRITE_LOG_FOLDER": str(folder.absolute()),
        }

    def size(self) -> int:
        """Return the present size of the log."""
        return self.log.stat().st_size

    def records(self) -> list[Record]:
        return list(_records(self.log.read_bytes()))


class Record(NamedTuple):
    """A recorded call (see `write_log.c`), and the offset in the log at which its record ends."""

    kind: str
    inode: int
    folder: int
    offset: int
    data: bytes
    end: int


def _records(log: bytes) -> Iterator[Record]:
    """Read a log; omit an incomplete last record."""
    at = 0
    while at + _HEADER.size <= len(log):
        what, inode, folder, offset, size = _HEADER.unpack_from(log, at)
        at += _HEADER.size
        data = log[at : at + size] if what in _WITH_DATA else b""
        at += size
        if at > len(log):
            return
        yield Record(what.decode(), inode, folder, offset, data, at)


class _File:
    """A file: its content at the last sync, and the calls since then."""

    def __init__(self, content: bytes = b"") -> None:
        self.synced = bytearray(content)
        self.changes: list[Record] = []

    def sync(self) -> None:
        for change in self.changes:
            _change(self.synced, change)
        self.changes.clear()


class _Folder:
    """A folder: its entries at the last sync."""

    def __init__(self) -> None:
        self.synced: dict[str, _Node] = {}


_Node = _File | _Folder


class _Renaming(NamedTuple):
    """A change of entries, which the sync of `folder` makes durable: each gets a node, or none."""

    folder: _Folder
    entries: list[tuple[_Folder, str, _Node | None]]


class Disk:
    """The files below some folders, as they are now and as recorded calls change them."""

    def __init__(self, *folders: Path) -> None:
        self._nodes: dict[int, _Node] = {}  # by inode; a new file may reuse a number
        self._changes: list[_Renaming] = []
        self._roots = {folder: self._scan(folder) for folder in folders}

    def _scan(self, path: Path) -> _Folder:
        folder = self._nodes[path.stat().st_ino] = _Folder()
        for child in path.iterdir():
            if child.is_dir():
                folder.synced[child.name] = self._scan(child)
            elif child.is_file():
                file = _File(child.read_bytes())
                folder.synced[child.name] = self._nodes[child.stat().st_ino] = file
        return folder

    def copy(self) -> Self:
        return copy.deepcopy(self)

    def replay(self, record: Record) -> None:
        """Apply a recorded call."""
        node = self._nodes.get(record.inode)
        if record.kind in "CMLRU":
            self._rename(record)
        elif record.kind == "D":
            self._sync_names(node)
        elif isinstance(node, _File):
            if record.kind == "S":
                node.sync()
            elif record.kind == "F":
                node.changes.clear()
            else:
                node.changes.append(record)

    def _rename(self, record: Record) -> None:
        if record.kind in "CM":
            self._nodes[record.inode] = _File() if record.kind == "C" else _Folder()
        folder = self._folder(record.folder)
        node = self._nodes.get(record.inode)  # none of U
        *old, name = record.data.decode().split("/")
        entries = [(folder, name, node)]
        entries += [(self._folder(record.offset), each, None) for each in old]
        self._changes.append(_Renaming(folder, entries))

    def _folder(self, inode: int) -> _Folder:
        node = self._nodes[inode]
        assert isinstance(node, _Folder)
        return node

    def _sync_names(self, folder: _Node | None) -> None:
        for change in self._changes:
            if change.folder is folder:
                for within, name, node in change.entries:
                    _enter(within.synced, name, node)
        self._changes = [change for change in self._changes if change.folder is not folder]

    def show(self, folder: Path, target: Path) -> None:
        """Write a folder as processes see it, without a cut, to the new folder `target`."""
        self._write(folder, target, lambda: True)

    def cut(self, folder: Path, target: Path, chance: random.Random) -> None:
        """Write a folder as it might be found after a cut now to the new folder `target`."""
        odds = chance.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        self._write(folder, target, lambda: chance.random() < odds)

    def _write(self, folder: Path, target: Path, is_kept: Callable[[], bool]) -> None:
        entries: dict[_Folder, dict[str, _Node]] = {}
        for change in self._changes:
            if is_kept():
                for within, name, node in change.entries:
                    _enter(entries.setdefault(within, dict(within.synced)), name, node)
        _write_folder(self._roots[folder], target, entries, is_kept)


def _enter(entries: dict[str, _Node], name: str, node: _Node | None) -> None:
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node


def _write_folder(
    folder: _Folder,
    target: Path,
    entries: dict[_Folder, dict[str, _Node]],
    is_kept: Callable[[], bool],
) -> None:
    target.mkdir(mode=0o700)
    for name, node in entries.get(folder, folder.synced).items():
        if isinstance(node, _Folder):
            _write_folder(node, target / name, entries, is_kept)
            continue
        content = bytearray(node.synced)
        for change in node.changes:
            for piece in _sectors(change):
                if is_kept():
                    _change(content, piece)
        path = target / name
        path.touch(mode=0o600)
        path.write_bytes(content)


def _change(file: bytearray, change: Record) -> None:
    if change.kind == "T":
        del file[change.offset :]
    if len(file) < change.offset:
        file.extend(bytes(change.offset - len(file)))
    file[change.offset : change.offset + len(change.data)] = change.data


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
