"""What the tables hold, counted: events by lane and kind, and when they happened.

Judges nothing; it is what the other reports are held against.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from sync.reports.common import conform
from sync.reports.context import Report
from sync.reports.window import window
from sync.tables.summaries import Summary

TOTALS: Final = StructType(
    [
        StructField("lane", StringType()),
        StructField("kind", StringType()),
        StructField("events", LongType()),
    ]
)
"""How many events the fleet sent, by lane and kind."""

ACTIVITY: Final = StructType(
    [
        StructField("begin", LongType()),
        StructField("lane", StringType()),
        StructField("events", LongType()),
    ]
)
"""How many events happened in the time that begins at `begin`, in seconds since 1970."""

STEPS_S: Final = (1, 10, 60, 600, 3_600, 21_600, 86_400, 604_800, 2_592_000)
"""Lengths of time that activity is counted by, in seconds; see `step_for`."""

BARS: Final = 96
"""Times that activity is counted in, at most, where `STEPS_S` allow: what a plot can show."""

_DAY_S: Final = 86_400

COUNTS: Final = StructType(
    [
        StructField("gateway", StringType()),
        StructField("lane", StringType()),
        StructField("kind", StringType()),
        StructField("begin", LongType()),
        StructField("step_s", LongType()),
        StructField("events", LongType()),
    ]
)
"""How many events of a gateway happened in the `step_s` seconds from `begin`, in seconds since
1970. The step is what suits the time over which the gateway's events of that day are spread."""


def counts(events: DataFrame) -> DataFrame:
    """Give a row of `COUNTS` and `day` for each time of a day with events."""
    at = F.unix_seconds("time")
    spread = events.groupBy("day", "gateway").agg((F.max(at) - F.min(at)).alias("span"))
    steps = spread.select("day", "gateway", _step(F.col("span")).alias("step_s"))
    timed = events.select("day", "gateway", "lane", "kind", at.alias("at"))
    timed = timed.join(steps, on=["day", "gateway"], how="inner")
    begin = (F.floor(F.col("at") / F.col("step_s")) * F.col("step_s")).alias("begin")
    rows = timed.groupBy("day", "gateway", "lane", "kind", begin, "step_s")
    return rows.agg(F.count(F.lit(1)).alias("events"))


def _step(span: Column) -> Column:
    """Choose as `step_for` does."""
    chosen = F.lit(STEPS_S[-1])
    for step in reversed(STEPS_S):
        chosen = F.when(span / step <= BARS, step).otherwise(chosen)
    return chosen


def totals(daily: DataFrame) -> DataFrame:
    """Give a row of `TOTALS` for each lane and kind that `DAILY` has rows of."""
    rows = daily.groupBy("lane", "kind").agg(F.sum("events").alias("events"))
    return conform(rows, TOTALS).orderBy("lane", "kind")


def activity(daily: DataFrame, step_s: int) -> DataFrame:
    """Give a row of `ACTIVITY` for each time of `step_s` seconds and each lane with events.

    `step_s` is at least that of each row of `daily`.
    """
    begin = (F.floor(F.col("begin") / step_s) * step_s).alias("begin")
    rows = daily.groupBy(begin, "lane").agg(F.sum("events").alias("events"))
    return conform(rows, ACTIVITY).orderBy("begin", "lane")


def gateway_activity(daily: DataFrame, step_s: int) -> DataFrame:
    """Give what `activity` does, for each gateway apart: its column `gateway` comes first."""
    begin = (F.floor(F.col("begin") / step_s) * step_s).alias("begin")
    rows = daily.groupBy("gateway", begin, "lane").agg(F.sum("events").alias("events"))
    schema = StructType([StructField("gateway", StringType()), *ACTIVITY.fields])
    return conform(rows, schema).orderBy("gateway", "begin", "lane")


class Shown(NamedTuple):
    """What a plot of activity shows: from when to when (`begin`s), and in which steps of time."""

    begin: int
    end: int
    step_s: int

    def of(self, daily: DataFrame) -> DataFrame:
        """Give the rows of `daily` that are shown."""
        return daily.where(F.col("begin").between(self.begin, self.end))


def shown(daily: DataFrame, now: float) -> Shown:
    """Choose what a plot of `daily` shows as of `now`, in seconds since 1970 (`reports.window`)."""
    day = F.floor(F.col("begin") / _DAY_S)
    begin, end = F.min("begin").alias("begin"), F.max("begin").alias("end")
    days = daily.groupBy(day).agg(begin, end, F.max("step_s").alias("step_s")).collect()
    if not days:
        return Shown(0, 0, STEPS_S[0])
    seen = window(((row["begin"], row["end"]) for row in days), now)
    least = max(row["step_s"] for row in days if seen.has(row["begin"], row["end"]))
    return Shown(int(seen.begin), int(seen.end), max(step_for(seen.end - seen.begin), least))


def step_for(span_s: float) -> int:
    """Choose the shortest of `STEPS_S` that divides `span_s` seconds into at most `BARS`."""
    return next((step for step in STEPS_S if span_s / step <= BARS), STEPS_S[-1])


DAILY: Final = Summary("totals", 1, COUNTS, counts)

REPORT: Final = Report("totals", TOTALS, (DAILY,), lambda given: totals(given.daily(DAILY)))
