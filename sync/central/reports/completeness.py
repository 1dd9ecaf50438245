"""Report 2, completeness: of every lane of every epoch, what came, what did not, and why.

Numbers run from 1 without a gap, so what is missing can be counted: a prefix, a hole, and what a
gateway says it dropped. What comes after the last number that arrived cannot be known; whether the
epoch was closed says if anything may. **Unexplained** is the number that must be zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from sync.central.reports.common import LANE, NO_DIGEST, conform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.window import WindowSpec

SCHEMA: Final = StructType(
    [
        StructField("gateway", StringType()),
        StructField("epoch", StringType()),
        StructField("lane", StringType()),
        StructField("state", StringType()),
        StructField("since", TimestampType()),
        StructField("first_seq", LongType()),
        StructField("last_seq", LongType()),
        StructField("expected", LongType()),
        StructField("received", LongType()),
        StructField("missing", LongType()),
        StructField("declared", LongType()),
        StructField("unexplained", LongType()),
        StructField("duplicates", LongType()),
        StructField("repeated_segments", LongType()),
        StructField("forks", LongType()),
        StructField("chain_breaks", LongType()),
    ]
)
"""`state` of the epoch: `closed` (a clean stop was its last event, `since` then), `open` (the last
event came at `since`) or `torn` (open, and a later epoch has begun). `expected` counts from 1 to
the last number that arrived; `missing` of these did not come, `declared` of those were dropped.
`duplicates` are events that are in the tables more than once; `repeated_segments` were recognised
and left out."""

_COUNTS: Final = (
    "expected",
    "received",
    "missing",
    "declared",
    "unexplained",
    "duplicates",
    "repeated_segments",
    "forks",
    "chain_breaks",
)


def completeness(events: DataFrame, segments: DataFrame) -> DataFrame:
    """Give a row of `SCHEMA` for each lane of each epoch of each gateway, in that order."""
    accepted = segments.where(F.col("fate") == "accepted").withColumns(
        {
            "end_before": F.lag("last_seq").over(_in_lane()),
            "digest_before": F.lag("digest").over(_in_lane()),
        }
    )
    rows = _refused(segments)
    for part in (_received(events), _chains(accepted), _declared(accepted)):
        rows = rows.join(part, on=[*LANE], how="left")
    missing = F.col("expected") - F.col("received")
    counted = (
        rows.withColumn("expected", F.coalesce("last_seq", F.lit(0)))
        .fillna(0, subset=["received", "rows", "declared", "chain_breaks"])
        .withColumn("missing", missing)
        .withColumn("unexplained", missing - F.col("declared"))
        .withColumn("duplicates", F.col("rows") - F.col("received"))
    )
    return conform(_with_state(counted, events), SCHEMA).orderBy(*LANE)


def _in_lane() -> WindowSpec:
    return Window.partitionBy(*LANE).orderBy("first_seq")


def _refused(segments: DataFrame) -> DataFrame:
    """Name every lane that anything is known of, and count what was not taken."""
    known = segments.where(F.col("gateway").isNotNull())
    return known.groupBy(*LANE).agg(
        F.count_if(F.col("fate") == "duplicate").alias("repeated_segments"),
        F.countDistinct(F.when(F.col("fate") == "fork", F.col("digest"))).alias("forks"),
    )


def _received(events: DataFrame) -> DataFrame:
    return events.groupBy(*LANE).agg(
        F.min("seq").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        F.count(F.lit(1)).alias("rows"),
        F.countDistinct("seq").alias("received"),
        F.max_by("time", "seq").alias("last_time"),
    )


def _chains(accepted: DataFrame) -> DataFrame:
    """Count segments that follow another without a gap, and do not carry its digest."""
    adjacent = F.col("first_seq") == F.coalesce("end_before", F.lit(0)) + 1
    broken = F.col("previous") != F.coalesce("digest_before", F.lit(NO_DIGEST))
    return accepted.groupBy(*LANE).agg(F.count_if(adjacent & broken).alias("chain_breaks"))


def _declared(accepted: DataFrame) -> DataFrame:
    """Count the numbers that lie in a hole between segments and in a range declared dropped."""
    holes = accepted.select(
        *LANE,
        (F.coalesce("end_before", F.lit(0)) + 1).alias("hole_first"),
        (F.col("first_seq") - 1).alias("hole_last"),
    ).where("hole_first <= hole_last")
    both = holes.join(_dropped(accepted), on=[*LANE], how="inner")
    first, last = F.greatest("hole_first", "first"), F.least("hole_last", "last")
    shared = F.greatest(last - first + 1, F.lit(0))
    return both.groupBy(*LANE).agg(F.sum(shared).alias("declared"))


def _dropped(accepted: DataFrame) -> DataFrame:
    """Give the ranges declared dropped, those that overlap being made one."""
    told = accepted.select(*LANE, F.explode("dropped").alias("range"))
    ranges = told.select(
        *LANE, F.col("range.first_seq").alias("first"), F.col("range.last_seq").alias("last")
    )
    order = Window.partitionBy(*LANE).orderBy("first", "last")
    reached = F.max("last").over(order.rowsBetween(Window.unboundedPreceding, -1))
    begins = F.when(F.col("first") > F.coalesce(reached, F.lit(0)), 1).otherwise(0)
    islands = ranges.withColumn("begins", begins).withColumn("island", F.sum("begins").over(order))
    merged = islands.groupBy(*LANE, "island").agg(
        F.min("first").alias("first"), F.max("last").alias("last")
    )
    return merged.drop("island")


def _with_state(rows: DataFrame, events: DataFrame) -> DataFrame:
    """Tell closed, open and torn epochs apart by the last event of their system lane."""
    place = F.col("seq")
    ends = (
        events.where(F.col("lane") == "system")
        .groupBy("gateway", "epoch")
        .agg(
            F.max_by(F.struct("kind", "name"), place).alias("end"),
            F.max_by("time", place).alias("end_time"),
        )
    )
    latest = F.max("epoch").over(Window.partitionBy("gateway"))
    closed = (F.col("end.kind") == "system") & (F.col("end.name") == "stop")
    with_end = rows.join(ends, on=["gateway", "epoch"], how="left").withColumn("latest", latest)
    state = (
        F.when(closed, "closed").when(F.col("epoch") < F.col("latest"), "torn").otherwise("open")
    )
    since = F.when(closed, F.col("end_time")).otherwise(F.col("last_time"))
    return with_end.withColumn("state", state).withColumn("since", since)
