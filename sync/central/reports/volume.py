"""What the tables hold, counted: events by lane and kind, and when they happened.

Judges nothing; it is what the other reports are held against.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from sync.central.reports.common import conform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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


def totals(events: DataFrame) -> DataFrame:
    """Give a row of `TOTALS` for each lane and kind."""
    rows = events.groupBy("lane", "kind").agg(F.count(F.lit(1)).alias("events"))
    return conform(rows, TOTALS).orderBy("lane", "kind")


def activity(events: DataFrame, step_s: int) -> DataFrame:
    """Give a row of `ACTIVITY` for each time of `step_s` seconds and each lane with events."""
    begin = (F.floor(F.unix_seconds("time") / step_s) * step_s).alias("begin")
    rows = events.groupBy(begin, "lane").agg(F.count(F.lit(1)).alias("events"))
    return conform(rows, ACTIVITY).orderBy("begin", "lane")


def step_for(span_s: float) -> int:
    """Choose the shortest of `STEPS_S` that divides `span_s` seconds into at most `BARS`."""
    return next((step for step in STEPS_S if span_s / step <= BARS), STEPS_S[-1])
