"""Daily summary: when gateways ran, were stopped or failed, and when their state is unknown.

The summary has the periods of uninterrupted heartbeats (`RUNS`), a few for each gateway and day;
`spans` adds the times between them. Times of the gateway's clock are compared only while the
clock's state is the same, so that setting the clock makes no outage.
"""

from __future__ import annotations

from datetime import date
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sync.reports.shared import lanes
from sync.reports.shared.frames import FLAG, INTEGER, REAL, TEXT, numbered, schema, seconds
from sync.reports.shared.plausible import LONGEST_S
from sync.reports.shared.report import ReportContext
from sync.reports.shared.thresholds import CLOCK_STEPPED, HEARTBEAT_S, LIFE_EVENTS, MISSED_INTERVALS
from sync.tables.partitions import conform, union
from sync.tables.summaries import Summary

RUNS: Final = schema(
    gateway=TEXT,
    epoch=TEXT,
    first_seq=INTEGER,
    last_seq=INTEGER,
    begin=REAL,
    end=REAL,
    first_name=TEXT,
    last_name=TEXT,
    clock=FLAG,
    interval=REAL,
)
"""A run: the time from `begin` to `end` (seconds since 1970) in which a gateway ran, according to
successive life events (start, heartbeats, stop) of one day, between which no event of the system
lane is missing. A start or a clock step begins a run, a stop ends one. `interval` is the heartbeat
interval in seconds that was reported last."""

SPANS: Final = schema(gateway=TEXT, begin=REAL, end=REAL, state=TEXT, ended=TEXT)
"""A run, or the time between two runs, in seconds since 1970. `state`: `running`, `stopped`,
`outage`, `unknown`, or `clock` if the clock was set and the length is not known. `ended` is how the
time between two runs ended: `restarted`, `new_epoch` (restarted with a new epoch), or `went_on`
(without a start: the gateway was suspended, or its heartbeats were delayed)."""


def runs(events: DataFrame) -> DataFrame:
    """Compute the rows of `RUNS`, each with its `day`."""
    order = Window.partitionBy("day", "gateway").orderBy("epoch", "seq")
    life = _life_events(events)
    interval = F.when((F.col("name") != CLOCK_STEPPED) & (F.col("value") > 0), F.col("value"))
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    life = life.withColumn("interval_before", F.last(interval, ignorenulls=True).over(before))
    for name in ("epoch", "seq", "place", "name", "clock", "at"):
        life = life.withColumn(f"last_{name}", F.lag(name).over(order))
    life = numbered(life, _continues_run(), order, "run")
    return life.groupBy("day", "gateway", "epoch", "run").agg(
        F.min("seq").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        F.min_by("at", "seq").alias("begin"),
        F.max_by("at", "seq").alias("end"),
        F.min_by("name", "seq").alias("first_name"),
        F.max_by("name", "seq").alias("last_name"),
        F.first("clock").alias("clock"),
        F.max_by(interval, F.when(interval.isNotNull(), F.col("seq"))).alias("interval"),
    )


def _life_events(events: DataFrame) -> DataFrame:
    """Select life events and clock steps; `place` numbers the lane's events that arrived."""
    order = Window.partitionBy("day", "gateway", "epoch").orderBy("seq")
    system = events.where(F.col("lane") == "system").withColumn("place", F.row_number().over(order))
    is_life = (F.col("kind") == "system") & F.col("name").isin(*LIFE_EVENTS, CLOCK_STEPPED)
    at = seconds("time").alias("at")
    columns = ("day", "gateway", "epoch", "seq", "place", "name", "clock", "value", at)
    return system.where(is_life).select(*columns)


def _continues_run() -> Column:
    """Return whether a life event certainly continues the run of the one before."""
    complete = F.col("seq") - F.col("last_seq") == F.col("place") - F.col("last_place")
    elapsed = F.col("at") - F.col("last_at")
    return (
        ~F.col("name").isin("start", CLOCK_STEPPED)
        & (F.col("last_name") != "stop")
        & (F.col("epoch") == F.col("last_epoch"))
        & (F.col("clock") == F.col("last_clock"))
        & complete
        & elapsed.between(0, F.col("interval_before") * MISSED_INTERVALS)
    )


def spans(life: DataFrame, numbers: DataFrame) -> DataFrame:
    """Compute the rows of `SPANS`: the runs `life` (rows of `RUNS`), and the times between them.

    `numbers` (rows of `lanes.RANGES`) shows whether events between two runs are missing.
    """
    order = Window.partitionBy("gateway").orderBy("epoch", "first_seq")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    placed = _with_complete_since(life, numbers)
    known_interval = F.last("interval", ignorenulls=True).over(before)
    placed = placed.withColumn("interval_before", known_interval)
    for name in ("epoch", "last_seq", "last_name", "clock", "end"):
        placed = placed.withColumn(f"{name}_before", F.lag(name).over(order))
    between = placed.where(F.col("epoch_before").isNotNull()).select(
        "gateway",
        F.col("end_before").alias("begin"),
        F.greatest("begin", "end_before").alias("end"),
        _state().alias("state"),
        _ended().alias("ended"),
    )
    running = life.where("first_seq < last_seq").select(
        "gateway",
        "begin",
        F.greatest("begin", "end").alias("end"),
        F.lit("running").alias("state"),
        F.lit(None).cast("string").alias("ended"),
    )
    return conform(union(between, running), SPANS)


def _with_complete_since(life: DataFrame, numbers: DataFrame) -> DataFrame:
    """Add `complete_since`: all events of the system lane from this number to the run arrived."""
    arrived = lanes.merge_ranges(numbers.where(F.col("lane") == "system"))
    begins = arrived.select("gateway", "epoch", "first_seq", F.col("first_seq").alias("arrived"))
    order = Window.partitionBy("gateway", "epoch").orderBy("first_seq", F.col("arrived").isNull())
    since = F.last("arrived", ignorenulls=True).over(order)
    both = union(life, begins).withColumn("complete_since", since)
    return both.where(F.col("arrived").isNull())


def _state() -> Column:
    same_epoch = F.col("epoch") == F.col("epoch_before")
    stopped = F.col("last_name_before") == "stop"
    reaches = F.when(same_epoch, F.col("last_seq_before")).otherwise(1)
    # Nobody knows what a gateway still wrote to an epoch that ended without a stop.
    complete = (F.col("complete_since") <= reaches) & (same_epoch | stopped)
    interval = F.coalesce("interval_before", F.lit(HEARTBEAT_S))
    clock_set = (F.col("clock") != F.col("clock_before")) | (F.col("first_name") == CLOCK_STEPPED)
    # An unsynchronised clock that is ahead by a year was set without an event, while it was off.
    clock_set |= ~F.col("clock") & (F.col("begin") - F.col("end_before") > LONGEST_S)
    return (
        F.when(clock_set, "clock")
        .when(stopped & complete, "stopped")
        .when(F.col("begin") - F.col("end_before") <= interval * MISSED_INTERVALS, "running")
        .when(complete, "outage")
        .otherwise("unknown")
    )


def _ended() -> Column:
    return (
        F.when(F.col("epoch") != F.col("epoch_before"), "new_epoch")
        .when(F.col("first_name") == "start", "restarted")
        .otherwise("went_on")
    )


def cut_before(times: DataFrame, since: date | None) -> DataFrame:
    """Leave out the part of each period (`begin` to `end`) before the day `since` (UTC)."""
    if since is None:
        return times
    first = F.unix_seconds(F.lit(since).cast("timestamp")).cast("double")
    later = times.where(F.col("end") >= first)
    return later.withColumn("begin", F.greatest("begin", first))


def spans_of(context: ReportContext) -> DataFrame:
    """Return the rows of `SPANS`, without the time before the day `context.since` if it is set."""
    all_spans = spans(context.all_days(DAILY), context.all_days(lanes.DAILY))
    return cut_before(all_spans, context.since)


DAILY: Final = Summary("signs", 1, RUNS, runs)
