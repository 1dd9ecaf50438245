"""Files of uploads in progress and of interrupted ones, each written by one holder at a time.

Several receivers and imports can share the fleet folder. A holder has an flock on its file, which
is released when the holder's process ends; a file without a lock was left by a dead process. All
calls block: run them in a thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import threading
import time
from pathlib import Path
from typing import Final, Self

from sync.common.durable_files import PRIVATE_FILE, PRIVATE_FOLDER
from sync.common.fleet_folder import FleetFolder
from sync.receiver.limits import ReceiverLimits

PART_SUFFIX: Final = ".part"

PARTIAL_FOLDER: Final = "partial"
"""The folder of uploads below `incoming/`."""

_LOCK_ATTEMPTS: Final = 8
"""Maximum attempts to lock a file. One fails if the file is removed after it was opened."""


class OffsetError(Exception):
    """An upload does not continue at the end of its stored part, which has `size` bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


class UploadInProgressError(Exception):
    """Another request writes this upload, or its gateway has too many uploads in progress."""


class IncomingFile:
    """The file of a body that is being received. Closing removes it unless it is `kept`.

    Writing continues after the `start` bytes that the file already has; 0 starts anew. An empty
    file is never kept, nor one after a failed write. Raises BlockingIOError when another process or
    request holds the file, OffsetError when its size is not `start`.
    """

    def __init__(self, path: Path, *, kept: bool = False, start: int = 0) -> None:
        self.path = path
        self.kept = kept
        self._lock = threading.Lock()
        self._descriptor: int | None = _open_locked(path)
        self.size = 0
        try:
            self._start_at(start)
        except BaseException:
            self.close()
            raise

    def _start_at(self, start: int) -> None:
        descriptor = self._open()
        if start == 0:
            os.ftruncate(descriptor, 0)
            return
        self.size = os.lseek(descriptor, 0, os.SEEK_END)
        if start != self.size:
            raise OffsetError(self.size)

    def write(self, data: bytes | bytearray) -> None:
        """Append `data`. Raises OSError, for example on a full disk; then the file is not kept."""
        view = memoryview(data)
        with self._lock:
            descriptor = self._open()
            try:
                while view:
                    view = view[os.write(descriptor, view) :]
            except OSError:
                self.kept = False
                raise
            self.size += len(data)

    def take(self, rest: bytes | bytearray = b"") -> bytes:
        """Return the complete body, which ends with `rest`; the file has what is before it.

        The file is not kept: a body is resumed until it is complete. Raises OSError.
        """
        self.kept = False
        return b"".join((self.path.read_bytes() if self.size else b"", rest))

    def close(self) -> None:
        """Wait for a write in progress, close the file, and remove it unless `kept`. Idempotent."""
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
            raise ValueError("the incoming file is closed")
        return self._descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PartialUploads:
    """Resumable uploads, in progress or interrupted, in `incoming/partial/GATEWAY/SHA256.part`."""

    def __init__(self, folder: FleetFolder, limits: ReceiverLimits) -> None:
        self._root = folder.incoming / PARTIAL_FOLDER
        self._limits = limits

    def size(self, gateway: str, body_sha256: bytes) -> int:
        """Return how many bytes of an upload are stored."""
        try:
            return self._path(gateway, body_sha256).stat().st_size
        except FileNotFoundError:
            return 0

    def open(self, gateway: str, body_sha256: bytes, start: int) -> IncomingFile:
        """Open an upload at byte `start`; 0 discards what is stored.

        The file stays when it is closed, unless its body was taken. Raises OffsetError when `start`
        is not the stored size, UploadInProgressError when another request writes the file, or when
        uploads in progress use up `partials_per_gateway`.
        """
        path = self._path(gateway, body_sha256)
        if start and not path.exists():
            raise OffsetError(0)
        self._make_room(path)
        try:
            return IncomingFile(path, kept=True, start=start)
        except BlockingIOError:
            raise UploadInProgressError from None

    def open_unnamed(self, gateway: str) -> IncomingFile:
        """Open a file for an upload of which another request writes the resumable file."""
        return IncomingFile(self._root / gateway / f"{secrets.token_hex(32)}{PART_SUFFIX}")

    def clean(self) -> int:
        """Remove interrupted uploads that are too old; return how many."""
        self._root.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        before = time.time() - self._limits.partial_max_age_s
        return sum(remove_abandoned(path, before) for path in self._root.glob(f"*/*{PART_SUFFIX}"))

    def sizes(self) -> list[int]:
        """Return the size in bytes of each partial upload, including those in progress."""
        return [_age_and_size(path)[1] for path in self._root.glob(f"*/*{PART_SUFFIX}")]

    def _make_room(self, path: Path) -> None:
        """Remove the gateway's oldest interrupted uploads, so that `path` is within the limit.

        Raises UploadInProgressError if too many of them are in progress.
        """
        path.parent.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        others = [each for each in path.parent.glob(f"*{PART_SUFFIX}") if each != path]
        excess = len(others) + 1 - self._limits.partials_per_gateway
        if excess <= 0:
            return
        for oldest in sorted(others, key=_age_and_size):
            excess -= remove_abandoned(oldest)
            if excess <= 0:
                return
        raise UploadInProgressError

    def _path(self, gateway: str, body_sha256: bytes) -> Path:
        return self._root / gateway / f"{body_sha256.hex()}{PART_SUFFIX}"


def remove_abandoned(path: Path, before: float | None = None) -> bool:
    """Remove a file that no process holds; return whether it was removed.

    With `before` (seconds since 1970), a file that was written at that time or later stays.
    """
    with contextlib.suppress(BlockingIOError, FileNotFoundError):
        if before is not None and path.stat().st_mtime >= before:
            return False
        descriptor = _open_locked(path)
        try:
            path.unlink()
        finally:
            os.close(descriptor)
        return True
    return False


def _open_locked(path: Path) -> int:
    """Open or create a file and lock it.

    A previous holder may have removed the file, so the lock is valid only if the path still names
    the locked file.
    """
    for _ in range(_LOCK_ATTEMPTS):
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
    raise BlockingIOError(f"{path} was removed {_LOCK_ATTEMPTS} times while it was opened")


def _age_and_size(path: Path) -> tuple[float, int]:
    """Return the time of the last write (seconds since 1970), and the size; zeros if missing."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0.0, 0
    return status.st_mtime, status.st_size
