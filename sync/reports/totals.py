"""Totals: how many events the tables hold, by lane and kind, and when they happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sync.reports.shared import column
from sync.reports.shared.findings import Findings
from sync.reports.shared.formats import count
from sync.reports.shared.frames import GATEWAY_ROWS, INTEGER, TEXT, schema
from sync.reports.shared.report import (
    Problem,
    ProblemKind,
    Report,
    ReportContext,
    Series,
    Table,
)
from sync.reports.shared.window import window
from sync.segment import KINDS
from sync.tables.partitions import conform
from sync.tables.summaries import Summary

OTHER: Final = "(other)"
"""The kind of all events whose kind is not one of `KINDS`, however many kinds a gateway invents."""

TABLE: Final = Table(
    order=150,
    title="Events by lane and kind",
    about=(
        "All events that are stored here. A gateway numbers its events separately in three lanes: "
        "readings, logs and system events. Kinds that this version does not know are one row, "
        f"{OTHER}. Times in the plot are those of the gateways' clocks."
    ),
    columns=(
        column.text("lane", "Lane"),
        column.text("kind", "Kind"),
        column.number("events", "Events"),
    ),
)
"""Number of events that the fleet sent, by lane and kind."""

COUNTS: Final = schema(
    gateway=TEXT, lane=TEXT, kind=TEXT, begin=INTEGER, step_s=INTEGER, events=INTEGER
)
"""Number of a gateway's events in the `step_s` seconds from `begin` (seconds since 1970).
The step suits the time over which the gateway's events of one day are spread."""

ACTIVITY: Final = schema(gateway=TEXT, begin=INTEGER, lane=TEXT, step_s=INTEGER, events=INTEGER)
"""Number of a gateway's events in the `step_s` seconds from `begin` (seconds since 1970);
all rows have the same step."""

STEPS_S: Final = (1, 10, 60, 600, 3_600, 21_600, 86_400, 604_800, 2_592_000)
"""The possible lengths, in seconds, of the steps of time in which events are counted."""

BARS: Final = 96
"""Maximum bars (steps of time) in a plot, unless even the longest of `STEPS_S` makes more."""

_DAY_S: Final = 86_400


def counts(events: DataFrame) -> DataFrame:
    """Compute the rows of `COUNTS` and the `day` of each."""
    at = F.unix_seconds("time")
    # events with implausible times have the day of their arrival; their step is their own
    own_day = (F.to_date("time") == F.col("day")).alias("own_day")
    timed = events.select("day", "gateway", "lane", "kind", at.alias("at"), own_day)
    by = ["day", "gateway", "own_day"]
    spread = timed.groupBy(*by).agg((F.max("at") - F.min("at")).alias("span"))
    steps = spread.select(*by, _step(F.col("span")).alias("step_s"))
    timed = timed.join(steps, on=by, how="inner")
    begin = (F.floor(F.col("at") / F.col("step_s")) * F.col("step_s")).alias("begin")
    rows = timed.groupBy("day", "gateway", "lane", "kind", begin, "step_s")
    return rows.agg(F.count(F.lit(1)).alias("events"))


def _step(span: Column) -> Column:
    """Return the step for a column of seconds, chosen as in `step_for`."""
    chosen = F.lit(STEPS_S[-1])
    for step in reversed(STEPS_S):
        chosen = F.when(span / step <= BARS, step).otherwise(chosen)
    return chosen


def step_for(span_s: float) -> int:
    """Return the shortest of `STEPS_S` that divides `span_s` seconds into at most `BARS` steps, or
    the longest one if none does."""
    return next((step for step in STEPS_S if span_s / step <= BARS), STEPS_S[-1])


def totals(daily: DataFrame) -> DataFrame:
    """Compute a row of `TABLE` for each lane and kind in `daily` (rows of `COUNTS`)."""
    kind = F.when(F.col("kind").isin(*KINDS), F.col("kind")).otherwise(OTHER).alias("kind")
    rows = daily.groupBy("lane", kind).agg(F.sum("events").alias("events"))
    return conform(rows, TABLE.schema).orderBy("lane", "kind")


class Period(NamedTuple):
    """Period of a plot of activity: first and last `begin` (see `COUNTS`), and seconds per step."""

    begin: int
    end: int
    step_s: int


def period_of(daily: DataFrame, now: float) -> Period:
    """Choose the period to plot from `daily` (rows of `COUNTS`) at `now` (seconds since 1970)."""
    day = F.floor(F.col("begin") / _DAY_S)
    begin, end = F.min("begin").alias("begin"), F.max("begin").alias("end")
    days = daily.groupBy(day).agg(begin, end, F.max("step_s").alias("step_s")).collect()
    seen = window(((row["begin"], row["end"]) for row in days), now)
    if seen is None:
        return Period(0, 0, STEPS_S[0])
    least = max(row["step_s"] for row in days if seen.contains(row["begin"], row["end"]))
    return Period(int(seen.begin), int(seen.end), max(step_for(seen.end - seen.begin), least))


def activity(daily: DataFrame, period: Period) -> DataFrame:
    """Compute the rows of `ACTIVITY` of a period from `daily` (rows of `COUNTS`)."""
    step = period.step_s
    within = daily.where(F.col("begin").between(period.begin, period.end))
    begin = (F.floor(F.col("begin") / step) * step).alias("begin")
    rows = within.groupBy("gateway", begin, "lane").agg(F.sum("events").alias("events"))
    timed = rows.withColumn("step_s", F.lit(step))
    return conform(timed, ACTIVITY).orderBy("gateway", "begin", "lane")


def _activity(context: ReportContext) -> DataFrame:
    daily = context.daily(DAILY)
    return activity(daily, period_of(daily, context.as_of.timestamp()))


def of_fleet(activity: DataFrame) -> DataFrame:
    """Add up the rows of `ACTIVITY` of all gateways, by time and lane."""
    return activity.groupBy("begin", "lane", "step_s").agg(F.sum("events").alias("events"))


_CROWDED: Final = ProblemKind("crowded", 235, "notice", "devices use too many names")

_NAMED: Final = ("sensors", "anomalies", "notices", "duplicates", "queues")
"""The reports that show at most `GATEWAY_ROWS` rows of a gateway."""


def problems(findings: Findings) -> Iterator[Problem]:
    """Find gateways that have more rows in a table than are shown."""
    for name in _NAMED:
        for gateway, rows in sorted(Counter(row["gateway"] for row in findings[name]).items()):
            if rows >= GATEWAY_ROWS:
                yield _CROWDED.of(
                    gateway,
                    f"The table `{name}` shows only the first {count(GATEWAY_ROWS)} rows of this "
                    "gateway.",
                    "Find out which device uses so many names: `fieldpost events` at the gateway "
                    "lists what devices send.",
                    name,
                )


DAILY: Final = Summary("totals", 1, COUNTS, counts)

REPORT: Final = Report(
    "totals",
    (DAILY,),
    lambda context: totals(context.daily(DAILY)),
    TABLE,
    series=(Series("activity", (DAILY,), _activity, of_fleet),),
    problem_kinds=(_CROWDED,),
    problems=problems,
)
