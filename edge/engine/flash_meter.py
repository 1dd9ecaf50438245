"""Measure what the gateway writes to its flash card, and delay commits if it is too much.

The kernel counts for each process the bytes written to disks, and for each thread the bytes given
to write. Those of the database's thread are pages of the WAL and of checkpoints. Commands that run
beside the gateway are not counted.
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

_PROCESS_COUNTER: Final = "write_bytes"
_THREAD_COUNTER: Final = "wchar"


class KernelCounters(NamedTuple):
    """The kernel's counts since the process began, in bytes.

    Attributes:
        process: bytes that the process has written to disks.
        thread: bytes that the database's thread has given to write.
    """

    process: int
    thread: int


class WriteMeter:
    """Counts bytes written since they were last logged, and averages the last hour.

    Attributes:
        average: bytes a second.
        read_counters: reads the kernel's counters.
    """

    def __init__(
        self,
        store: Store,
        flash: Flash,
        read_counters: Callable[[], KernelCounters],
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
        """Return what was written since `mark_logged`."""
        now = self.read_counters()
        return WriteCounts(
            self._clock() - self._at,
            max(0, now.process - self._last.process),
            max(0, now.thread - self._last.thread) // PAGE_BYTES,
            self._store.writes - self._commits,
        )

    def mark_logged(self, counts: WriteCounts) -> None:
        """Stop counting what was logged, and adapt the delay of commits to it."""
        self._at += counts.seconds
        self._commits += counts.commits
        process, thread = self._last
        self._last = KernelCounters(process + counts.written, thread + counts.pages * PAGE_BYTES)
        if counts.seconds > 0:
            rate = counts.written / counts.seconds
            self.average = commit_delay.updated_average(self.average, rate, counts.seconds)
        flash = self._flash
        wait = commit_delay.commit_wait(self.average, flash.bytes_per_day, flash.commit_wait)
        self._store.commit_window.min_interval = wait


async def start_meter(store: Store, flash: Flash) -> WriteMeter:
    """Return the meter of this process; raises `StoreError`."""
    thread = await store.run(lambda _tx: threading.get_native_id())
    return WriteMeter(store, flash, lambda: kernel_counters(thread))


def kernel_counters(thread: int) -> KernelCounters:
    """Read the kernel's counters of this process and of a thread; zeros if it has none."""
    of_thread = _read_counters(Path(f"/proc/self/task/{thread}/io"))
    of_process = _read_counters(Path("/proc/self/io"))
    return KernelCounters(of_process.get(_PROCESS_COUNTER, 0), of_thread.get(_THREAD_COUNTER, 0))


def _read_counters(path: Path) -> dict[str, int]:
    with suppress(OSError, ValueError):
        pairs = (line.split(":") for line in path.read_text("ascii").splitlines())
        return {name: int(value) for name, value in pairs}
    return {}
