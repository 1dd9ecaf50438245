"""Report 1, availability: whether each gateway ran, and whether the centre could hear it.

The two are told apart. A gateway **runs** while its heartbeats follow each other, which is known
once its backlog came in. It is **reachable** while its segments arrive. Nothing is said of the time
after the last heartbeat: whether it runs is not known until the next one comes.

Time by the gateway's clock is compared only between signs with the same state of that clock: a
clock that was set in between makes no outage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sync.central.reports.common import HEARTBEAT_S, PATIENCE, SEAL_S, conform, seconds

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.window import WindowSpec

SIGNS: Final = ("start", "heartbeat", "stop")
"""The system events that tell of a gateway's life."""

SILENCE_S: Final = SEAL_S * PATIENCE
"""Seconds without an arrival, beyond which the gateway was not reachable."""

SCHEMA: Final = StructType(
    [
        StructField("gateway", StringType()),
        StructField("state", StringType()),
        StructField("first_seen", TimestampType()),
        StructField("last_seen", TimestampType()),
        StructField("running_share", DoubleType()),
        StructField("running_s", DoubleType()),
        StructField("stopped_s", DoubleType()),
        StructField("outage_s", DoubleType()),
        StructField("unknown_s", DoubleType()),
        StructField("outages", LongType()),
        StructField("longest_gap_s", DoubleType()),
        StructField("restarts", LongType()),
        StructField("unclean_restarts", LongType()),
        StructField("clock_steps", LongType()),
        StructField("reachable_share", DoubleType()),
        StructField("silences", LongType()),
        StructField("longest_silence_s", DoubleType()),
        StructField("last_arrival", TimestampType()),
    ]
)
"""`state` is `running`, `stopped` (cleanly), `silent` (nothing arrives) or `unknown` (no heartbeat
ever came). Shares are of 1; `running_share` leaves out the time that is unknown.
Lengths are in seconds, to the millisecond."""

SPANS: Final = StructType(
    [
        StructField("gateway", StringType()),
        StructField("begin", DoubleType()),
        StructField("end", DoubleType()),
        StructField("state", StringType()),
    ]
)
"""The time between two signs, in seconds since 1970: `running`, `stopped`, `outage`, `unknown`, or
`clock` where the clock was set and so the length is not known."""


def availability(events: DataFrame, segments: DataFrame, as_of: datetime) -> DataFrame:
    """Give a row of `SCHEMA` for each gateway, in their order, as things stood at `as_of`."""
    running = _running(spans(events))
    lives = _lives(events)
    reachable = _reachable(segments, as_of)
    rows = reachable.join(lives, on="gateway", how="full_outer")
    rows = rows.join(running, on="gateway", how="left")
    quiet = F.lit(as_of.timestamp()) - seconds("last_arrival") > SILENCE_S
    state = (
        F.when(F.col("last_name") == "stop", "stopped")
        .when(quiet, "silent")
        .when(F.col("last_name").isNull(), "unknown")
        .otherwise("running")
    )
    counted = ["outages", "restarts", "unclean_restarts", "clock_steps", "silences"]
    told = rows.withColumn("state", state).fillna(0, subset=counted)
    lengths = [each.name for each in SCHEMA if each.name.endswith("_s")]
    told = told.withColumns({name: F.round(name, 3) for name in lengths})
    return conform(told, SCHEMA).orderBy("gateway")


def spans(events: DataFrame) -> DataFrame:
    """Give a row of `SPANS` for the time from each sign of a gateway to its next."""
    order = Window.partitionBy("gateway").orderBy("epoch", "seq")
    signs = _signs(events).withColumn("interval", _interval(order))
    for name in ("epoch", "seq", "place", "name", "clock", "at"):
        signs = signs.withColumn(f"last_{name}", F.lag(name).over(order))
    rows = signs.where(F.col("last_name").isNotNull()).select(
        "gateway",
        F.col("last_at").alias("begin"),
        F.greatest("at", "last_at").alias("end"),
        _span_state().alias("state"),
    )
    return conform(rows, SPANS)


def stretches(events: DataFrame) -> DataFrame:
    """Give rows of `SPANS` in which spans of one state that follow each other are made one.

    Leaves out `clock`, whose length is not known.
    """
    order = Window.partitionBy("gateway").orderBy("begin", "end")
    known = spans(events).where(F.col("state") != "clock")
    goes_on = (F.lag("state").over(order) == F.col("state")) & (
        F.lag("end").over(order) == F.col("begin")
    )
    begins = known.withColumn("begins", F.when(goes_on, 0).otherwise(1))
    numbered = begins.withColumn("stretch", F.sum("begins").over(order))
    merged = numbered.groupBy("gateway", "stretch").agg(
        F.min("begin").alias("begin"), F.max("end").alias("end"), F.first("state").alias("state")
    )
    return conform(merged, SPANS).orderBy("gateway", "begin")


def _signs(events: DataFrame) -> DataFrame:
    """Give the signs of life; `place` counts what came of their lane, `seq` what there was."""
    order = Window.partitionBy("gateway", "epoch").orderBy("seq")
    system = events.where(F.col("lane") == "system").withColumn("place", F.row_number().over(order))
    is_sign = (F.col("kind") == "system") & F.col("name").isin(*SIGNS)
    return system.where(is_sign).select(
        "gateway", "epoch", "seq", "place", "name", "clock", "value", seconds("time").alias("at")
    )


def _interval(order: WindowSpec) -> Column:
    """Give the seconds between heartbeats that the gateway was set to, which its signs tell."""
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    told = F.last(F.when(F.col("value") > 0, F.col("value")), ignorenulls=True).over(before)
    return F.coalesce(told, F.lit(HEARTBEAT_S))


def _span_state() -> Column:
    same_epoch = F.col("epoch") == F.col("last_epoch")
    whole = F.when(
        same_epoch, F.col("seq") - F.col("last_seq") == F.col("place") - F.col("last_place")
    ).otherwise(F.col("seq") == F.col("place"))
    return (
        F.when(F.col("clock") != F.col("last_clock"), "clock")
        .when((F.col("last_name") == "stop") & whole, "stopped")
        .when(F.col("at") - F.col("last_at") <= F.col("interval") * PATIENCE, "running")
        .when(whole, "outage")
        .otherwise("unknown")
    )


def _running(between: DataFrame) -> DataFrame:
    length = F.col("end") - F.col("begin")

    def total(state: str) -> Column:
        return F.sum(F.when(F.col("state") == state, length).otherwise(0.0)).alias(f"{state}_s")

    sums = between.groupBy("gateway").agg(
        *(total(state) for state in ("running", "stopped", "outage", "unknown")),
        F.count_if(F.col("state") == "outage").alias("outages"),
        F.count_if(F.col("state") == "clock").alias("clock_steps"),
        F.max(F.when(F.col("state").isin("outage", "unknown"), length)).alias("longest_gap_s"),
    )
    known = F.col("running_s") + F.col("stopped_s") + F.col("outage_s")
    return sums.withColumn("running_share", F.when(known > 0, F.col("running_s") / known))


def _lives(events: DataFrame) -> DataFrame:
    """Give each gateway's first and last sign, and how often it started, cleanly or not."""
    order = Window.partitionBy("gateway").orderBy("epoch", "seq")
    signs = _signs(events).withColumn("before", F.lag("name").over(order))
    place = F.struct("epoch", "seq")
    again = (F.col("name") == "start") & F.col("before").isNotNull()
    return signs.groupBy("gateway").agg(
        F.timestamp_seconds(F.min_by("at", place)).alias("first_seen"),
        F.timestamp_seconds(F.max_by("at", place)).alias("last_seen"),
        F.max_by("name", place).alias("last_name"),
        F.count_if(again).alias("restarts"),
        F.count_if(again & (F.col("before") != "stop")).alias("unclean_restarts"),
    )


def _reachable(segments: DataFrame, as_of: datetime) -> DataFrame:
    """Tell how long the gaps between arrivals were, the one up to `as_of` included."""
    order = Window.partitionBy("gateway").orderBy("at")
    arrived = segments.where(F.col("gateway").isNotNull())
    arrivals = arrived.select("gateway", seconds("arrived").alias("at")).distinct()
    until = F.coalesce(F.lead("at").over(order), F.greatest(F.lit(as_of.timestamp()), F.col("at")))
    gaps = arrivals.withColumn("gap", until - F.col("at")).withColumn("until", until)
    silent = F.when(F.col("gap") > SILENCE_S, F.col("gap"))
    sums = gaps.groupBy("gateway").agg(
        F.count(silent).alias("silences"),
        F.max(silent).alias("longest_silence_s"),
        F.coalesce(F.sum(silent), F.lit(0.0)).alias("silent_s"),
        (F.max("until") - F.min("at")).alias("listened_s"),
        F.timestamp_seconds(F.max("at")).alias("last_arrival"),
    )
    share = F.lit(1.0) - F.col("silent_s") / F.col("listened_s")
    return sums.withColumn("reachable_share", F.when(F.col("listened_s") > 0, share))
