"""How many values were at most as large as each of some bounds: all that is kept of many."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from itertools import accumulate


class Histogram:
    """Counts by bounds.

    Attributes:
        bounds: the upper ones, rising.
        total: the sum of all values.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.total = 0.0
        self._counts = [0] * (len(bounds) + 1)

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect.bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Yield each bound, infinity last, and how many values were no larger."""
        yield from zip((*self.bounds, float("inf")), accumulate(self._counts), strict=True)
