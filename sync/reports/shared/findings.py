"""The computed rows of all reports, independent of Spark and of how they are shown."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, tzinfo
from math import copysign, isfinite, isnan
from typing import Any, Final

from sync.reports.shared import formats
from sync.reports.shared.plausible import plausible_times

Row = dict[str, Any]
Rows = list[Row]

LARGEST: Final = sys.float_info.max
"""The number that replaces infinity, which JSON cannot express."""


@dataclass(frozen=True)
class Findings:
    """The rows of every report and of every series, as of one moment.

    `tables` maps the name of a report or of a series to its rows: plain dicts with aware datetimes
    in UTC. `since` is the first day (UTC) that was asked for, `gateways` the gateways that were
    asked for; None means all. `days` counts how each day was obtained (`summaries.DayCount`).
    `zone` is the time zone of times in texts and on pages. `is_of_fleet`: the rows that only the
    page of one gateway shows are left out.
    """

    as_of: datetime
    tables: Mapping[str, Rows] = field(default_factory=dict)
    since: date | None = None
    gateways: tuple[str, ...] | None = None
    days: dict[str, int] = field(default_factory=dict)
    zone: tzinfo = UTC
    is_of_fleet: bool = False

    def __getitem__(self, name: str) -> Rows:
        """Return the rows of a report or series; an empty list if there are none."""
        return self.tables.get(name, [])

    def moment(self, value: datetime | None) -> str:
        """Format a time for a sentence, with its zone; None or implausible: `an unknown time`."""
        earliest, latest = plausible_times(self.as_of)
        if value is None or not earliest <= value <= latest:
            return "an unknown time"
        return formats.named_moment(value, self.zone)

    def finite(self) -> Findings:
        """Replace infinity by `LARGEST` and NaN by None in every row.

        Gateways may send any number, and the sum of the largest numbers is infinite.
        """
        tables = {
            report: [{name: _finite(value) for name, value in row.items()} for row in rows]
            for report, rows in self.tables.items()
        }
        return replace(self, tables=tables)


def _finite(value: Any) -> Any:
    if not isinstance(value, float) or isfinite(value):
        return value
    return None if isnan(value) else copysign(LARGEST, value)
