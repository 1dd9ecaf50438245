"""The pace below which a body is given up. Counts, and knows no HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable


class MinThroughput:
    """At least `rate` bytes a second of each stretch of `window_s` seconds or a little more.

    A stretch ends with what comes after its time: that nothing comes at all is not seen here.
    """

    def __init__(
        self, rate: float, window_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._window_s = window_s
        self._clock = clock
        self._since = clock()
        self._came = 0

    def came(self, size: int) -> bool:
        """Count `size` bytes; tell whether the pace is kept."""
        self._came += size
        lasted = self._clock() - self._since
        if lasted < self._window_s:
            return True
        kept = self._came >= self._rate * lasted
        self._since += lasted
        self._came = 0
        return kept
