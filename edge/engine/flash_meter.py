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
from edge.engine.group_commit import Store
from edge.engine.wear import Written

_WRITTEN: Final = "write_bytes"
_GIVEN: Final = "wchar"


class Counted(NamedTuple):
    """What the kernel has counted since the process began: bytes written to disks, and bytes that
    the database's thread gave to write."""

    written: int
    given: int


class Meter:
    """What was written since it was last told, and the average of the last hour.

    Attributes:
        average: bytes a second.
        counted: asks the kernel.
    """

    def __init__(
        self,
        store: Store,
        flash: Flash,
        counted: Callable[[], Counted],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.average = 0.0
        self._store = store
        self._flash = flash
        self.counted = counted
        self._clock = clock
        self._at = clock()
        self._commits = store.writes
        self._last = counted()

    def look(self) -> Written:
        """Return what was written since `told`."""
        now = self.counted()
        return Written(
            self._clock() - self._at,
            max(0, now.written - self._last.written),
            max(0, now.given - self._last.given) // PAGE_BYTES,
            self._store.writes - self._commits,
        )

    def told(self, found: Written) -> None:
        """Count `found` no more, since it was kept, and let commits wait as it asks for."""
        self._at += found.seconds
        self._commits += found.commits
        written, given = self._last
        self._last = Counted(written + found.written, given + found.pages * PAGE_BYTES)
        if found.seconds > 0:
            rate = found.written / found.seconds
            self.average = commit_delay.averaged(self.average, rate, found.seconds)
        flash = self._flash
        wait = commit_delay.wait(self.average, flash.bytes_per_day, flash.commit_wait)
        self._store.company.window = wait


async def meter(store: Store, flash: Flash) -> Meter:
    """Return the meter of this process; raises `StoreError`."""
    thread = await store.run(lambda _tx: threading.get_native_id())
    return Meter(store, flash, lambda: counted(thread))


def counted(thread: int) -> Counted:
    """Ask the kernel, for this process and the database's thread by its number; zeros where it does
    not count."""
    of_thread = _figures(Path(f"/proc/self/task/{thread}/io"))
    return Counted(_figures(Path("/proc/self/io")).get(_WRITTEN, 0), of_thread.get(_GIVEN, 0))


def _figures(path: Path) -> dict[str, int]:
    with suppress(OSError, ValueError):
        pairs = (line.split(":") for line in path.read_text("ascii").splitlines())
        return {name: int(figure) for name, figure in pairs}
    return {}
