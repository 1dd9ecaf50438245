"""Report 7, silent sensors: of which nothing came for much longer than is usual with them.

Time is the gateway's own, up to what it told last: a gateway that is off or away, and readings that
are still to come in, make no sensor silent.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, IntegerType

from sync.reports.availability import patience
from sync.reports.columns import NUMBER, REAL, TEXT, TIME, columns
from sync.reports.common import conform, seconds
from sync.reports.context import Report
from sync.reports.readings import ROWS, SENSOR, readings
from sync.reports.thresholds import BATCH_S, FLOOR_S, INTERVALS, LATE_S, RESETS, TIMES
from sync.tables.summaries import Summary

SCHEMA: Final = columns(
    gateway=TEXT,
    source=TEXT,
    sensor=TEXT,
    state=TEXT,
    readings=NUMBER,
    interval_s=REAL,
    limit_s=REAL,
    last=TIME,
    silence_s=REAL,
    told_until=TIME,
)
"""A sensor: who sent it (`source`, a bare JID), and its topic, its node and its name (`sensor`, a
space between).

`state`: `silent`: nothing for more than `limit_s`; `unknown`: it has no limit yet, or nothing came
for longer, and of too much of that time it is not known what was read; `ok` otherwise. `interval_s`
is the median of the seconds between two readings (null with few), `silence_s` those since the
`last` one up to `told_until`, both by the gateway's clock."""

STEPS: Final = 8
"""Buckets for each doubling of an interval: they are 9 % wide, and a median is as exact, or quite
exact where all intervals in its bucket are the same. From a second to a day are 131 buckets."""

PLACE: Final = columns(epoch=TEXT, seq=NUMBER, at=REAL)
"""An event's place in its lane, and when it was, in seconds since 1970."""

BUCKET: Final = columns(step=IntegerType(), intervals=NUMBER, total_s=REAL)
"""How many intervals are of one length (`STEPS`), and the sum of them."""

DAYS: Final = columns(
    gateway=TEXT,
    source=TEXT,
    sensor=TEXT,
    readings=NUMBER,
    first=PLACE,
    last=PLACE,
    buckets=ArrayType(BUCKET),
)
"""The readings of a sensor: how many, the first, the last, and the intervals between them."""

LIVES: Final = columns(gateway=TEXT, last=PLACE, reset=PLACE, last_reading=PLACE)
"""What a gateway told last in its system lane, the last of `RESETS` of it, and the last reading."""


def days(events: DataFrame) -> DataFrame:
    """Give the rows of `DAYS` and `day`."""
    by = ("day", *SENSOR)
    order = Window.partitionBy(*by, "epoch").orderBy("seq")
    at = readings(events).withColumn("at", seconds("time"))
    place = F.struct("epoch", "seq", "at")
    between = at.withColumn("gap", F.col("at") - F.lag("at").over(order))
    stepped = (
        between.withColumn("step", _step())
        .groupBy(*by, "step")
        .agg(
            F.count(F.lit(1)).alias("readings"),
            F.sum("gap").alias("total_s"),
            F.min(place).alias("first"),
            F.max(place).alias("last"),
        )
    )
    bucket = F.struct("step", F.col("readings").alias("intervals"), "total_s")
    return stepped.groupBy(*by).agg(
        F.sum("readings").alias("readings"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.collect_list(F.when(F.col("step").isNotNull(), bucket)).alias("buckets"),
    )


def _step() -> Column:
    """Give the bucket of the seconds in `gap`; null for what is no interval."""
    length = F.log2(F.when(F.col("gap") >= BATCH_S, F.col("gap")))
    return F.floor(length * STEPS).cast("int")


def lives(events: DataFrame) -> DataFrame:
    """Give the rows of `LIVES` and `day`."""
    place = F.struct("epoch", "seq", seconds("time").alias("at"))
    system = F.col("lane") == "system"
    reset = system & (F.col("kind") == "system") & F.col("name").isin(*RESETS)
    return events.groupBy("day", "gateway").agg(
        F.max(F.when(system, place)).alias("last"),
        F.max(F.when(reset, place)).alias("reset"),
        F.max(F.when(F.col("lane") == "readings", place)).alias("last_reading"),
    )


def sensors(days: DataFrame, lives: DataFrame, segments: DataFrame) -> DataFrame:
    """Give the rows of `SCHEMA`, silent ones first; `ROWS` at most.

    `segments` (`sync.tables.tables`) tell which readings are in.
    """
    last = days.groupBy(*SENSOR).agg(
        F.sum("readings").alias("readings"), F.max("last").alias("end")
    )
    told = last.join(_usual(days), on=[*SENSOR], how="left")
    told = told.join(_known(lives, segments), on="gateway", how="left")
    told = told.join(patience(segments), on="gateway", how="left").withColumns(
        {
            "silence_s": F.greatest(F.col("until") - F.col("end.at"), F.lit(0.0)),
            "known_s": F.col("until") - F.greatest("end.at", "reset", "resumed"),
            "limit_s": F.greatest(F.col("interval_s") * TIMES, F.lit(FLOOR_S), "silent_after_s"),
        }
    )
    state = (
        F.when(F.col("interval_s").isNull(), "unknown")
        .when(F.col("known_s") > F.col("limit_s"), "silent")
        .otherwise(F.when(F.col("silence_s") > F.col("limit_s"), "unknown").otherwise("ok"))
    )
    limit = F.when(F.col("interval_s").isNotNull(), F.col("limit_s"))
    rows = told.withColumns(
        {
            "state": state,
            "source": F.nullif("source", F.lit("")),
            "limit_s": limit,
            "last": F.timestamp_seconds("end.at"),
            "told_until": F.timestamp_seconds("until"),
        }
    )
    order = (F.col("state") != "silent", F.col("state") != "unknown", F.desc("silence_s"))
    return conform(rows, SCHEMA).orderBy(*order, *SENSOR).limit(ROWS)


def _usual(days: DataFrame) -> DataFrame:
    """Give the median interval (s) of the sensors of which at least `INTERVALS` are known."""
    order = Window.partitionBy(*SENSOR).orderBy("first")
    between = days.withColumn("gap", F.col("first.at") - F.lag("last.at").over(order))
    night = F.struct(
        _step().alias("step"),
        F.lit(1).cast("long").alias("intervals"),
        F.col("gap").alias("total_s"),
    )
    each = between.select(*SENSOR, F.explode(F.array_append("buckets", night)).alias("of"))
    known = each.where(F.col("of.step").isNotNull())
    sums = known.groupBy(*SENSOR, F.col("of.step").alias("step")).agg(
        F.sum("of.intervals").alias("intervals"), F.sum("of.total_s").alias("total_s")
    )
    all_of = Window.partitionBy(*SENSOR)
    below = F.sum("intervals").over(all_of.orderBy("step"))
    counted = sums.withColumn("below", below).withColumn("all", F.sum("intervals").over(all_of))
    upper = counted.where((F.col("below") * 2 >= F.col("all")) & (F.col("all") >= INTERVALS))
    mean = F.col("total_s") / F.col("intervals")
    return upper.groupBy(*SENSOR).agg(F.min_by(mean, F.col("step")).alias("interval_s"))


def _known(lives: DataFrame, segments: DataFrame) -> DataFrame:
    """Say of each gateway up to when its readings are in, and since when they can be judged."""
    place = lives.groupBy("gateway").agg(
        F.max("last").alias("last"),
        F.max("reset").alias("reset"),
        F.max("last_reading").alias("last_reading"),
    )
    told = place.join(_backlog(segments), on="gateway", how="left")
    late = F.coalesce("late", F.lit(0).cast("boolean"))
    until = F.when(~late, F.greatest("last.at", "last_reading.at")).otherwise(
        F.col("last_reading.at")
    )
    return told.select("gateway", until.alias("until"), F.col("reset.at").alias("reset"), "resumed")


def _backlog(segments: DataFrame) -> DataFrame:
    """Say whether readings come in `late` still, and when they `resumed` after the last hole."""
    accepted = segments.where(F.col("fate") == "accepted")
    order = Window.partitionBy("gateway", "epoch", "lane").orderBy("first_seq")
    before = F.coalesce(F.lag("last_seq").over(order), F.lit(0))
    of_readings = F.col("lane") == "readings"
    timed = accepted.withColumns(
        {
            "hole": of_readings & (F.col("first_seq") > before + 1),
            "came": seconds("arrived"),
            "sealed": seconds("sealed_at"),
            "latest": F.max(seconds("arrived")).over(Window.partitionBy("gateway")),
        }
    )
    now = of_readings & (F.col("latest") - F.col("came") <= 2 * LATE_S)
    return timed.groupBy("gateway").agg(
        F.bool_or(now & (F.col("came") - F.col("sealed") > LATE_S)).alias("late"),
        F.max(F.when(F.col("hole"), F.col("sealed"))).alias("resumed"),
    )


DAILY: Final = Summary("sensors", 1, DAYS, days)
DAILY_LIVES: Final = Summary("sensor_lives", 1, LIVES, lives)

REPORT: Final = Report(
    "sensors",
    SCHEMA,
    (DAILY, DAILY_LIVES),
    lambda given: sensors(given.daily(DAILY), given.daily(DAILY_LIVES), given.segments()),
)
