"""Report 4, duplicates: what was offered again and recognised, so that it counts once.

Devices offer a message again when they did not hear that it was taken; gateways do so with
segments. Both are as it should be: many of them tell of a bad link. Events that are in the tables
twice are another thing, and in `completeness`.
"""

from __future__ import annotations

from datetime import date
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from sync.reports.columns import number
from sync.reports.common import conform
from sync.reports.context import Given, Report
from sync.reports.notices import REPEATED
from sync.tables.partitions import union
from sync.tables.summaries import Summary

SCHEMA: Final = StructType(
    [
        StructField("gateway", StringType()),
        StructField("what", StringType()),
        StructField("source", StringType()),
        StructField("times", LongType()),
        StructField("since", TimestampType()),
        StructField("until", TimestampType()),
    ]
)
"""`what`: `offers` of the device `source`, that its gateway had already; or `segments` of the lane
`source`, that the centre had already. How often, first and last: offers by the gateway's clock when
it told of them, segments by their arrival."""

OFFERS: Final = StructType([field for field in SCHEMA if field.name != "what"])


def offers(events: DataFrame) -> DataFrame:
    """Give a row of `OFFERS` and `day` for each gateway and source that repeated offers."""
    told = events.where(
        (F.col("lane") == "system") & (F.col("kind") == "message") & (F.col("name") == REPEATED)
    )
    rows = told.withColumn("times", F.coalesce(number(F.col("value")), F.lit(1)))
    return rows.groupBy("day", "gateway", "source").agg(*_sums("time", "time"))


def duplicates(daily: DataFrame, segments: DataFrame, since: date | None = None) -> DataFrame:
    """Give a row of `SCHEMA` for each gateway and source, offers before segments.

    `daily` is `DAILY`; with `since`, a day in UTC, segments that arrived before it are left out.
    """
    again = segments.where(F.col("fate") == "duplicate")
    if since is not None:
        again = again.where(F.col("arrived") >= F.lit(since).cast("timestamp"))
    rows = again.withColumns({"source": F.col("lane"), "times": F.lit(1)})
    of_segments = rows.groupBy("gateway", "source").agg(*_sums("arrived", "arrived"))
    of_offers = daily.groupBy("gateway", "source").agg(*_sums("since", "until"))
    both = union(
        of_offers.withColumn("what", F.lit("offers")),
        of_segments.withColumn("what", F.lit("segments")),
    )
    return conform(both, SCHEMA).orderBy("gateway", "what", "source")


def _sums(first: str, last: str) -> list[Column]:
    return [
        F.sum("times").cast("long").alias("times"),
        F.min(first).alias("since"),
        F.max(last).alias("until"),
    ]


def _make(given: Given) -> DataFrame:
    return duplicates(given.daily(DAILY), given.segments(), given.since)


DAILY: Final = Summary("duplicates", 1, OFFERS, offers)

REPORT: Final = Report("duplicates", SCHEMA, (DAILY,), _make)
