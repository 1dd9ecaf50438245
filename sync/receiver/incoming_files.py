"""Files of uploads in progress and of interrupted ones, each written by one holder at a time.

Several receivers and imports may share the fleet folder. A writer holds an flock on its file, which
ends with its process; a file without a lock was left by a dead process. All calls block: run them
in a thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from sync.common.durable_files import PRIVATE_FILE, PRIVATE_FOLDER
from sync.common.fleet_folder import FleetFolder

if TYPE_CHECKING:
    from hashlib import _Hash  # exists in type stubs only

PART_SUFFIX: Final = ".part"

PARTIAL_FOLDER: Final = "partial"
"""The folder of interrupted uploads below `incoming/`."""

_LOCK_ATTEMPTS: Final = 8
"""Attempts to lock a file that is removed between its opening and its lock."""

_READ_BYTES: Final = 256 * 1024


class OffsetError(Exception):
    """An upload does not continue at the end of its stored part, which has `size` bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


class UploadInProgressError(Exception):
    """Another request, of this receiver or of another receiver, is writing this upload."""


class _CachedHash(NamedTuple):
    file_version: tuple[int, ...]
    size: int
    hash: _Hash


class HashCache:
    """The running SHA-256 of the `capacity` interrupted uploads that were written last.

    With its hash in the cache, an upload that is resumed need not be read again. An entry is valid
    as long as the file has not changed.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._entries: OrderedDict[Path, _CachedHash] = OrderedDict()

    def put(self, path: Path, status: os.stat_result, running: _Hash) -> None:
        """Store the hash of a file whose state is `status`."""
        with self._lock:
            self._entries[path] = _CachedHash(_file_version(status), status.st_size, running)
            self._entries.move_to_end(path)
            while len(self._entries) > self._capacity:
                self._entries.popitem(last=False)

    def pop(self, path: Path, status: os.stat_result) -> _Hash | None:
        """Remove and return the hash of a file, None if there is none or the file has changed."""
        with self._lock:
            entry = self._entries.pop(path, None)
        return entry.hash if entry and entry.file_version == _file_version(status) else None

    def has(self, path: Path, size: int) -> bool:
        """Return whether the hash of the file's first `size` bytes is in the cache."""
        entry = self._entries.get(path)
        return entry is not None and entry.size == size


class IncomingFile:
    """A body being received. As a context manager, it removes the file when it closes.

    Continues after the `start` bytes that the file already holds; 0 starts anew. If `kept`, the
    file stays after closing, unless it is empty or a write failed. Raises BlockingIOError when
    another process or request holds the file, OffsetError when its size is not `start`.
    """

    def __init__(
        self, path: Path, *, kept: bool = False, start: int = 0, hashes: HashCache | None = None
    ) -> None:
        self.path = path
        self.kept = kept
        self._hashes = hashes
        self._lock = threading.Lock()
        self._descriptor: int | None = _open_locked(path)
        self._hash = hashlib.sha256()
        self._hashed = 0
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
        status = os.fstat(descriptor)
        self.size = status.st_size
        if start != self.size:
            raise OffsetError(self.size)
        cached = None if self._hashes is None else self._hashes.pop(self.path, status)
        if cached is None:
            while data := os.read(descriptor, _READ_BYTES):
                self._hash.update(data)
        else:
            self._hash = cached
        self._hashed = self.size
        os.lseek(descriptor, 0, os.SEEK_END)

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
            self._hash.update(data)
            self.size += len(data)
            self._hashed = self.size

    def sha256(self) -> bytes:
        """Return the SHA-256 (32 bytes) of everything written so far."""
        return self._hash.digest()

    def read(self) -> bytes:
        """Return the content of the file."""
        return self.path.read_bytes()

    def rename(self, path: Path) -> None:
        """Rename the file to `path`, which no other holder uses. Raises OSError."""
        self.path.rename(path)
        self.path = path

    def sync(self) -> None:
        """Make the content durable. Raises OSError."""
        with self._lock:
            os.fsync(self._open())

    def close(self) -> None:
        """Close the file after a write in progress, and remove it unless it is kept. Idempotent.

        It is removed while it is locked, so that no holder opens a file that became a segment.
        """
        with self._lock:
            if self._descriptor is None:
                return
            try:
                if not (self.kept and self.size):
                    self.path.unlink(missing_ok=True)
                elif self._hashes is not None:
                    status = os.fstat(self._descriptor)
                    if status.st_size == self.size == self._hashed:
                        self._hashes.put(self.path, status, self._hash)
            finally:
                os.close(self._descriptor)
                self._descriptor = None

    def _open(self) -> int:
        if self._descriptor is None:
            msg = "the incoming file is closed"
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


@dataclass(frozen=True, slots=True)
class PartialUploadLimits:
    """Limits of interrupted uploads.

    `files` is the number for each gateway, `age_s` the seconds for which they are kept after their
    last byte, and `hashes` the number of hashes in the cache for all gateways.
    """

    files: int
    age_s: float
    hashes: int


class PartialUploads:
    """Interrupted uploads below `incoming/partial/GATEWAY/`, named by the SHA-256 of the body."""

    def __init__(self, folder: FleetFolder, limits: PartialUploadLimits) -> None:
        self._root = folder.incoming / PARTIAL_FOLDER
        self._limits = limits
        self._hashes = HashCache(limits.hashes)

    def has_hash(self, gateway: str, body_sha256: bytes, size: int) -> bool:
        """Return whether resuming an upload after `size` bytes needs no reading of these bytes."""
        return self._hashes.has(self._path(gateway, body_sha256), size)

    def size(self, gateway: str, body_sha256: bytes) -> int:
        """Return the stored bytes of an upload; 0 if there are none."""
        try:
            return self._path(gateway, body_sha256).stat().st_size
        except FileNotFoundError:
            return 0

    def open(self, gateway: str, body_sha256: bytes, start: int) -> IncomingFile:
        """Open an upload at byte `start`; 0 discards what is stored.

        Its content is kept when it closes, until `Landing.adopt` takes the file. Raises OffsetError
        when `start` is not the stored size, UploadInProgressError when another request writes it.
        """
        path = self._path(gateway, body_sha256)
        if start and not path.exists():
            raise OffsetError(0)
        self._make_room(path)
        try:
            return IncomingFile(path, kept=True, start=start, hashes=self._hashes)
        except BlockingIOError:
            raise UploadInProgressError from None

    def clean(self) -> int:
        """Remove interrupted uploads that are too old; return how many."""
        self._root.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        before = time.time() - self._limits.age_s
        return sum(remove_abandoned(path, before) for path in self._root.glob(f"*/*{PART_SUFFIX}"))

    def sizes(self) -> list[int]:
        """Return the bytes of each partial upload, including those in progress."""
        return [_age_and_size(path)[1] for path in self._root.glob(f"*/*{PART_SUFFIX}")]

    def _make_room(self, path: Path) -> None:
        """Remove the gateway's oldest uploads, so that `path` does not exceed the limit."""
        path.parent.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        others = [each for each in path.parent.glob(f"*{PART_SUFFIX}") if each != path]
        excess = len(others) + 1 - self._limits.files
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

    A previous holder may have renamed the file to a segment, which must not change any more, so the
    lock is valid only if the path still names the locked file.
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
    msg = f"{path} was removed {_LOCK_ATTEMPTS} times while it was opened"
    raise BlockingIOError(msg)


def _file_version(status: os.stat_result) -> tuple[int, ...]:
    """Return values that change whenever a file is written or replaced."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _age_and_size(path: Path) -> tuple[float, int]:
    """Return when a file was last written (seconds since 1970) and its bytes; zeros if missing."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0.0, 0
    return status.st_mtime, status.st_size
