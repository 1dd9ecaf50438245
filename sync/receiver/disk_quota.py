"""Whether there is room for one more body: on the disk, and in the landing.

Looks and refuses; makes no room. Calls block: call them in a thread.
"""

from __future__ import annotations

import errno
import os
import threading

from sync.common.fleet_folder import FleetFolder


class DiskQuota:
    """The room in a fleet folder.

    `reserve` bytes of its file system stay free, and the landing has at most `most` bytes, if that
    is given: those of the last `measure`, what landed since, and what is on its way.
    """

    def __init__(self, folder: FleetFolder, reserve: int, most: int | None = None) -> None:
        self._landing = folder.landing
        self._reserve = reserve
        self._most = most
        self._landed = 0
        self._coming = 0
        self._lock = threading.Lock()

    def free(self) -> int:
        """Bytes of the landing's file system that are free for its owner."""
        status = os.statvfs(self._landing)
        return status.f_bavail * status.f_frsize

    def measure(self) -> None:
        """Look how much the landing holds, if that is bounded. Raises OSError."""
        if self._most is not None:
            self._landed = _size(str(self._landing))

    def require(self, size: int) -> None:
        """Raise OSError with ENOSPC or EDQUOT unless `size` bytes more find room."""
        if self.free() - size < self._reserve:
            text = f"the disk is full but for its reserve of {self._reserve} bytes: make room"
            raise OSError(errno.ENOSPC, text, str(self._landing))
        if self._most is not None and self._landed + self._coming + size > self._most:
            raise OSError(errno.EDQUOT, "the landing is full: ingest it", str(self._landing))

    def take(self, size: int) -> None:
        """Require room for a body, and hold it until `settle`. Raises OSError."""
        self.require(size)
        with self._lock:
            self._coming += size

    def settle(self, size: int, *, landed: bool) -> None:
        """End what `take` began: the body landed, or it takes no room after all."""
        with self._lock:
            self._coming -= size
            self._landed += size * landed


def _size(folder: str) -> int:
    """Bytes of all files below a folder; what an ingest moves away meanwhile may count or not."""
    total = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    total += _size(entry.path)
                else:
                    total += entry.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return total
    return total
