"""The period that a plot shows. It leaves out times that are probably from wrong clocks.

A gateway whose clock starts in 2006 would otherwise compress a week of the fleet into one pixel.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

AHEAD_S: Final = 86_400.0
"""Seconds after now beyond which times are not shown. A wrong time zone adds only some hours."""

GAP_S: Final = 30 * 86_400.0
"""Seconds without data above which earlier data are left out, if `GAP_FACTOR` is exceeded, too."""

GAP_FACTOR: Final = 3.0
"""The data before a gap are left out if the gap is longer than this many times the period after it.
So a plot of a year can contain a gap of a month, but a plot of a week no gap of years."""


class Window(NamedTuple):
    """The period that a plot shows, in seconds since 1970."""

    begin: float
    end: float

    def contains(self, begin: float, end: float) -> bool:
        """Return whether a span lies within the window."""
        return self.begin <= begin and end <= self.end


def window(spans: Iterable[tuple[float, float]], now: float) -> Window | None:
    """Choose the period that a plot of `spans` shows at `now`; all times in seconds since 1970.

    If every span is later than now, all are shown. Returns None if there is no span.
    """
    known = sorted(spans, key=lambda span: -span[1])
    if not known:
        return None
    past = [span for span in known if span[1] <= now + AHEAD_S] or known
    begin, end = past[0]
    for each in past[1:]:
        if begin - each[1] > max(GAP_S, GAP_FACTOR * (end - begin)):
            break
        begin = min(begin, each[0])
    return Window(begin, end)
