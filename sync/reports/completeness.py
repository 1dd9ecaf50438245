"""Report 2, completeness: of every lane of every epoch, what came, what did not, and why.

Numbers run from 1 without a gap, so what is missing can be counted: a prefix, a hole, and what a
gateway says it dropped. What comes after the last number that arrived, or was said to be dropped,
cannot be known; whether the epoch was closed says if anything may. **Unexplained** is the number
that must be zero. It speaks of whole epochs, whatever range of days is asked for.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from sync.reports import lanes
from sync.reports.columns import number
from sync.reports.common import LANE, NO_DIGEST, conform
from sync.reports.context import Report
from sync.tables.partitions import union
from sync.tables.summaries import Summary

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

DROPPED: Final = StructType(
    [
        StructField("gateway", StringType()),
        StructField("epoch", StringType()),
        StructField("lane", StringType()),
        StructField("first_seq", LongType()),
        StructField("last_seq", LongType()),
    ]
)
"""Numbers that a gateway told in an event (`uplink/evicted`, `uplink/set_aside`) that it gave up:
an event comes also where no segment of that lane follows, whose header would say so."""


def dropped(events: DataFrame) -> DataFrame:
    """Give a row of `DROPPED` and `day` for each range that an event of that day tells of."""

    def tag(name: str) -> Column:
        return F.element_at("tags", F.lit(name))

    told = events.where(
        (F.col("lane") == "system")
        & (F.col("kind") == "uplink")
        & F.col("name").isin("evicted", "set_aside")
    ).select(
        "day",
        "gateway",
        tag("epoch").alias("epoch"),
        tag("lane").alias("lane"),
        number(tag("first")).alias("first_seq"),
        number(tag("last")).alias("last_seq"),
    )
    return told.where("epoch IS NOT NULL AND lane IS NOT NULL AND 0 < first_seq").where(
        "first_seq <= last_seq"
    )


def completeness(numbers: DataFrame, told: DataFrame, segments: DataFrame) -> DataFrame:
    """Give a row of `SCHEMA` for each lane of each epoch of each gateway, in that order.

    `numbers` (`lanes.DAILY`) and `told` (`DAILY`) are of all days.
    """
    came = lanes.merged(numbers)
    gone = _dropped(told, segments)
    rows = _known(numbers, gone, segments)
    parts = (
        _received(came),
        _counted(numbers),
        _refused(segments),
        _chains(segments),
        _declared(came, gone),
    )
    for part in parts:
        rows = rows.join(part, on=[*LANE], how="left")
    missing = F.col("expected") - F.col("received")
    expected = F.greatest("last_seq", "dropped_to", F.lit(0))
    counted = (
        rows.withColumn("expected", expected)
        .fillna(0, subset=["received", "rows", "declared"])
        .fillna(0, subset=["repeated_segments", "forks", "chain_breaks"])
        .withColumn("missing", missing)
        .withColumn("unexplained", missing - F.col("declared"))
        .withColumn("duplicates", F.col("rows") - F.col("received"))
    )
    return conform(_with_state(counted, numbers), SCHEMA).orderBy(*LANE)


def _known(numbers: DataFrame, gone: DataFrame, segments: DataFrame) -> DataFrame:
    """Name every lane that anything is known of."""
    told = segments.where(F.col("gateway").isNotNull()).select(*LANE)
    return union(told, numbers.select(*LANE), gone.select(*LANE)).distinct()


def _received(came: DataFrame) -> DataFrame:
    return came.groupBy(*LANE).agg(
        F.min("first_seq").alias("first_seq"),
        F.max("last_seq").alias("last_seq"),
        F.sum(F.col("last_seq") - F.col("first_seq") + 1).alias("received"),
    )


def _counted(numbers: DataFrame) -> DataFrame:
    return numbers.groupBy(*LANE).agg(
        F.sum("rows").alias("rows"), F.max_by("last_time", "last_seq").alias("last_time")
    )


def _refused(segments: DataFrame) -> DataFrame:
    """Count what was not taken."""
    known = segments.where(F.col("gateway").isNotNull())
    return known.groupBy(*LANE).agg(
        F.count_if(F.col("fate") == "duplicate").alias("repeated_segments"),
        F.countDistinct(F.when(F.col("fate") == "fork", F.col("digest"))).alias("forks"),
    )


def _chains(segments: DataFrame) -> DataFrame:
    """Count segments that follow another without a gap, and do not carry its digest."""
    order = Window.partitionBy(*LANE).orderBy("first_seq")
    accepted = segments.where(F.col("fate") == "accepted").withColumns(
        {
            "end_before": F.lag("last_seq").over(order),
            "digest_before": F.lag("digest").over(order),
        }
    )
    adjacent = F.col("first_seq") == F.coalesce("end_before", F.lit(0)) + 1
    broken = F.col("previous") != F.coalesce("digest_before", F.lit(NO_DIGEST))
    return accepted.groupBy(*LANE).agg(F.count_if(adjacent & broken).alias("chain_breaks"))


def _dropped(told: DataFrame, segments: DataFrame) -> DataFrame:
    """Give the ranges said to be dropped, by headers and by events, as `lanes.merged` does."""
    accepted = segments.where(F.col("fate") == "accepted")
    ranges = accepted.select(*LANE, F.explode("dropped").alias("range"))
    headers = ranges.select(*LANE, "range.first_seq", "range.last_seq")
    return lanes.merged(union(headers, told.select(*LANE, "first_seq", "last_seq")))


def _declared(came: DataFrame, gone: DataFrame) -> DataFrame:
    """Count the numbers that were said to be dropped and did not come: some land after all.

    The ranges of `came` do not overlap, nor do those of `gone`; so a number is in both if a range
    of one begins there while one of the other has not ended. One pass over their ends tells.
    """
    steps = union(_ends(came, "came"), _ends(gone, "gone"))
    order = Window.partitionBy(*LANE).orderBy("at")
    sums = steps.groupBy(*LANE, "at").agg(F.sum("came").alias("came"), F.sum("gone").alias("gone"))
    inside = (F.sum("gone").over(order) > 0) & (F.sum("came").over(order) == 0)
    length = F.lead("at").over(order) - F.col("at")
    lengths = sums.withColumn("lost", F.when(inside, length).otherwise(0))
    return lengths.groupBy(*LANE).agg(
        F.sum("lost").alias("declared"),
        (F.max(F.when(F.col("gone") < 0, F.col("at"))) - 1).alias("dropped_to"),
    )


def _ends(ranges: DataFrame, name: str) -> DataFrame:
    """Give two rows for a range: +1 where it begins, and -1 behind its end, under its name."""
    ends = F.explode(
        F.array(
            F.struct(F.col("first_seq").alias("at"), F.lit(1).alias("step")),
            F.struct((F.col("last_seq") + 1).alias("at"), F.lit(-1).alias("step")),
        )
    )
    steps = ranges.select(*LANE, ends.alias("end"))
    step, none = F.col("end.step"), F.lit(0)
    mine = name == "came"
    came, gone = (step, none) if mine else (none, step)
    return steps.select(*LANE, "end.at", came.alias("came"), gone.alias("gone"))


def _with_state(rows: DataFrame, numbers: DataFrame) -> DataFrame:
    """Tell closed, open and torn epochs apart by the last event of their system lane."""
    ends = (
        numbers.where(F.col("lane") == "system")
        .groupBy("gateway", "epoch")
        .agg(
            F.max_by(F.struct("last_kind", "last_name"), "last_seq").alias("end"),
            F.max_by("last_time", "last_seq").alias("end_time"),
        )
    )
    latest = F.max("epoch").over(Window.partitionBy("gateway"))
    closed = (F.col("end.last_kind") == "system") & (F.col("end.last_name") == "stop")
    with_end = rows.join(ends, on=["gateway", "epoch"], how="left").withColumn("latest", latest)
    state = (
        F.when(closed, "closed").when(F.col("epoch") < F.col("latest"), "torn").otherwise("open")
    )
    since = F.when(closed, F.col("end_time")).otherwise(F.col("last_time"))
    return with_end.withColumn("state", state).withColumn("since", since)


DAILY: Final = Summary("dropped", 2, DROPPED, dropped)

REPORT: Final = Report(
    "completeness",
    SCHEMA,
    (lanes.DAILY, DAILY),
    lambda given: completeness(given.whole(lanes.DAILY), given.whole(DAILY), given.segments()),
)
