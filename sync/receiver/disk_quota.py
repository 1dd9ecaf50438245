"""Check that the disk and the landing have room for another segment.

All calls block: run them in a thread.
"""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

from sync.storage.locations import LANDING
from sync.storage.storage import Storage


class DiskQuota:
    """The free space of the disk of `folder`, and of the landing in `segments`.

    `reserve` bytes of the file system stay free. `landing_quota` limits the bytes in the landing
    (None: no limit): those found by the last `measure`, those landed since then, and those reserved
    for bodies that are being received.
    """

    def __init__(
        self, folder: Path, segments: Storage, reserve: int, landing_quota: int | None = None
    ) -> None:
        self._folder = folder
        self._segments = segments
        self._reserve = reserve
        self._landing_quota = landing_quota
        self._used = 0
        self._reserved = 0
        self._lock = threading.Lock()

    def free(self) -> int:
        """Return the free bytes of the file system."""
        status = os.statvfs(self._folder)
        return status.f_bavail * status.f_frsize

    def measure(self) -> None:
        """Measure the bytes in the landing, if it has a quota. Raises OSError."""
        if self._landing_quota is not None:
            self._used = sum(file.size for file in self._segments.files(LANDING))

    def require(self, size: int) -> None:
        """Raise OSError (ENOSPC or EDQUOT) unless there is room for `size` more bytes."""
        if self.free() - size < self._reserve:
            text = (
                f"the disk has no room for {size} bytes above the reserve of {self._reserve}; "
                "free some space"
            )
            raise OSError(errno.ENOSPC, text, str(self._folder))
        if (
            self._landing_quota is not None
            and self._used + self._reserved + size > self._landing_quota
        ):
            text = f"the landing's quota of {self._landing_quota} bytes is used up; run the ingest"
            raise OSError(errno.EDQUOT, text, self._segments.uri(LANDING))

    def reserve(self, size: int) -> None:
        """Reserve room for a body until `settle`. Raises OSError as `require` does."""
        self.require(size)
        with self._lock:
            self._reserved += size

    def settle(self, size: int, *, landed: bool) -> None:
        """End a reservation; count its bytes as used if the body landed."""
        with self._lock:
            self._reserved -= size
            self._used += size * landed
