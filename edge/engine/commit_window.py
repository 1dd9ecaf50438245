"""For how long a group of units waits for others before it is committed.

Group by group, on the event loop. How long that may be is decided in `rules.window`, by what is
written to the card; what the units do is not known here.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from sync.common.metrics import Histogram

GROUP_UNITS: Final = 512
"""Units in one transaction: larger groups gain nothing and keep the answers waiting."""

GROUP_BYTES: Final = 256 * 1024
"""The bytes of those: a few large messages take as long as many small ones."""

SLOW_COMMIT: Final = 0.002
"""Seconds of a commit from which it pays to wait for company (an SD card, not an SSD)."""

SHARE: Final = 0.1
"""The wait for company, as a part of the measured time of a commit."""


COMMIT_TIME_BUCKETS: Final = (
    0.0005,
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1.0,
    2.0,
    5.0,
)
"""Upper bounds, in seconds, by which commits are counted: from an SSD to a card near its end."""


class CommitWindow:
    """When the next commit begins.

    Args:
        enough: tells whether nobody else needs to come.

    Attributes:
        window: seconds between the beginnings of two commits, at least, while there is not enough;
            what comes after a pause waits for nobody.
        times: how long those took that changed anything.
    """

    def __init__(self, enough: Callable[[], bool]) -> None:
        self.min_interval = 0.0
        self.commit_times = Histogram(COMMIT_TIME_BUCKETS)
        self._enough = enough
        self._commit_time = 0.0
        self._began = -math.inf
        self._filled = asyncio.Event()

    def observe(self, seconds: float, *, wrote: bool) -> None:
        """Note how long a commit took, and whether anything was changed."""
        if wrote:
            self.commit_times.observe(seconds)
        self._commit_time += (seconds - self._commit_time) / 8

    def wake(self) -> None:
        """Let the group that waits go now, since there is enough."""
        self._filled.set()

    async def wait(self) -> None:
        """Wait for company: one round of the loop, on a fast disk and within the budget."""
        slow = self._commit_time > SLOW_COMMIT
        await asyncio.sleep(self._commit_time * SHARE if slow else 0.0)
        if self.min_interval:
            await self._until(self._began + self.min_interval)
            self._began = time.monotonic()

    async def _until(self, moment: float) -> None:
        self._filled.clear()
        left = moment - time.monotonic()
        if left > 0 and not self._enough():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._filled.wait(), left)
