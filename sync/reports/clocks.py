"""Report 8, clocks: how far each gateway's is off, how fast it runs, how often it is set.

The centre's clock is held to be right. What a clock is off is known up to what a segment was under
way; that is bounded by taking the promptest, and by looking at streams that flow steadily alone.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sync.reports.columns import FLAG, NUMBER, REAL, TEXT, TIME, columns
from sync.reports.common import conform, seconds
from sync.reports.context import Report
from sync.reports.thresholds import HEARTBEAT_S
from sync.tables.partitions import gathered
from sync.tables.summaries import Summary

SCHEMA: Final = columns(
    gateway=TEXT,
    state=TEXT,
    skew_s=REAL,
    drift_ppm=REAL,
    gain_ppm=REAL,
    steps=NUMBER,
    odd_steps=NUMBER,
    step_sum_s=REAL,
    step_max_s=REAL,
    last_step=TIME,
    synchronised=FLAG,
    unsynchronised_share=REAL,
    unsynchronised_s=REAL,
    worst_day_s=REAL,
)
"""A gateway's clock. `state`, the first that holds: `stepping`, `unsynchronised`, `drifting`,
`skewed`, `ok`.

`skew_s`: seconds that it is ahead of the centre's, at least, where positive; that it is behind, at
most, where negative, since what the link took is in it. `drift_ppm`: parts per million by which it
ran faster than the gateway's service seconds, `gain_ppm` than the centre's clock; null where too
little is known. `steps`: how often it was set, by `step_sum_s` seconds altogether (absolute) and by
`step_max_s` at most (with its sign), the last time at `last_step`; `odd_steps`: those that did not
come with its being synchronised. `synchronised`: at its last heartbeat; `unsynchronised_share` of
the heartbeats, `unsynchronised_s` seconds of them, `worst_day_s` those of the day with most."""

AHEAD_S: Final = 5.0
"""Seconds that a clock may be ahead: a segment cannot arrive before it is sealed, and file systems
and time servers are off by less."""

BEHIND_S: Final = 120.0
"""Seconds that a clock may seem to be behind: a steady stream over a slow link takes less."""

DRIFT_PPM: Final = 100.0
"""Parts per million that a clock may be fast or slow (8.6 s a day): quartzes are within 20 to 50,
and a clock that is synchronised is within less."""

BIG_STEP_S: Final = 10.0
"""Seconds; a step of so many that did not come with its being synchronised is odd enough once."""

ODD_STEPS: Final = 3
"""Small odd steps that make a clock stepping: time daemons step once, after that they slew."""

SETTLE_S: Final = 600.0
"""Seconds after a step in which the clock becomes synchronised, if that is what it was set for."""

UNSYNCHRONISED_S: Final = 3_600.0
"""Seconds of a day for which a clock may be without synchronisation: after a start it takes
minutes until time servers are found."""

RECENT_S: Final = 10_800.0
"""Seconds before its last arrival in which segments tell how far a clock is off now: long enough
for some dozens, short enough for a clock that was put right to be right soon."""

STEADY_S: Final = 5.0
"""Seconds by which two arrivals may be further apart, or closer, than their sealings were: what is
further off waited in a backlog."""

STEADY: Final = 12
"""Such segments that have to be known: an hour's."""

HOUR_S: Final = 3_600.0
"""Seconds (of service) of which one segment, the promptest, speaks for the drift."""

APART_H: Final = 6
"""Hours between two segments whose distance tells how fast the clock gains on the centre's: over
these, a second that the link took makes 46 ppm, and the median of many is taken."""

SLOPES: Final = 18
"""Slopes that have to be known before their median counts: one step makes `APART_H` of them wrong,
which have to be few."""

DAYS: Final = columns(
    gateway=TEXT,
    heartbeats=NUMBER,
    unsynchronised=NUMBER,
    interval_s=REAL,
    steps=NUMBER,
    odd_steps=NUMBER,
    big_steps=NUMBER,
    step_sum_s=REAL,
    step_max_s=REAL,
    last_step=TIME,
    last=columns(epoch=TEXT, seq=NUMBER, clock=FLAG),
)
"""Heartbeats, those of them at which the clock was not synchronised, and the seconds between two;
steps; and the last heartbeat."""

_TOLD: Final = ("heartbeat", "clock_stepped", "clock_synchronised")


def days(events: DataFrame) -> DataFrame:
    """Give the rows of `DAYS` and `day`."""
    system = (F.col("lane") == "system") & (F.col("kind") == "system")
    told = events.where(system & F.col("name").isin(*_TOLD))
    after = Window.partitionBy("day", "gateway", "epoch").orderBy("seq")
    found = F.when(F.col("name") == "clock_synchronised", seconds("time"))
    next_found = F.first(found, ignorenulls=True).over(
        after.rowsBetween(1, Window.unboundedFollowing)
    )
    timed = told.withColumn("settled", next_found - seconds("time") <= SETTLE_S)
    beat, step = F.col("name") == "heartbeat", F.col("name") == "clock_stepped"
    odd = step & ~F.coalesce("settled", F.lit(0).cast("boolean"))
    moved = F.coalesce("value", F.lit(0.0))
    place = F.struct("epoch", "seq", "clock")
    return timed.groupBy("day", "gateway").agg(
        F.count_if(beat).alias("heartbeats"),
        F.count_if(beat & ~F.col("clock")).alias("unsynchronised"),
        F.max(F.when(beat & (F.col("value") > 0), F.col("value"))).alias("interval_s"),
        F.count_if(step).alias("steps"),
        F.count_if(odd).alias("odd_steps"),
        F.count_if(odd & (F.abs(moved) >= BIG_STEP_S)).alias("big_steps"),
        F.sum(F.when(step, F.abs(moved)).otherwise(0.0)).alias("step_sum_s"),
        F.max_by(moved, F.when(step, F.abs(moved))).alias("step_max_s"),
        F.max(F.when(step, F.col("time"))).alias("last_step"),
        F.max(F.when(beat, place)).alias("last"),
    )


def clocks(days: DataFrame, segments: DataFrame) -> DataFrame:
    """Give a row of `SCHEMA` for each gateway that `DAYS` or accepted segments are of."""
    sent = segments.where(F.col("fate") == "accepted").select(
        "gateway",
        "boot",
        "clock",
        F.col("service_seconds").alias("service"),
        seconds("sealed_at").alias("wall"),
        seconds("arrived").alias("came"),
    )
    sending = sent.select("gateway").distinct()
    rows = gathered(sending.join(_told(days), on="gateway", how="full_outer"))
    for part in (_skew(sent), _drift(sent), _gain(sent)):
        rows = rows.join(part, on="gateway", how="left")
    counted = rows.fillna(0, subset=["steps", "odd_steps", "step_sum_s", "unsynchronised_s"])
    return conform(counted.withColumn("state", _state()), SCHEMA).orderBy("gateway")


def _state() -> Column:
    return (
        F.when((F.col("big_steps") > 0) | (F.col("odd_steps") >= ODD_STEPS), "stepping")
        .when(F.col("worst_day_s") > UNSYNCHRONISED_S, "unsynchronised")
        .when((F.abs("drift_ppm") > DRIFT_PPM) | (F.abs("gain_ppm") > DRIFT_PPM), "drifting")
        .when((F.col("skew_s") > AHEAD_S) | (F.col("skew_s") < -BEHIND_S), "skewed")
        .otherwise("ok")
    )


def _told(days: DataFrame) -> DataFrame:
    """Sum up what heartbeats and steps told."""
    without = F.col("unsynchronised") * F.coalesce("interval_s", F.lit(HEARTBEAT_S))
    return days.groupBy("gateway").agg(
        *(F.sum(name).alias(name) for name in ("steps", "odd_steps", "big_steps", "step_sum_s")),
        F.max_by("step_max_s", F.abs("step_max_s")).alias("step_max_s"),
        F.max("last_step").alias("last_step"),
        F.max("last")["clock"].alias("synchronised"),
        F.try_divide(F.sum("unsynchronised"), F.sum("heartbeats")).alias("unsynchronised_share"),
        F.sum(without).alias("unsynchronised_s"),
        F.max(without).alias("worst_day_s"),
    )


def _steady(sent: DataFrame) -> DataFrame:
    """Give the segments that arrived as they were sealed, and did not wait: with their `ahead`."""
    order = Window.partitionBy("gateway", "boot").orderBy("service", "came")
    apart = F.col("came") - F.lag("came").over(order)
    sealed = F.col("service") - F.lag("service").over(order)
    ahead = sent.withColumn("late", F.abs(apart - sealed))
    return ahead.where(F.col("late") <= STEADY_S).withColumn("ahead", F.col("wall") - F.col("came"))


def _skew(sent: DataFrame) -> DataFrame:
    """Give how far the clocks of which that can be said are ahead, at least."""
    latest = F.max("came").over(Window.partitionBy("gateway"))
    recent = _steady(sent).withColumn("latest", latest)
    known = recent.where(F.col("latest") - F.col("came") <= RECENT_S).groupBy("gateway")
    of = known.agg(F.max("ahead").alias("skew_s"), F.count(F.lit(1)).alias("segments"))
    return of.where(F.col("segments") >= STEADY).select(
        "gateway", F.round("skew_s", 3).alias("skew_s")
    )


def _drift(sent: DataFrame) -> DataFrame:
    """Give the median of how fast clocks run against service seconds, from hour to hour of a boot.

    Of those that were without synchronisation for long enough, that time alone tells: a clock that
    is kept right does not drift.
    """
    order = Window.partitionBy("gateway", "boot").orderBy("hour")
    hours = sent.groupBy("gateway", "boot", _hour()).agg(
        F.min(F.struct("service", "wall", "clock")).alias("it")
    )
    before = F.lag("it").over(order)
    passed = F.col("it.service") - before["service"]
    gained = F.col("it.wall") - before["wall"] - passed
    free = F.when(~F.col("it.clock") & ~before["clock"], gained / passed)
    slopes = hours.select("gateway", (gained / passed).alias("any"), free.alias("free"))
    known = slopes.groupBy("gateway").agg(
        *(F.median(name).alias(name) for name in ("any", "free")),
        *(F.count(name).alias(f"{name}_of") for name in ("any", "free")),
    )
    chosen = F.when(F.col("free_of") >= SLOPES, F.col("free"))
    chosen = chosen.when(F.col("any_of") >= SLOPES, F.col("any"))
    return known.select("gateway", F.round(chosen * 1e6, 1).alias("drift_ppm"))


def _gain(sent: DataFrame) -> DataFrame:
    """Give the median of how fast clocks gain on the centre's, by the promptest of each hour."""
    hours = (
        _steady(sent)
        .groupBy("gateway", "boot", _hour())
        .agg(F.max(F.struct("ahead", "came")).alias("it"))
    )
    earlier = hours.select(
        "gateway", "boot", (F.col("hour") + APART_H).alias("hour"), F.col("it").alias("was")
    )
    pairs = gathered(hours.join(earlier, on=["gateway", "boot", "hour"], how="inner"))
    slope = (F.col("it.ahead") - F.col("was.ahead")) / (F.col("it.came") - F.col("was.came"))
    known = pairs.groupBy("gateway").agg(F.median(slope).alias("slope"), F.count(slope).alias("of"))
    enough = known.where(F.col("of") >= SLOPES)
    return enough.select("gateway", F.round(F.col("slope") * 1e6, 1).alias("gain_ppm"))


def _hour() -> Column:
    return F.floor(F.col("service") / HOUR_S).alias("hour")


DAILY: Final = Summary("clocks", 1, DAYS, days)

REPORT: Final = Report(
    "clocks", SCHEMA, (DAILY,), lambda given: clocks(given.daily(DAILY), given.segments())
)
