"""Measures what the gateway writes to its card, and lets commits wait where that is too much.

The kernel counts for each process the bytes that it has written to disks, and for each of its
threads the bytes that it gave to write: those of the database's thread are the pages of its WAL and
what checkpoints move. What commands beside the gateway write is not in it, nor what the card's
controller writes beyond. How long commits wait is decided in `rules.window`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from edge.config.options import Flash
from edge.engine import commit_delay
from edge.engine.database import PAGE_BYTES
from edge.engine.flash_wear import WriteCounts
from edge.engine.group_commit import Store

_WRITTEN: Final = "write_bytes"
_GIVEN: Final = "wchar"


class KernelCounters(NamedTuple):
    """What the kernel has counted since the process began: bytes written to disks, and bytes that
    the database's thread gave to write."""

    written: int
    given: int


class WriteMeter:
    """What was written since it was last told, and the average of the last hour.

    Attributes:
        average: bytes a second.
        counted: asks the kernel.
    """

    def __init__(
        self,
        store: Store,
        flash: Flash,
        counted: Callable[[], KernelCounters],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.average = 0.0
        self._store = store
        self._flash = flash
        self.read_counters = counted
        self._clock = clock
        self._at = clock()
        self._commits = store.writes
        self._last = counted()

    def measure(self) -> WriteCounts:
        """Return what was written since `told`."""
        now = self.read_counters()
        return WriteCounts(
            self._clock() - self._at,
            max(0, now.written - self._last.written),
            max(0, now.given - self._last.given) // PAGE_BYTES,
            self._store.writes - self._commits,
        )

    def mark_logged(self, found: WriteCounts) -> None:
        """Count `found` no more, since it was kept, and let commits wait as it asks for."""
        self._at += found.seconds
        self._commits += found.commits
        written, given = self._last
        self._last = KernelCounters(written + found.written, given + found.pages * PAGE_BYTES)
        if found.seconds > 0:
            rate = found.written / found.seconds
            self.average = commit_delay.updated_average(self.average, rate, found.seconds)
        flash = self._flash
        wait = commit_delay.commit_wait(self.average, flash.bytes_per_day, flash.commit_wait)
        self._store.commit_window.min_interval = wait


async def start_meter(store: Store, flash: Flash) -> WriteMeter:
    """Return the meter of this process; raises `StoreError`."""
    thread = await store.run(lambda _tx: threading.get_native_id())
    return WriteMeter(store, flash, lambda: kernel_counters(thread))


def kernel_counters(thread: int) -> KernelCounters:
    """Ask the kernel, for this process and the database's thread by its number; zeros where it does
    not count."""
    of_thread = _figures(Path(f"/proc/self/task/{thread}/io"))
    return KernelCounters(
        _figures(Path("/proc/self/io")).get(_WRITTEN, 0), of_thread.get(_GIVEN, 0)
    )


def _figures(path: Path) -> dict[str, int]:
    with suppress(OSError, ValueError):
        pairs = (line.split(":") for line in path.read_text("ascii").splitlines())
        return {name: int(figure) for name, figure in pairs}
    return {}
