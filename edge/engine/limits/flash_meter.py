"""Measure the bytes that the gateway writes to its flash card, and delay commits above the budget.

The kernel counts, for each process, the bytes written to disks, and the bytes passed to write calls
on files. The latter are nearly all pages of the WAL and of checkpoints, and do not include data
sent to sockets. Commands that run beside the gateway are not counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from edge.config.options import Flash
from edge.engine.limits.flash_wear import WriteCounts
from edge.engine.rules import commit_delay
from edge.engine.store.database import PAGE_BYTES
from edge.engine.store.group_commit import Store


class KernelCounters(NamedTuple):
    """The kernel's counts since the process began, in bytes.

    Attributes:
        written: bytes that were written to disks.
        given: bytes that were passed to write calls on files.
    """

    written: int
    given: int


def kernel_counters(path: Path = Path("/proc/self/io")) -> KernelCounters:
    """Read the kernel's counters of this process; return zeros if the kernel has none."""
    with suppress(OSError, ValueError):
        lines = path.read_text("ascii").splitlines()
        counts = {name: int(value) for name, value in (line.split(":") for line in lines)}
        return KernelCounters(counts.get("write_bytes", 0), counts.get("wchar", 0))
    return KernelCounters(0, 0)


class WriteMeter:
    """Counts the bytes written since the counts were last logged, and averages the rate of writes.

    Attributes:
        average: the moving average of the rate over an hour, in bytes a second.
        read_counters: reads the kernel's counters.
    """

    def __init__(
        self,
        store: Store,
        flash: Flash,
        read_counters: Callable[[], KernelCounters] = kernel_counters,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.average = 0.0
        self._store = store
        self._flash = flash
        self.read_counters = read_counters
        self._clock = clock
        self._at = clock()
        self._commits = store.writes
        self._last = read_counters()

    def measure(self) -> WriteCounts:
        """Return the counts since the last call of `mark_logged`."""
        now = self.read_counters()
        return WriteCounts(
            self._clock() - self._at,
            max(0, now.written - self._last.written),
            max(0, now.given - self._last.given) // PAGE_BYTES,
            self._store.writes - self._commits,
        )

    def mark_logged(self, counts: WriteCounts) -> None:
        """Subtract the logged `counts` from the counters, and adapt the delay of commits."""
        self._at += counts.seconds
        self._commits += counts.commits
        written, given = self._last
        self._last = KernelCounters(written + counts.written, given + counts.pages * PAGE_BYTES)
        if counts.seconds > 0:
            rate = counts.written / counts.seconds
            self.average = commit_delay.updated_average(self.average, rate, counts.seconds)
        flash = self._flash
        wait = commit_delay.commit_wait(self.average, flash.bytes_per_day, flash.commit_wait)
        self._store.commit_window.min_interval = wait
