"""Rules for how long commits are delayed, depending on the recent rate of writes to the card.

Each commit writes a few pages, however little it changes; units of work that share a commit share
that cost. The average rate, extrapolated to a day, is compared with the daily budget. Within the
budget, commits are not delayed. Above it the delay grows in proportion, up to its maximum at twice
the budget. Because a longer delay reduces the rate of writes, the delay settles in between.
"""

from __future__ import annotations

import math
from typing import Final

HOUR: Final = 3_600.0
"""Seconds over which the rate of writes is averaged: one busy minute counts little, several busy
hours count in full."""

DAY: Final = 86_400.0

FULL_DELAY: Final = 2.0
"""Rate of writes from which commits have the maximum delay, as a multiple of the budget."""


def updated_average(average: float, rate: float, seconds: float) -> float:
    """Return the exponential moving average of the rate of writes over the last `HOUR`.

    Args:
        average: the previous average, in bytes a second.
        rate: the rate since the previous average was computed, in bytes a second.
        seconds: the time since then.
    """
    return average + (rate - average) * -math.expm1(-max(seconds, 0.0) / HOUR)


def commit_wait(average: float, bytes_per_day: int, max_wait: float) -> float:
    """Return the seconds by which a commit is delayed, at most `max_wait`.

    `average` (`updated_average`) is in bytes a second; `bytes_per_day` is the budget, 0 for none.
    """
    if not bytes_per_day:
        return 0.0
    pressure = average * DAY / bytes_per_day
    return max_wait * min(max((pressure - 1) / (FULL_DELAY - 1), 0.0), 1.0)
