"""Decide when and on which thread a group of units of work is committed, so that units share
commits.

Runs on the event loop, once per group. The minimum interval between commits comes from
`commit_delay`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from sync.common.metrics import Histogram

SLOW_COMMIT: Final = 0.004
"""Average seconds of a commit above which the disk counts as slow (an SD card, not an SSD). On a
slow disk a group waits for more units, and a thread runs COMMIT."""

WAIT_SHARE: Final = 0.1
"""Length of one of the `WAIT_STEPS` of a wait, as a fraction of the average time of a commit."""

WAIT_STEPS: Final = 4
"""Maximum steps of the wait for more units. Peers that are answered together send their next
requests at about the same time; these should share one commit. So the wait ends earlier after a
step in which no unit arrives, or when there are enough units: the number in the last group, plus
the number that waited when the commit of that group ended."""

SINGLE: Final = 1.5
"""Average units of a group below which the gateway assumes a single peer that sends one request at
a time; a group then does not wait for more units."""

COMMIT_TIME_BUCKETS: Final = (
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
)  # fmt: skip
"""Upper bounds of the histogram of commit times, in seconds; from an SSD to a worn-out card."""


class CommitWindow:
    """The wait before each commit, computed from the times of earlier commits.

    Args:
        is_full: returns whether the group is complete.
        units: returns the number of waiting units.

    Attributes:
        min_interval: minimum seconds between the beginnings of two commits, unless a group is
            complete; after a longer pause, a commit is not delayed.
        commit_times: the histogram of the seconds that commits took, if they changed rows.
        waits: whether a group waits, for more units or until `min_interval` has passed.
    """

    def __init__(self, is_full: Callable[[], bool], units: Callable[[], int]) -> None:
        self.min_interval = 0.0
        self.commit_times = Histogram(COMMIT_TIME_BUCKETS)
        self.waits = False
        self._is_full = is_full
        self._units = units
        self._average_time = 0.0
        self._average_units = 0.0
        self._peers = 0.0
        self._wanted = math.inf
        self._last_begin = -math.inf
        self._filled = asyncio.Event()

    def observe(self, seconds: float, units: int, *, wrote: bool) -> None:
        """Record how long the commit of a group took, and whether it changed rows.

        Called when the commit ends, before its units are answered.
        """
        if wrote:
            self.commit_times.observe(seconds)
        self._average_time += (seconds - self._average_time) / 8
        self._average_units += (units - self._average_units) / 8
        self._peers = units + self._units()  # those of the group, and those that wait

    @property
    def is_slow(self) -> bool:
        """Return whether the disk is slow.

        The time of a commit on a thread includes waits for the interpreter's lock. So a disk that
        counted as slow once may still do so if its commits take nearly `SLOW_COMMIT`.
        """
        return self._average_time > SLOW_COMMIT

    @property
    def lets_others_run(self) -> bool:
        """Return whether `wait` lets the loop run: there is more than one peer, or none yet."""
        return not 0 < self._average_units < SINGLE

    def wake(self) -> None:
        """End the present `wait` for more units, if there is one."""
        self._filled.set()

    def wake_if_complete(self) -> None:
        """End the wait if the group is complete or as many units wait as `_wait_until` wants."""
        if self._is_full() or self._units() >= self._wanted:
            self._filled.set()

    async def wait(self) -> None:
        """Wait for more units before a commit. On a fast disk and within the write budget, the wait
        is one iteration of the event loop at most."""
        if self.lets_others_run:
            await asyncio.sleep(0.0)
            if self.is_slow:
                await self._wait_for_peers()
        if self.min_interval:
            await self._wait_until(self._last_begin + self.min_interval, math.inf)
            self._last_begin = time.monotonic()

    async def _wait_for_peers(self) -> None:
        before = -1
        for _ in range(WAIT_STEPS):
            units = self._units()
            if units == before:
                break
            before = units
            await self._wait_until(time.monotonic() + self._average_time * WAIT_SHARE, self._peers)

    async def _wait_until(self, moment: float, wanted: float) -> None:
        self._filled.clear()
        left = moment - time.monotonic()
        if left > 0 and not self._is_full() and self._units() < wanted:
            self.waits, self._wanted = True, wanted
            with suppress(TimeoutError):
                await asyncio.wait_for(self._filled.wait(), left)
            self.waits = False
