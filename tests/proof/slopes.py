"""The slope of a series, by the estimator of Theil and Sen, with an interval of confidence.

The estimate is the median of the slopes between all pairs of points. The interval has the slopes
whose ranks are as far from the median as Kendall's statistic may be by chance (P. K. Sen, Estimates
of the regression coefficient based on Kendall's tau, 1968). The points are medians of blocks of
samples, because samples that follow each other are alike, which the interval does not expect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from statistics import NormalDist, median
from typing import Final, NamedTuple

POINTS: Final = 40
"""Blocks into which a series is divided."""

CONFIDENCE: Final = 0.99


class Slope(NamedTuple):
    """An estimated slope and its interval of confidence."""

    estimate: float
    low: float
    high: float

    @property
    def is_flat(self) -> bool:
        """Return whether the interval contains 0."""
        return self.low <= 0 <= self.high


def slope(times: Sequence[float], values: Sequence[float]) -> Slope:
    """Estimate the slope of a series with increasing times. Raises ValueError for fewer than three
    samples."""
    if len(times) < 3:
        raise ValueError("a slope needs three samples")
    length = max(1, len(times) // POINTS)
    starts = range(0, len(times), length)
    points = [(median(times[n : n + length]), median(values[n : n + length])) for n in starts]
    count = len(points)
    slopes = sorted((b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(points, 2))
    deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    ranks = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * deviation
    low = max(math.floor((len(slopes) - ranks) / 2), 0)
    high = min(math.ceil((len(slopes) + ranks) / 2), len(slopes) - 1)
    return Slope(median(slopes), slopes[low], slopes[high])
