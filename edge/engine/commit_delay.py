"""For how long commits wait for each other, by what was written to the card of late.

A commit costs a few pages however little is in it; units that share one share that cost. While less
is written than the budget has room for, nothing waits. Beyond, the wait grows in proportion, up to
its bound at twice the budget; since it makes what is written less, it settles in between. What was
written is measured elsewhere.
"""

from __future__ import annotations

import math
from typing import Final

HOUR: Final = 3_600.0
"""Seconds over which what is written is averaged: a busy minute counts for a sixtieth of what it
writes, and a shift that is busy every day for all of it."""

DAY: Final = 86_400.0

FULL: Final = 2.0
"""Times the budget at which commits wait for as long as they may."""


def updated_average(average: float, rate: float, seconds: float) -> float:
    """Return the average of the last `HOUR`, by which what is older counts less and less.

    Args:
        average: what it was, in bytes a second.
        rate: what was written since, in bytes a second.
        seconds: for how long that was.
    """
    return average + (rate - average) * -math.expm1(-max(seconds, 0.0) / HOUR)


def commit_wait(average: float, bytes_per_day: int, most: float) -> float:
    """Return how many seconds a commit waits for others, `most` at most.

    `average` is what is written, in bytes a second; a budget of 0 is none.
    """
    if not bytes_per_day:
        return 0.0
    pressure = average * DAY / bytes_per_day
    return most * min(max((pressure - 1) / (FULL - 1), 0.0), 1.0)
