"""Daily summary: the ranges of event numbers that arrived, by lane.

A gateway numbers the events of each lane without gaps, so a day without a loss is one row for each
lane.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from sync.reports.shared.frames import INTEGER, LANE, TEXT, TIME, numbered, schema
from sync.tables.summaries import Summary

RANGES: Final = schema(
    gateway=TEXT,
    epoch=TEXT,
    lane=TEXT,
    first_seq=INTEGER,
    last_seq=INTEGER,
    rows=INTEGER,
    last_time=TIME,
    last_kind=TEXT,
    last_name=TEXT,
)
"""Consecutive numbers from `first_seq` to `last_seq`, in `rows` rows (more than numbers if some are
duplicated), and the time, kind and name of the last event."""


def ranges(events: DataFrame) -> DataFrame:
    """Compute the rows of `RANGES` and the `day` of each; no range spans two days."""
    lane = ["day", *LANE]
    order = Window.partitionBy(*lane).orderBy("seq")
    adjacent = F.col("seq") - F.lag("seq").over(order) <= 1
    found = numbered(events, adjacent, order, "range")
    return found.groupBy(*lane, "range").agg(
        F.min("seq").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        F.count(F.lit(1)).alias("rows"),
        *(F.max_by(name, "seq").alias(f"last_{name}") for name in ("time", "kind", "name")),
    )


def merge_ranges(rows: DataFrame) -> DataFrame:
    """Merge the ranges of a lane that overlap or are adjacent.

    Takes and returns the columns of `LANE`, `first_seq` and `last_seq`.
    """
    order = Window.partitionBy(*LANE).orderBy("first_seq", "last_seq")
    reached = F.max("last_seq").over(order.rowsBetween(Window.unboundedPreceding, -1))
    adjacent = F.col("first_seq") - reached <= 1
    found = numbered(rows, adjacent, order, "range")
    merged = found.groupBy(*LANE, "range").agg(
        F.min("first_seq").alias("first_seq"), F.max("last_seq").alias("last_seq")
    )
    return merged.drop("range")


DAILY: Final = Summary("lanes", 1, RANGES, ranges)
