"""Runs every report over the tables and brings home their rows, which are few by then.

Renders nothing. Rows are plain dicts; times are aware datetimes in UTC.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Final

from pyspark.sql import DataFrame

from sync.reports import (
    anomalies,
    availability,
    clocks,
    completeness,
    delivery,
    drawn,
    duplicates,
    growth,
    heartbeats,
    lag,
    notices,
    outages,
    quarantine,
    queues,
    refusals,
    sensors,
    versions,
    volume,
)
from sync.reports.context import Given, Report
from sync.tables.partitions import in_place
from sync.tables.summaries import Summary

Rows = list[dict[str, Any]]

REPORTS: Final[tuple[Report, ...]] = (
    availability.REPORT,
    outages.REPORT,
    heartbeats.REPORT,
    completeness.REPORT,
    delivery.REPORT,
    lag.REPORT,
    duplicates.REPORT,
    queues.REPORT,
    refusals.REPORT,
    notices.REPORT,
    sensors.REPORT,
    anomalies.REPORT,
    clocks.REPORT,
    versions.REPORT,
    growth.REPORT,
    volume.REPORT,
    quarantine.REPORT,
)
"""All reports, each the rows of one field of `Findings`. What they ask for is kept by day."""

DRAWN: Final[dict[str, tuple[Report, ...]]] = {
    "queues": (drawn.QUEUE_DEPTHS,),
    "anomalies": (drawn.SENSOR_SERIES,),
    "clocks": (drawn.CLOCK_OFFSETS,),
}
"""What is drawn beside a report and has no table, by the report's name; made of its summaries."""

AT_ONCE: Final = 4
"""Reports that are computed at once: most are small, and much of what they take is planning."""


@dataclass(frozen=True)
class Findings:
    """All rows of all reports, as things stood at `as_of`.

    Of what was asked for: the days from `since` on (UTC), or all; these `gateways`, or all. `days`
    counts those that were read as they were kept, computed anew, and lost (`summaries.DayCount`).
    `step_s` is the length of time that `activity` counts by; `refused` counts files by their fate.
    Rows after it are drawn and not tabled, times (`at`, `begin`) in seconds since 1970:
    `gateway_activity` is `activity` with a `gateway`; `queue_depths` has `gateway`, `queue`, `at`
    and `depth`; `sensor_series` has `gateway`, `source`, `sensor`, `at`, `mean`, `low` and `high`;
    `clock_offsets` has `gateway`, `at` and `skew_s`.
    """

    as_of: datetime
    since: date | None = None
    gateways: tuple[str, ...] | None = None
    days: dict[str, int] = field(default_factory=dict)
    segments: int = 0
    availability: Rows = field(default_factory=list)
    outages: Rows = field(default_factory=list)
    completeness: Rows = field(default_factory=list)
    delivery: Rows = field(default_factory=list)
    lag: Rows = field(default_factory=list)
    notices: Rows = field(default_factory=list)
    duplicates: Rows = field(default_factory=list)
    queues: Rows = field(default_factory=list)
    refusals: Rows = field(default_factory=list)
    sensors: Rows = field(default_factory=list)
    anomalies: Rows = field(default_factory=list)
    clocks: Rows = field(default_factory=list)
    versions: Rows = field(default_factory=list)
    growth: Rows = field(default_factory=list)
    totals: Rows = field(default_factory=list)
    quarantine: Rows = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    stretches: Rows = field(default_factory=list)
    activity: Rows = field(default_factory=list)
    step_s: int = 1
    gateway_activity: Rows = field(default_factory=list)
    queue_depths: Rows = field(default_factory=list)
    sensor_series: Rows = field(default_factory=list)
    clock_offsets: Rows = field(default_factory=list)


def summaries_of(reports: Iterable[Report] = REPORTS) -> list[Summary]:
    """Name the summaries that these reports are made of, each once."""
    named = {each.name: each for report in reports for each in report.summaries}
    named[volume.DAILY.name] = volume.DAILY  # for what is drawn of it, whatever is reported
    return list(named.values())


def gather(given: Given, reports: Iterable[Report] = REPORTS) -> Findings:
    """Run `reports` over what is given: `given.kept` has all of `summaries_of(reports)`."""
    daily = given.daily(volume.DAILY)
    with in_place(given.kept.spark), ThreadPoolExecutor(AT_ONCE) as pool:
        when = pool.submit(volume.shown, daily, given.as_of.timestamp())
        tables = [table for each in reports for table in (each, *DRAWN.get(each.name, ()))]
        made = {each.name: pool.submit(_rows, each, given) for each in tables}
        refused = pool.submit(_refused, given)
        accepted = pool.submit(_accepted, given)
        drawn, step_s = when.result().of(daily), when.result().step_s
        activity = pool.submit(rows_of, volume.activity(drawn, step_s))
        apart = pool.submit(rows_of, volume.gateway_activity(drawn, step_s))
        return Findings(
            as_of=given.as_of,
            since=given.since,
            gateways=given.gateways,
            days=given.kept.days._asdict(),
            segments=accepted.result(),
            refused=refused.result(),
            activity=activity.result(),
            gateway_activity=apart.result(),
            step_s=step_s,
            **{name: rows.result() for name, rows in made.items()},
        )


def rows_of(report: DataFrame) -> Rows:
    """Collect a report."""
    rows: Rows = report.toArrow().to_pylist()
    return rows


def _rows(report: Report, given: Given) -> Rows:
    return rows_of(report.make(given))


def _accepted(given: Given) -> int:
    return given.segments().where("fate = 'accepted'").count()


def _refused(given: Given) -> dict[str, int]:
    rows = rows_of(quarantine.quarantined(given.segments()))
    return {row["fate"]: row["files"] for row in rows}
