"""Which numbers of each lane came: a summary that completeness and availability are made of.

Numbers that follow each other are one row, an island, so that a day without a gap is a row for each
lane. Judges nothing.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from sync.reports.common import LANE
from sync.tables.summaries import Summary

SCHEMA: Final = StructType(
    [
        StructField("gateway", StringType()),
        StructField("epoch", StringType()),
        StructField("lane", StringType()),
        StructField("first_seq", LongType()),
        StructField("last_seq", LongType()),
        StructField("rows", LongType()),
        StructField("last_time", TimestampType()),
        StructField("last_kind", StringType()),
        StructField("last_name", StringType()),
    ]
)
"""Numbers from `first_seq` to `last_seq` that are all there, in `rows` rows: more of them than
numbers if some are there twice. Then when and what the last one's event was."""


def islands(events: DataFrame) -> DataFrame:
    """Give a row of `SCHEMA` and `day` for each island of a day."""
    lane = ["day", *LANE]
    order = Window.partitionBy(*lane).orderBy("seq")
    begins = F.when(F.col("seq") - F.lag("seq").over(order) <= 1, 0).otherwise(1)
    numbered = events.select(*lane, "seq", "time", "kind", "name", begins.alias("begins"))
    numbered = numbered.withColumn("island", F.sum("begins").over(order))
    return numbered.groupBy(*lane, "island").agg(
        F.min("seq").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        F.count(F.lit(1)).alias("rows"),
        *(F.max_by(name, "seq").alias(f"last_{name}") for name in ("time", "kind", "name")),
    )


def merged(ranges: DataFrame) -> DataFrame:
    """Make one of the ranges of a lane that overlap or follow each other.

    Takes and gives `LANE`, `first_seq` and `last_seq`.
    """
    order = Window.partitionBy(*LANE).orderBy("first_seq", "last_seq")
    reached = F.max("last_seq").over(order.rowsBetween(Window.unboundedPreceding, -1))
    begins = F.when(F.col("first_seq") - reached <= 1, 0).otherwise(1)
    numbered = ranges.select(*LANE, "first_seq", "last_seq", begins.alias("begins"))
    numbered = numbered.withColumn("island", F.sum("begins").over(order))
    whole = numbered.groupBy(*LANE, "island").agg(
        F.min("first_seq").alias("first_seq"), F.max("last_seq").alias("last_seq")
    )
    return whole.drop("island")


DAILY: Final = Summary("lanes", 1, SCHEMA, islands)
