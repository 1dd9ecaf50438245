"""Report 1, availability: whether each gateway ran, and whether the centre could hear it.

The two are told apart. A gateway **runs** while its heartbeats follow each other, which is known
once its backlog came in. It is **reachable** while its segments arrive. Nothing is said of the time
after the last heartbeat: whether it runs is not known until the next one comes.

Signs of life and what is made of them are in `sync.reports.heartbeats`.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sync.reports import heartbeats, lanes
from sync.reports.common import conform, exact_percentile, seconds
from sync.reports.context import Given, Report
from sync.reports.heartbeats import since_day
from sync.reports.thresholds import PATIENCE, SEALINGS, SILENCE_S
from sync.tables.partitions import gathered

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
        StructField("silent_after_s", DoubleType()),
        StructField("last_arrival", TimestampType()),
    ]
)
"""`state` is `running`, `stopped` (cleanly), `silent` (nothing arrives) or `unknown` (no heartbeat
ever came). Shares are of 1; `running_share` leaves out the time that is unknown.
Lengths are in seconds, to the millisecond. `silent_after_s` is what counts as a silence of this
gateway."""


def availability(
    life: DataFrame,
    times: DataFrame,
    segments: DataFrame,
    as_of: datetime,
    since: date | None = None,
) -> DataFrame:
    """Give a row of `SCHEMA` for each gateway, in their order, as things stood at `as_of`.

    `life` is the summary `signs.DAILY`, `times` its `signs.spans`, cut off at `since` if that is
    asked for: a day in UTC. Then lengths, shares and counts are of the time from it on; the state
    and what was first and last are not.
    """
    running = _running(times)
    reachable = _reachable(segments, as_of, since)
    rows = gathered(reachable.join(_lives(life, since), on="gateway", how="full_outer"))
    rows = rows.join(running, on="gateway", how="left")
    quiet = F.lit(as_of.timestamp()) - seconds("last_arrival") > F.col("silent_after_s")
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


def _lives(life: DataFrame, since: date | None) -> DataFrame:
    """Give each gateway's first and last sign, and how often it started, cleanly or not."""
    order = Window.partitionBy("gateway").orderBy("epoch", "first_seq")
    stopped = F.lag(F.col("last_name") == "stop").over(order)
    same_epoch = F.lag("epoch").over(order) == F.col("epoch")  # of others, it may have stopped
    runs = life.withColumns({"stopped": stopped, "unclean": same_epoch & ~stopped})
    place = F.struct("epoch", "first_seq")
    again = (F.col("first_name") == "start") & F.col("stopped").isNotNull()
    if since is not None:
        again &= F.col("begin") >= F.unix_seconds(F.lit(since).cast("timestamp"))
    return runs.groupBy("gateway").agg(
        F.timestamp_seconds(F.min_by("begin", place)).alias("first_seen"),
        F.timestamp_seconds(F.max_by("end", place)).alias("last_seen"),
        F.max_by("last_name", place).alias("last_name"),
        F.count_if(again).alias("restarts"),
        F.count_if(again & F.col("unclean")).alias("unclean_restarts"),
    )


def _reachable(segments: DataFrame, as_of: datetime, since: date | None) -> DataFrame:
    """Tell how long the gaps between arrivals were, the one up to `as_of` included."""
    order = Window.partitionBy("gateway").orderBy("begin")
    arrived = segments.where(F.col("gateway").isNotNull())
    arrivals = arrived.select("gateway", seconds("arrived").alias("begin")).distinct()
    now = F.greatest(F.lit(as_of.timestamp()), F.col("begin"))
    gaps = arrivals.withColumn("end", F.coalesce(F.lead("begin").over(order), now))
    gaps = gaps.join(patience(segments), on="gateway", how="left")
    after = F.coalesce("silent_after_s", F.lit(SILENCE_S))
    gaps = gaps.withColumn("silent_after_s", after).withColumn("arrival", F.col("begin"))
    gaps = gaps.withColumn("long", F.col("end") - F.col("begin") > F.col("silent_after_s"))
    gaps = since_day(gaps, since)
    length = F.col("end") - F.col("begin")
    silent = F.when(F.col("long"), length)
    sums = gaps.groupBy("gateway").agg(
        F.count(silent).alias("silences"),
        F.max(silent).alias("longest_silence_s"),
        F.coalesce(F.sum(silent), F.lit(0.0)).alias("silent_s"),
        F.sum(length).alias("listened_s"),
        F.timestamp_seconds(F.max("arrival")).alias("last_arrival"),
        F.first("silent_after_s").alias("silent_after_s"),
    )
    share = F.lit(1.0) - F.col("silent_s") / F.col("listened_s")
    return sums.withColumn("reachable_share", F.when(F.col("listened_s") > 0, share))


def patience(segments: DataFrame) -> DataFrame:
    """Tell from how often a gateway seals its system lane what counts as a silence of it.

    Seconds of service lie between two segments whether or not the gateway was off meanwhile, and
    whatever its clock was set to. Where too few segments are known, nothing is told.
    """
    order = Window.partitionBy("gateway", "epoch").orderBy("first_seq")
    sealed = segments.where((F.col("fate") == "accepted") & (F.col("lane") == "system"))
    between = F.col("service_seconds") - F.lag("service_seconds").over(order)
    known = sealed.select("gateway", between.alias("between")).where("between > 0")
    usual = known.groupBy("gateway").agg(
        exact_percentile(0.5, "between").alias("usual"), F.count(F.lit(1)).alias("known")
    )
    after = F.greatest(F.lit(SILENCE_S), F.col("usual") * PATIENCE)
    return usual.where(F.col("known") >= SEALINGS).select("gateway", after.alias("silent_after_s"))


def _make(given: Given) -> DataFrame:
    life, times = given.whole(heartbeats.DAILY), heartbeats.times_of(given)
    return availability(life, times, given.segments(), given.as_of, given.since)


REPORT: Final = Report("availability", SCHEMA, (heartbeats.DAILY, lanes.DAILY), _make)
