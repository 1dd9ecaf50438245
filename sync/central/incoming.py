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
from typing import TYPE_CHECKING, Final, Self

from sync.central.durable import PRIVATE_FILE

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

PART: Final = ".part"
"""What the name of a body on its way ends with."""

_TRIES: Final = 8
"""Times a file may vanish between its opening and its lock: its remover does that once."""

_PIECE: Final = 256 * 1024
"""Bytes read at once."""


class Incoming:
    """A body on its way in. Use it as a context manager: it is gone when it is closed.

    Goes on behind what the file holds already. `size` is in bytes. With `kept`, what was written
    stays when it is closed, unless a write failed or nothing is there. Raises BlockingIOError when
    another holds the file.
    """

    def __init__(self, path: Path, *, kept: bool = False) -> None:
        self.path = path
        self.kept = kept
        self._lock = threading.Lock()
        self._descriptor: int | None = _open_alone(path)
        self._begin()

    def _begin(self) -> None:
        """Take the sum of what is there; what is written from now on comes behind it."""
        self.size = 0
        self._sum = hashlib.sha256()
        while data := os.read(self._open(), _PIECE):
            self._sum.update(data)
            self.size += len(data)

    def clear(self) -> None:
        """Forget what the file holds."""
        with self._lock:
            os.ftruncate(self._open(), 0)
            os.lseek(self._open(), 0, os.SEEK_SET)
            self._begin()

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
            finally:
                os.close(self._descriptor)
                self._descriptor = None

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


def remove_left(path: Path, before: float | None = None) -> bool:
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
