"""Bounds of plausible times and durations by a gateway's clock: beyond them, the clock was wrong.

A board without a battery starts in some past year until its clock is set. Ages and lags that are
computed from such times are not known.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from sync.reports.shared.window import AHEAD_S

EARLIEST: Final = datetime(2025, 1, 1, tzinfo=UTC)
"""No gateway ran Fieldpost earlier: an earlier time is that of a clock that was not set."""

LONGEST_S: Final = 366 * 86_400.0
"""Seconds of the longest plausible lag, latency, age or silence: no backlog of a year fits a card,
and a clock that is not set is usually wrong by years."""


def plausible_times(as_of: datetime) -> tuple[datetime, datetime]:
    """Return the earliest and the latest plausible time in a report as of `as_of`."""
    return EARLIEST, as_of + timedelta(seconds=AHEAD_S)
