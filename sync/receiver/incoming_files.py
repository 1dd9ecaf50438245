"""Bodies on their way in: files in the landing's file system that one holder writes alone.

Several receivers and imports may share the folder: whoever writes such a file holds its lock, which
dies with its process, and a file without a holder is what a dead one left. Knows no segments.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import threading
from collections import OrderedDict
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from sync.common.durable_files import PRIVATE_FILE

if TYPE_CHECKING:
    from hashlib import _Hash  # exists for type checkers alone

PART_SUFFIX: Final = ".part"
"""What the name of a body on its way ends with."""

_TRIES: Final = 8
"""Times a file may vanish between its opening and its lock: its remover does that once."""

_PIECE: Final = 256 * 1024
"""Bytes read at once."""


class OffsetError(Exception):
    """A body does not go on where its beginning ends, which is after `there` bytes."""

    def __init__(self, there: int) -> None:
        super().__init__(there)
        self.there = there


class _Sum(NamedTuple):
    """The running SHA-256 of a file, and the file's state that it is of."""

    state: tuple[int, ...]
    size: int
    sum: _Hash


class HashCache:
    """The running sums of the `most` beginnings that were written last, by this process.

    A beginning that is gone on with byte by byte is not read again each time. One that another
    process has written to meanwhile is another one.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._known: OrderedDict[Path, _Sum] = OrderedDict()

    def keep(self, path: Path, status: os.stat_result, running: _Hash) -> None:
        """Remember the sum of a file that is as `status` says."""
        with self._lock:
            self._known[path] = _Sum(_state(status), status.st_size, running)
            self._known.move_to_end(path)
            while len(self._known) > self._most:
                self._known.popitem(last=False)

    def take(self, path: Path, status: os.stat_result) -> _Hash | None:
        """Give what is remembered of a file, if it is still as it was, and forget it."""
        with self._lock:
            known = self._known.pop(path, None)
        return known.sum if known is not None and known.state == _state(status) else None

    def has(self, path: Path, size: int) -> bool:
        """Tell whether the sum of so many bytes is remembered."""
        known = self._known.get(path)
        return known is not None and known.size == size


class IncomingFile:
    """A body on its way in. Use it as a context manager: it is gone when it is closed.

    Goes on behind the `start` bytes that the file holds already; at 0 it begins anew, whatever is
    there. `size` is in bytes. With `kept`, what was written stays when it is closed, unless a write
    failed or nothing is there. Raises BlockingIOError when another holds the file, OffsetError when
    it holds anything but `start` bytes.
    """

    def __init__(
        self, path: Path, *, kept: bool = False, start: int = 0, sums: HashCache | None = None
    ) -> None:
        self.path = path
        self.kept = kept
        self._sums = sums
        self._lock = threading.Lock()
        self._descriptor: int | None = _open_alone(path)
        self._sum = hashlib.sha256()
        self._summed = 0
        self.size = 0
        try:
            self._begin(start)
        except BaseException:
            self.close()
            raise

    def _begin(self, start: int) -> None:
        """Look at what is there before it is read: another offset costs nothing."""
        descriptor = self._open()
        if start == 0:
            os.ftruncate(descriptor, 0)
            return
        status = os.fstat(descriptor)
        self.size = status.st_size
        if start != self.size:
            raise OffsetError(self.size)
        known = None if self._sums is None else self._sums.take(self.path, status)
        if known is None:
            while data := os.read(descriptor, _PIECE):
                self._sum.update(data)
        else:
            self._sum = known
        self._summed = self.size
        os.lseek(descriptor, 0, os.SEEK_END)

    def write(self, data: bytes | bytearray) -> None:
        """Append `data`. Raises OSError when the disk is full; then nothing is kept."""
        view = memoryview(data)
        with self._lock:
            descriptor = self._open()
            try:
                while view:
                    view = view[os.write(descriptor, view) :]
            except OSError:
                self.kept = False
                raise
            self._sum.update(data)
            self.size += len(data)
            self._summed = self.size

    def sha256(self) -> bytes:
        """The SHA-256 (32 bytes) of all that was written so far."""
        return self._sum.digest()

    def read(self) -> bytes:
        """All that was written, from the file."""
        return self.path.read_bytes()

    def rename(self, path: Path) -> None:
        """Go on under another name, which nobody holds. Raises OSError."""
        self.path.rename(path)
        self.path = path

    def sync(self) -> None:
        """Make the content durable. Raises OSError when the disk refuses."""
        with self._lock:
            os.fsync(self._open())

    def close(self) -> None:
        """Close it, after a write in progress, and remove it unless it is kept. Harmless again.

        It is removed under its lock: the next holder never gets a file that a segment may share.
        """
        with self._lock:
            if self._descriptor is None:
                return
            try:
                if not (self.kept and self.size):
                    self.path.unlink(missing_ok=True)
                elif self._sums is not None:
                    self._remember(self._descriptor)
            finally:
                os.close(self._descriptor)
                self._descriptor = None

    def _remember(self, descriptor: int) -> None:
        """Remember the sum of what stays, if it is of all that the file holds."""
        status = os.fstat(descriptor)
        if self._sums is not None and status.st_size == self.size == self._summed:
            self._sums.keep(self.path, status, self._sum)

    def _open(self) -> int:
        if self._descriptor is None:
            msg = "the incoming body is closed"
            raise ValueError(msg)
        return self._descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _state(status: os.stat_result) -> tuple[int, ...]:
    """What differs once somebody has written to a file, or put another in its place."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def remove_abandoned(path: Path, before: float | None = None) -> bool:
    """Remove a body that nobody holds; tell whether it did.

    With `before`, in seconds since 1970, only one that was last written earlier.
    """
    with contextlib.suppress(BlockingIOError, FileNotFoundError):
        if before is not None and path.stat().st_mtime >= before:
            return False
        descriptor = _open_alone(path)
        try:
            path.unlink()
        finally:
            os.close(descriptor)
        return True
    return False


def _open_alone(path: Path) -> int:
    """Open a file, made if it is missing, under a lock that no other descriptor shares.

    Whoever held it before may have given the file another name, under which it must stay as it is:
    it is ours only if it still has this one.
    """
    for _ in range(_TRIES):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    return descriptor
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)
    msg = f"{path} keeps vanishing"
    raise BlockingIOError(msg)
