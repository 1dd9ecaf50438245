"""Record a server's writes, syncs and answers with strace, for `tests.helpers.power_cut`.

The recorder of `power_cut` replaces functions of the C library, which programs in Go do not call;
strace sees the system calls of any program. A call counts when it has returned, so what a server
does at the same time in another thread is taken to be earlier: in doubt, for the server.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from tests.helpers.power_cut import Record

REQUEST: Final = "Q"
ANSWER: Final = "A"
"""Kinds of records in addition to those of `power_cut`: bytes that the server has read from a
client, and bytes that it has sent; `inode` is the client's port."""

_CALLS: Final = (
    "open,openat,creat,close,read,pread64,readv,recvfrom,recvmsg,write,pwrite64,writev,pwritev,"
    "pwritev2,sendto,sendmsg,lseek,ftruncate,fallocate,fsync,fdatasync,rename,renameat,"
    "renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,rmdir,mmap,sendfile,copy_file_range"
)
_MAX_BYTES: Final = 16 * 1024 * 1024
"""Of one call."""

_LINE: Final = re.compile(r"(\d+) +(?:<\.\.\. \w+ resumed>)?(.*)")
_CALL: Final = re.compile(r"(\w+)\((.*)\) += (-?\d+)(?:<((?:\\x[0-9a-f]{2})+)>)?")
_TEXT: Final = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_FILE: Final = re.compile(r"(\d+)<((?:\\x[0-9a-f]{2})+)>(?!\(deleted\))")
_FOLDER: Final = re.compile(r"(?:AT_FDCWD|\d+)<((?:\\x[0-9a-f]{2})+)>")
_NAMING: Final = ("rename", "link", "unlink", "mkdir", "rmdir")
_MOVING: Final = ("close", "lseek", "read", "readv")
_UNKNOWN: Final = ("fallocate", "sendfile", "copy_file_range")
_SOCKET: Final = "<TCP:["
_UNFINISHED: Final = " <unfinished ...>"


class UnknownCallError(Exception):
    """A call changes a file in a way that cannot be recorded."""


def command(log: Path) -> list[str]:
    """Return the command that runs a program and records its calls.

    The process is that of the program: strace runs as its grandchild.
    """
    options = ["-f", "-D", "-qq", "-yy", "-xx", "-s", str(_MAX_BYTES), "--seccomp-bpf"]
    options += ["-e", "signal=none", "-e", f"trace={_CALLS}", "-o", str(log)]
    return ["strace", *options]


class _Call(NamedTuple):
    name: str
    arguments: str
    result: int
    opened: str

    def data(self) -> bytes:
        """Return the bytes that were written or read."""
        texts = _TEXT.findall(self.arguments)
        return b"".join(map(_decode, texts))[: self.result]

    def last(self, before: int = 0) -> str:
        """Return the last argument, or one before it."""
        return self.arguments.split(", ")[-1 - before]

    def paths(self) -> list[str]:
        """Return the absolute paths that are named, relative ones with their folder's."""
        found = []
        for text in _TEXT.finditer(self.arguments):
            path = _decode(text[1]).decode()
            if not path.startswith("/"):
                folder = _FOLDER.findall(self.arguments, 0, text.start())
                if not folder:
                    raise UnknownCallError(f"{self.name} of the relative path {path}")
                path = f"{_decode(folder[-1]).decode()}/{path}"
            found.append(os.path.normpath(path))
        return found


def _decode(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _encode(path: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in path.encode())


def _calls(lines: Sequence[str], folder: str) -> Iterator[_Call]:
    """Yield the calls for a folder or a client that succeeded, when they return."""
    wanted = _encode(folder), _SOCKET
    begun: dict[str, str] = {}
    for line in lines:
        found = _LINE.fullmatch(line)
        if found is None:
            continue
        process, text = found.groups()
        if text.endswith(_UNFINISHED):
            begun[process] = text.removesuffix(_UNFINISHED)
            continue
        text = begun.pop(process, "") + text
        if not any(each in text for each in wanted) and not text.startswith(_NAMING):
            continue  # most calls, and the longest, are reads of other files
        if (call := _CALL.match(text)) is not None and int(call[3]) >= 0:
            yield _Call(call[1], call[2], int(call[3]), call[4] or "")


class TracedCalls:
    """Makes records of the calls of a server that change a folder or talk to clients.

    It is created before the server starts, because it reads which files are there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._inodes = {str(path): path.stat().st_ino for path in (folder, *folder.rglob("*"))}
        self._sizes = {path.stat().st_ino: path.stat().st_size for path in folder.rglob("*")}
        self._folders = {i for path, i in self._inodes.items() if Path(path).is_dir()}
        self._offsets: dict[tuple[int, int], int] = {}  # by descriptor and inode
        self._next = count(1 << 62)  # inodes of new files: beyond those of the file system

    def syncs(self) -> list[Record]:
        """Return the syncs of all files and folders that exist now."""
        return [self._sync(inode) for inode in self._inodes.values()]

    def records(self, log: Path, port: int) -> Iterator[Record]:
        """Yield the records of the calls in a log, with those for clients at a port.

        Raises UnknownCallError.
        """
        clients = re.compile(rf"\d+<TCP:\[127\.0\.0\.1:{port}->127\.0\.0\.1:(\d+)\]>")
        whole, _, _incomplete = log.read_text("ascii").rpartition("\n")
        for call in _calls(whole.splitlines(), self._folder):
            if call.name in ("open", "openat", "creat"):
                yield from self._open(call)
            elif call.name.startswith(_NAMING):
                yield from self._name(call)
            elif (client := clients.match(call.arguments)) is not None:
                kind = REQUEST if call.name.startswith("re") else ANSWER
                yield Record(kind, int(client[1]), 0, 0, call.data(), 0)
            else:
                yield from self._change(call)

    def _is_ours(self, path: str) -> bool:
        inside = path == self._folder or path.startswith(f"{self._folder}/")
        return inside and not path.endswith("-shm")  # SQLite's shared memory

    def _open(self, call: _Call) -> Iterator[Record]:
        path = _decode(call.opened).decode()
        if not self._is_ours(path):
            return
        if path not in self._inodes:
            yield self._new("C", path)
        inode = self._inodes[path]
        if "O_TRUNC" in call.arguments and self._sizes.get(inode):
            self._sizes[inode] = 0
            yield Record("T", inode, 0, 0, b"", 0)
        self._offsets.pop((call.result, inode), None)
        if "O_APPEND" not in call.arguments:
            self._offsets[call.result, inode] = 0

    def _new(self, kind: str, path: str, inode: int = 0) -> Record:
        self._inodes[path] = inode or next(self._next)
        folder, _, name = path.rpartition("/")
        return Record(kind, self._inodes[path], self._inodes[folder], 0, name.encode(), 0)

    def _name(self, call: _Call) -> Iterator[Record]:
        *old, path = call.paths()
        if not any(map(self._is_ours, (*old, path))):
            return
        if call.name.startswith("mkdir"):
            yield self._new("M", path)
            self._folders.add(self._inodes[path])
        elif call.name.startswith("link"):
            yield self._new("L", path, self._inodes[old[0]])
        elif call.name.startswith(("unlink", "rmdir")):
            folder, _, name = path.rpartition("/")
            del self._inodes[path]
            yield Record("U", 0, self._inodes[folder], 0, name.encode(), 0)
        else:
            folder, _, name = old[0].rpartition("/")
            moved = {key: inode for key, inode in self._inodes.items() if _within(key, old[0])}
            for key, inode in moved.items():
                del self._inodes[key]
                self._inodes[path + key.removeprefix(old[0])] = inode
            to, _, new_name = path.rpartition("/")
            names = f"{name}/{new_name}".encode()
            yield Record("R", self._inodes[path], self._inodes[to], self._inodes[folder], names, 0)

    def _change(self, call: _Call) -> Iterator[Record]:
        shared = "MAP_SHARED" in call.arguments and "PROT_WRITE" in call.arguments
        for found in _FILE.finditer(call.arguments):
            path, descriptor = _decode(found[2]).decode(), int(found[1])
            if (inode := self._inodes.get(path)) is None or not self._is_ours(path):
                continue
            if call.name in ("fsync", "fdatasync"):
                yield self._sync(inode)
            elif call.name == "ftruncate":
                self._sizes[inode] = size = int(call.last())
                yield Record("T", inode, 0, size, b"", 0)
            elif call.name.startswith(("write", "pwrite")):
                yield self._write(call, descriptor, inode)
            elif call.name in _MOVING:
                self._move(call, descriptor, inode)
            elif shared or call.name in _UNKNOWN:
                raise UnknownCallError(f"{call.name} of {path}")

    def _write(self, call: _Call, descriptor: int, inode: int) -> Record:
        at = descriptor, inode
        if call.name.startswith("p"):
            offset = int(call.last(1 if call.name == "pwritev2" else 0))
        else:  # at the end, if the file was opened with O_APPEND
            offset = self._offsets.get(at, self._sizes.get(inode, 0))
            if at in self._offsets:
                self._offsets[at] += call.result
        self._sizes[inode] = max(self._sizes.get(inode, 0), offset + call.result)
        return Record("W", inode, 0, offset, call.data(), 0)

    def _move(self, call: _Call, descriptor: int, inode: int) -> None:
        at = descriptor, inode
        if call.name == "close":
            self._offsets.pop(at, None)
        elif call.name == "lseek":
            self._offsets[at] = call.result
        elif at in self._offsets:
            self._offsets[at] += call.result

    def _sync(self, inode: int) -> Record:
        return Record("D" if inode in self._folders else "S", inode, 0, 0, b"", 0)


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")
