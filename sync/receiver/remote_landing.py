"""The landing in an object store that may be away, and a spool on the local disk for that time.

All calls block: run them in a thread.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sync.common.durable_files import TEMPORARY, fsync_folder
from sync.common.errors import FleetError
from sync.common.json_log import log_event
from sync.common.text import os_error
from sync.receiver.landing import Landing, LandingResult, Outcome, VerifiedSegment
from sync.receiver.limits import ReceiverLimits
from sync.segment import SUFFIX, Identity, SegmentError, identity_path, parse_identity
from sync.storage.local import LocalStorage
from sync.storage.locations import LANDING
from sync.storage.storage import File, Storage
from sync.uplink.interfaces import HighWatermark

SPOOL_FOLDER: Final = "spool"
"""The folder of spooled segments below `incoming/`."""


class Spool:
    """Durable segments on the local disk that are not landed yet: at most `capacity` bytes.

    Their names are `GATEWAY/EPOCH.LANE.FIRST-LAST.DIGITS.seg`, with digits of the SHA-256, so that
    segments in conflict are kept side by side.
    """

    def __init__(self, folder: Path, capacity: int) -> None:
        self._folder = folder
        self._storage = LocalStorage(folder)
        self._capacity = capacity
        self._lock = threading.Lock()
        self._landed: set[str] = set()  # paths of files that could not be removed
        self._adding = 0  # bytes of segments that are being added
        self.size = 0
        """Bytes of the spooled segments."""

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Use the spool within the block. Raises LeaseError if another process uses it."""
        with self._storage.lease():
            fsync_folder(self._folder.parent)  # a process that was killed may have made the folder
            for path in self._folder.rglob(f".*{TEMPORARY}"):
                path.unlink()
            self._storage.clean("")
            self.files()
            yield

    def has_room(self, size: int) -> bool:
        """Return whether there is room for `size` more bytes."""
        return self.size + size <= self._capacity

    def add(self, segment: VerifiedSegment) -> Outcome:
        """Store a segment, unless it is there. Raises OSError, also if the spool is full."""
        gateway, _, name = identity_path(segment.identity).partition("/")
        digits = hashlib.sha256(segment.data).hexdigest()[:16]
        path = f"{gateway}/{name.replace('/', '.')}.{digits}{SUFFIX}"
        size, is_new = len(segment.data), False
        with self._lock:
            if not self.has_room(size):
                raise OSError(f"the spool of {self._capacity} bytes is full")
            self.size += size
            self._adding += size
        try:
            is_new = self._storage.create(path, segment.data)
        except OSError:
            is_new = self._storage.exists(path)  # for example, its folder was not synced
            raise
        finally:
            with self._lock:
                self._adding -= size
                self.size -= 0 if is_new else size
        return Outcome.NEW if is_new else Outcome.SAME

    def has(self, gateway: str, epoch: str) -> bool:
        """Return whether segments of an epoch are spooled and have not landed."""
        files = self._storage.files(gateway, SUFFIX)
        return any(
            file.path.startswith(f"{gateway}/{epoch}.") and not self.has_landed(file)
            for file in files
        )

    def files(self) -> list[File]:
        """Return the spooled files, in the order in which they arrived, and measure the spool."""
        with self._lock:
            files = [*self._storage.files(suffix=SUFFIX)]
            self.size = sum(file.size for file in files) + self._adding
            self._landed &= {file.path for file in files}
        return sorted(files, key=lambda file: (file.modified, file.path))

    def read(self, file: File) -> VerifiedSegment:
        """Read a segment, which was verified when it was added. Raises OSError and SegmentError."""
        gateway, _, name = file.path.partition("/")
        identity = parse_identity("/".join([gateway, *name.split(".")[:3]]))
        return VerifiedSegment(identity, self._storage.read(file.path))

    def has_landed(self, file: File) -> bool:
        """Return whether `remove` was called for the file, which is still there."""
        return file.path in self._landed

    def remove(self, file: File) -> None:
        """Remove a segment that has landed. Raises OSError."""
        self._landed.add(file.path)
        try:
            self._storage.remove([file.path])
        finally:
            if not self._storage.exists(file.path):
                self._landed.discard(file.path)
                with self._lock:
                    self.size -= file.size


def require_empty(folder: Path) -> None:
    """Raise FleetError if the spool in `folder` has segments. Without a spool, they never land."""
    if any(True for _ in LocalStorage(folder).files(suffix=SUFFIX)):
        raise FleetError(
            f"segments wait in {folder}; start with --landing and --spool to land them"
        )


class RemoteLanding(Landing):
    """Lands segments as `Landing` does, in a storage that may be away.

    After a call failed, all calls fail at once, until `catch_up` finds that the storage answers.
    Meanwhile segments go to the spool, if there is one.
    """

    def __init__(self, segments: Storage, limits: ReceiverLimits, spool: Spool | None) -> None:
        super().__init__(segments, limits)
        self._spool = spool
        self._error: OSError | None = None
        self._faulty: set[str] = set()  # paths of spooled files for which an error was logged

    def land(self, segment: VerifiedSegment, *, limited: bool = True) -> LandingResult:
        """Land a segment, or spool it; see `Landing.land`.

        Conflicts with a spooled segment, and of it, are found when it is landed.
        """
        try:
            with self._answering():
                return super().land(segment, limited=limited)
        except OSError:
            if self._spool is None:
                raise
            return LandingResult(self._spool.add(segment))

    def find(self, identity: Identity) -> bytes | None:
        """Return the digest of a landed segment; see `Landing.find`."""
        with self._answering():
            return super().find(identity)

    def high_watermarks(self, gateway: str, epoch: str) -> dict[str, HighWatermark]:
        """Return the high watermarks of an epoch; see `Landing.high_watermarks`.

        Raises OSError while segments of the epoch are spooled, because these are not compared.
        """
        with self._answering():
            found = super().high_watermarks(gateway, epoch)
        if self._spool is not None and self._spool.has(gateway, epoch):
            raise OSError(f"segments of {gateway} wait in the spool")
        return found

    def is_accepting(self, size: int) -> bool:
        """Return whether a segment of `size` bytes would be accepted."""
        return self._error is None or (self._spool is not None and self._spool.has_room(size))

    def spooled_bytes(self) -> int:
        """Return the bytes of the spooled segments."""
        return 0 if self._spool is None else self._spool.size

    def catch_up(self) -> None:
        """Check whether the storage answers, and land spooled segments in the order of arrival.

        Ends after `retry_after_s` seconds, so that the receiver starts and stops soon; the next
        call continues. A failure of the storage is logged. Raises OSError if the spool cannot be
        listed.
        """
        try:
            self._segments.exists(LANDING)
        except OSError as error:
            self._failed(error)
            return
        if self._error is not None:
            self._error = None
            log_event(logging.INFO, "storage", text="the storage of the landing answers again")
        if self._spool is not None and self._spool.size:
            self._land_spooled(self._spool)

    def _land_spooled(self, spool: Spool) -> None:
        """Land spooled segments. Those that are in conflict are set aside beyond the limits.

        A file that cannot be read or removed delays no other. It is logged once, because the next
        call tries again.
        """
        files = spool.files()
        self._faulty &= {file.path for file in files}
        end = time.monotonic() + self._limits.retry_after_s
        for file in files:
            if time.monotonic() > end:
                return
            try:
                if not spool.has_landed(file):
                    segment = spool.read(file)
                    with self._answering():
                        super().land(segment, limited=False)
                spool.remove(file)
            except (OSError, SegmentError) as error:
                if self._error is not None:
                    return
                if file.path not in self._faulty:
                    self._faulty.add(file.path)
                    log_event(logging.ERROR, "spool", text=str(error), path=file.path)

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        """Fail at once if the storage is away; record a failure within the block."""
        failure = self._error
        if failure is not None:
            raise OSError(*failure.args)
        try:
            yield
        except OSError as error:
            self._failed(error)
            raise

    def _failed(self, error: OSError) -> None:
        if self._error is None:
            log_event(logging.ERROR, "storage", text=os_error(error))
        self._error = error
