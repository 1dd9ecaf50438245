"""Which stretch of time a plot shows: the one up to now, without what wrong clocks put elsewhere.

A gateway that begins its life in 2006, since nothing has told it the time yet, would make a week
of a fleet a line as thin as a hair. Tables have what is left out. Reads no table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

AHEAD_S: Final = 86_400.0
"""Seconds after now that are shown: clocks are ahead by a time zone, if nothing worse."""

GAP_S: Final = 30 * 86_400.0
"""Seconds without anything beyond which what was before may be left out."""

TIMES: Final = 3.0
"""How many times as long as all that is shown a gap has to be for that: a month off is part of a
year, but years are no part of a week."""


class Window(NamedTuple):
    """The first and the last moment that are shown, in seconds since 1970."""

    begin: float
    end: float

    def has(self, begin: float, end: float) -> bool:
        """Tell whether a span lies in it."""
        return self.begin <= begin and end <= self.end


def window(spans: Iterable[tuple[float, float]], now: float) -> Window:
    """Choose what is shown of `spans` (begin and end, in seconds since 1970) as of `now`.

    All of them where every one is later than now. Raises ValueError where there is none.
    """
    known = sorted(spans, key=lambda span: -span[1])
    if not known:
        msg = "there is nothing to show"
        raise ValueError(msg)
    past = [span for span in known if span[1] <= now + AHEAD_S] or known
    begin, end = past[0]
    for each in past[1:]:
        if begin - each[1] > max(GAP_S, TIMES * (end - begin)):
            break
        begin = min(begin, each[0])
    return Window(begin, end)
