"""Runs every report over the tables and brings home their rows, which are few by then.

Renders nothing. Rows are plain dicts; times are aware datetimes in UTC.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from sync.central.reports import notices
from sync.central.reports.availability import availability, stretches
from sync.central.reports.completeness import completeness
from sync.central.reports.delivery import delivery
from sync.central.reports.lag import lag
from sync.central.reports.quarantine import quarantine, quarantined
from sync.central.reports.volume import activity, step_for, totals

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame

Rows = list[dict[str, Any]]

STRETCHES: Final = 5_000
"""Stretches of availability that are brought home for the plot, the latest ones: more are no wider
than a pixel each."""


@dataclass(frozen=True)
class Findings:
    """All rows of all reports, as things stood at `as_of`.

    `step_s` is the length of time that `activity` counts by; `refused` counts files by their fate.
    Rows after it are drawn and not tabled, times (`at`, `begin`) in seconds since 1970:
    `gateway_activity` is `activity` with a `gateway`; `queue_depths` has `gateway`, `queue`, `at`
    and `depth`; `sensor_series` has `gateway`, `source`, `sensor`, `at`, `mean`, `low` and `high`;
    `clock_offsets` has `gateway`, `at` and `skew_s`.
    """

    as_of: datetime
    segments: int = 0
    availability: Rows = field(default_factory=list)
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


def gather(events: DataFrame, segments: DataFrame, as_of: datetime) -> Findings:
    """Run every report over `events` and `segments` (`sync.central.tables`)."""
    step = step_for(_span_s(events))
    latest = stretches(events).orderBy(F.desc("begin"), "gateway").limit(STRETCHES)
    return Findings(
        as_of=as_of,
        segments=segments.where(F.col("fate") == "accepted").count(),
        availability=rows_of(availability(events, segments, as_of)),
        completeness=rows_of(completeness(events, segments)),
        delivery=rows_of(delivery(events)),
        lag=rows_of(lag(events)),
        notices=rows_of(notices.notices(notices.DAILY.compute(events))),
        totals=rows_of(totals(events)),
        quarantine=rows_of(quarantine(segments)),
        refused={row["fate"]: row["files"] for row in rows_of(quarantined(segments))},
        stretches=rows_of(latest.orderBy("gateway", "begin")),
        activity=rows_of(activity(events, step)),
        step_s=step,
    )


def rows_of(report: DataFrame) -> Rows:
    """Collect a report."""
    rows: Rows = report.toArrow().to_pylist()
    return rows


def _span_s(events: DataFrame) -> float:
    """Give the seconds from the first event to the last; 0 when there is none."""
    length = F.max(F.unix_seconds("time")) - F.min(F.unix_seconds("time"))
    row = events.agg(F.coalesce(length, F.lit(0)).alias("span")).collect()[0]
    return float(row["span"])
