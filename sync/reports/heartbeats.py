"""Signs of life: when gateways ran, stopped, were out, or nothing is known of them.

A summary has runs of heartbeats, few for a day of a gateway; `spans` makes time of them. Time by
the gateway's clock is compared only between signs with the same state of that clock: a clock that
was set in between makes no outage.
"""

from __future__ import annotations

from datetime import date
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from sync.reports import lanes
from sync.reports.common import conform, seconds
from sync.reports.context import Given, Report
from sync.reports.thresholds import HEARTBEAT_S, PATIENCE, SIGNS, STEP
from sync.tables.partitions import union
from sync.tables.summaries import Summary

RUNS: Final = StructType(
    [
        StructField("gateway", StringType()),
        StructField("epoch", StringType()),
        StructField("first_seq", LongType()),
        StructField("last_seq", LongType()),
        StructField("begin", DoubleType()),
        StructField("end", DoubleType()),
        StructField("first_name", StringType()),
        StructField("last_name", StringType()),
        StructField("clock", BooleanType()),
        StructField("interval", DoubleType()),
    ]
)
"""Signs that follow each other within a day, none of them late and no event of the system lane
missing between them: the gateway ran from `begin` to `end` (seconds since 1970). A start begins a
run, and so does a clock that was set; a stop ends one. `interval` is the seconds between heartbeats
that it told last."""

SPANS: Final = StructType(
    [
        StructField("gateway", StringType()),
        StructField("begin", DoubleType()),
        StructField("end", DoubleType()),
        StructField("state", StringType()),
        StructField("ended", StringType()),
    ]
)
"""A run, or the time between two, in seconds since 1970: `running`, `stopped`, `outage`, `unknown`,
or `clock` where the clock was set and so the length is not known. `ended` tells what ended the time
between two runs: `restarted`, `new_epoch` (it began with an epoch of its own) or `went_on` (with no
start: it was suspended, or its heartbeats were held up)."""

STRETCHES: Final = StructType([field for field in SPANS if field.name != "ended"])

DRAWN: Final = 5_000
"""Stretches that are brought home for the plot, the latest ones: more are no wider than a pixel
each."""


def runs(events: DataFrame) -> DataFrame:
    """Give a row of `RUNS` and `day` for each run of a day."""
    order = Window.partitionBy("day", "gateway").orderBy("epoch", "seq")
    signs = _signs(events)
    told = F.when((F.col("name") != STEP) & (F.col("value") > 0), F.col("value"))
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    signs = signs.withColumn("before", F.last(told, ignorenulls=True).over(before))
    for name in ("epoch", "seq", "place", "name", "clock", "at"):
        signs = signs.withColumn(f"last_{name}", F.lag(name).over(order))
    begins = F.when(_goes_on(), 0).otherwise(1)
    numbered = signs.withColumn("begins", begins).withColumn("run", F.sum("begins").over(order))
    return numbered.groupBy("day", "gateway", "epoch", "run").agg(
        F.min("seq").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        F.min_by("at", "seq").alias("begin"),
        F.max_by("at", "seq").alias("end"),
        F.min_by("name", "seq").alias("first_name"),
        F.max_by("name", "seq").alias("last_name"),
        F.first("clock").alias("clock"),
        F.max_by(told, F.when(told.isNotNull(), F.col("seq"))).alias("interval"),
    )


def _signs(events: DataFrame) -> DataFrame:
    """Give the signs of life; `place` counts what came of their lane, `seq` what there was."""
    order = Window.partitionBy("day", "gateway", "epoch").orderBy("seq")
    system = events.where(F.col("lane") == "system").withColumn("place", F.row_number().over(order))
    is_sign = (F.col("kind") == "system") & F.col("name").isin(*SIGNS, STEP)
    at = seconds("time").alias("at")
    columns = ("day", "gateway", "epoch", "seq", "place", "name", "clock", "value", at)
    return system.where(is_sign).select(*columns)


def _goes_on() -> Column:
    """Tell whether a sign certainly goes on with the run of the one before."""
    whole = F.col("seq") - F.col("last_seq") == F.col("place") - F.col("last_place")
    late = F.col("at") - F.col("last_at")
    return (
        ~F.col("name").isin("start", STEP)
        & (F.col("last_name") != "stop")
        & (F.col("epoch") == F.col("last_epoch"))
        & (F.col("clock") == F.col("last_clock"))
        & whole
        & late.between(0, F.col("before") * PATIENCE)
    )


def spans(life: DataFrame, numbers: DataFrame) -> DataFrame:
    """Give a row of `SPANS` for each run of `life` (`DAILY`) and for the time between two.

    `numbers` (`lanes.DAILY`) tells whether something of that time did not come.
    """
    order = Window.partitionBy("gateway").orderBy("epoch", "first_seq")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    placed = _with_whole_since(life, numbers)
    placed = placed.withColumn("before", F.last("interval", ignorenulls=True).over(before))
    for name in ("epoch", "last_seq", "last_name", "clock", "end"):
        placed = placed.withColumn(f"{name}_before", F.lag(name).over(order))
    between = placed.where(F.col("epoch_before").isNotNull()).select(
        "gateway",
        F.col("end_before").alias("begin"),
        F.greatest("begin", "end_before").alias("end"),
        _state().alias("state"),
        _ended().alias("ended"),
    )
    ran = life.where("first_seq < last_seq").select(
        "gateway",
        "begin",
        F.greatest("begin", "end").alias("end"),
        F.lit("running").alias("state"),
        F.lit(None).cast("string").alias("ended"),
    )
    return conform(union(between, ran), SPANS)


def _with_whole_since(life: DataFrame, numbers: DataFrame) -> DataFrame:
    """Tell of each run since which number on all of its system lane came: `whole_since`."""
    came = lanes.merged(numbers.where(F.col("lane") == "system"))
    began = came.select("gateway", "epoch", "first_seq", F.col("first_seq").alias("came"))
    order = Window.partitionBy("gateway", "epoch").orderBy("first_seq", F.col("came").isNull())
    since = F.last("came", ignorenulls=True).over(order)
    both = union(life, began).withColumn("whole_since", since)
    return both.where(F.col("came").isNull())


def _state() -> Column:
    same_epoch = F.col("epoch") == F.col("epoch_before")
    stopped = F.col("last_name_before") == "stop"
    reaches = F.when(same_epoch, F.col("last_seq_before")).otherwise(1)
    # Of an epoch that ended without a stop nobody knows what it wrote last and did not send.
    whole = (F.col("whole_since") <= reaches) & (same_epoch | stopped)
    interval = F.coalesce("before", F.lit(HEARTBEAT_S))
    return (
        F.when((F.col("clock") != F.col("clock_before")) | (F.col("first_name") == STEP), "clock")
        .when(stopped & whole, "stopped")
        .when(F.col("begin") - F.col("end_before") <= interval * PATIENCE, "running")
        .when(whole, "outage")
        .otherwise("unknown")
    )


def _ended() -> Column:
    return (
        F.when(F.col("epoch") != F.col("epoch_before"), "new_epoch")
        .when(F.col("first_name") == "start", "restarted")
        .otherwise("went_on")
    )


def since_day(times: DataFrame, since: date | None) -> DataFrame:
    """Cut off what lies before the day `since` (UTC) from rows with `begin` and `end`."""
    if since is None:
        return times
    first = F.unix_seconds(F.lit(since).cast("timestamp")).cast("double")
    later = times.where(F.col("end") >= first)
    return later.withColumn("begin", F.greatest("begin", first))


def times_of(given: Given) -> DataFrame:
    """Give the rows of `SPANS` of the days that are asked for."""
    times = spans(given.whole(DAILY), given.whole(lanes.DAILY))
    return since_day(times, given.since)


def stretches(times: DataFrame) -> DataFrame:
    """Give rows of `STRETCHES`: rows of `SPANS` of one state that follow each other are made one.

    Leaves out `clock`, whose length is not known.
    """
    order = Window.partitionBy("gateway").orderBy("begin", "end")
    known = times.where(F.col("state") != "clock")
    goes_on = (F.lag("state").over(order) == F.col("state")) & (
        F.lag("end").over(order) == F.col("begin")
    )
    begins = known.withColumn("begins", F.when(goes_on, 0).otherwise(1))
    numbered = begins.withColumn("stretch", F.sum("begins").over(order))
    joined = numbered.groupBy("gateway", "stretch").agg(
        F.min("begin").alias("begin"), F.max("end").alias("end"), F.first("state").alias("state")
    )
    return conform(joined, STRETCHES).orderBy("gateway", "begin")


def latest(times: DataFrame) -> DataFrame:
    """Give the latest `DRAWN` of `stretches`, in the order of gateways and time."""
    drawn = stretches(times).orderBy(F.desc("begin"), "gateway").limit(DRAWN)
    return drawn.orderBy("gateway", "begin")


DAILY: Final = Summary("signs", 1, RUNS, runs)

REPORT: Final = Report(
    "stretches", STRETCHES, (DAILY, lanes.DAILY), lambda given: latest(times_of(given))
)
