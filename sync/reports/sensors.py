"""Silent sensors: sensors that have sent nothing for much longer than is usual for them.

Time is measured by the gateway's clock, up to its last event: a gateway that is off or unreachable,
or readings that still have to arrive, make no sensor silent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, IntegerType

from sync.reports.availability import silence_limits
from sync.reports.shared import column, remedies
from sync.reports.shared.events import is_system_event
from sync.reports.shared.findings import Findings
from sync.reports.shared.formats import duration, plain
from sync.reports.shared.frames import (
    INTEGER,
    REAL,
    TEXT,
    of_each_gateway,
    schema,
    seconds,
    time_at,
)
from sync.reports.shared.readings import ROWS, SENSOR, readings
from sync.reports.shared.report import Problem, ProblemKind, Report, Table
from sync.reports.shared.thresholds import (
    BACKLOG_S,
    MIN_INTERVAL_S,
    MIN_INTERVALS,
    MIN_SILENCE_S,
    RESET_EVENTS,
    SILENT_INTERVALS,
)
from sync.tables.partitions import conform
from sync.tables.summaries import Summary

TABLE: Final = Table(
    order=100,
    title="Silent sensors",
    about=(
        "A sensor is silent if nothing has arrived from it for longer than its limit: several "
        "times its usual interval, and at least a quarter of an hour. Time is measured by the "
        "gateway's clock, and not before the gateway's last start. A sensor is unknown until its "
        "usual interval is known, and while too little of its silence can be judged."
    ),
    columns=(
        column.text("gateway", "Gateway"),
        column.prose("source", "Device"),
        column.prose("sensor", "Sensor"),
        column.state("state", "State", {"ok": "good", "silent": "wrong"}),
        column.age("silence_s", "Silent for"),
        column.duration("limit_s", "Limit"),
        column.age("interval_s", "Usual interval"),
        column.number("readings", "Readings"),
        column.time("last", "Last reading"),
        column.time("told_until", "Known until"),
    ),
    empty="No sensor has sent a reading.",
)
"""A sensor: its device (`source`, a bare JID), and its topic, node and name (`sensor`, separated by
spaces). All times are by the gateway's clock.

`told_until`: the time of the gateway's last event that arrived or, while a backlog arrives, of its
last reading. `silence_s`: seconds from the sensor's `last` reading to `told_until`; its known part
begins after the gateway's last start or clock change, and after the last gap in its lane of
readings. `interval_s`: median seconds between two readings; `limit_s`: seconds without a reading
after which the sensor is silent; both null if too few intervals are known. `state`: `silent` (the
known part of `silence_s` exceeds `limit_s`), `unknown` (`limit_s` is null, or `silence_s` exceeds
it, but its known part does not), or `ok`."""

_SILENT: Final = ProblemKind("sensor_silent", 130, "wrong", "sensors are silent")

STEPS: Final = 8
"""Number of buckets per doubling of the interval between two readings. A bucket is 9 % wide, so the
median is off by at most this, and exact if all intervals of its bucket are equal. From a second to
a day there are 131 buckets."""

PLACE: Final = schema(epoch=TEXT, seq=INTEGER, at=REAL)
"""An event's place in its lane, and its time in seconds since 1970."""

BUCKET: Final = schema(step=IntegerType(), intervals=INTEGER, total_s=REAL)
"""Number of the intervals between readings in the bucket `step` (see `STEPS`), and their sum."""

DAYS: Final = schema(
    gateway=TEXT,
    source=TEXT,
    sensor=TEXT,
    readings=INTEGER,
    first=PLACE,
    last=PLACE,
    buckets=ArrayType(BUCKET),
)
"""A sensor's readings of a day: how many, the first, the last, and the intervals between them."""

LIVES: Final = schema(gateway=TEXT, last=PLACE, reset=PLACE, last_reading=PLACE)
"""The last event of a gateway's system lane, its last of `RESET_EVENTS`, and its last reading."""


def days(events: DataFrame) -> DataFrame:
    """Compute a row of `DAYS` for each sensor and day."""
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
    """Return the bucket (see `STEPS`) of the seconds in `gap`; null below `MIN_INTERVAL_S`."""
    length = F.log2(F.when(F.col("gap") >= MIN_INTERVAL_S, F.col("gap")))
    return F.floor(length * STEPS).cast("int")


def lives(events: DataFrame) -> DataFrame:
    """Compute a row of `LIVES` for each gateway and day, from its events of that day."""
    place = F.struct("epoch", "seq", seconds("time").alias("at"))
    system = F.col("lane") == "system"
    reset = is_system_event("system", *RESET_EVENTS)
    return events.groupBy("day", "gateway").agg(
        F.max(F.when(system, place)).alias("last"),
        F.max(F.when(reset, place)).alias("reset"),
        F.max(F.when(F.col("lane") == "readings", place)).alias("last_reading"),
    )


def sensors(days: DataFrame, lives: DataFrame, segments: DataFrame) -> DataFrame:
    """Compute the rows of `TABLE`, silent sensors first; `ROWS` at most.

    `days` has rows of `DAYS`, `lives` of `LIVES`. `segments` shows which readings have arrived.
    """
    last = days.groupBy(*SENSOR).agg(
        F.sum("readings").alias("readings"), F.max("last").alias("end")
    )
    known = last.join(_usual_interval(days), on=[*SENSOR], how="left")
    known = known.join(_known_until(lives, segments), on="gateway", how="left")
    known = known.join(silence_limits(segments), on="gateway", how="left").withColumns(
        {
            "silence_s": F.greatest(F.col("until") - F.col("end.at"), F.lit(0.0)),
            "known_s": F.col("until") - F.greatest("end.at", "reset", "resumed"),
            "limit_s": F.greatest(
                F.col("interval_s") * SILENT_INTERVALS, F.lit(MIN_SILENCE_S), "silent_after_s"
            ),
        }
    )
    state = (
        F.when(F.col("interval_s").isNull(), "unknown")
        .when(F.col("known_s") > F.col("limit_s"), "silent")
        .otherwise(F.when(F.col("silence_s") > F.col("limit_s"), "unknown").otherwise("ok"))
    )
    limit = F.when(F.col("interval_s").isNotNull(), F.col("limit_s"))
    rows = known.withColumns(
        {
            "state": state,
            "source": F.nullif("source", F.lit("")),
            "limit_s": limit,
            "last": time_at("end.at"),
            "told_until": time_at("until"),
        }
    )
    order = (F.col("state") != "silent", F.col("state") != "unknown", F.desc("silence_s"))
    shown = of_each_gateway(conform(rows, TABLE.schema), *order, *map(F.col, SENSOR))
    return shown.orderBy(*order, *SENSOR).limit(ROWS)


def _usual_interval(days: DataFrame) -> DataFrame:
    order = Window.partitionBy(*SENSOR).orderBy("first")
    between = days.withColumn("gap", F.col("first.at") - F.lag("last.at").over(order))
    overnight = F.struct(
        _step().alias("step"),
        F.lit(1).cast("long").alias("intervals"),
        F.col("gap").alias("total_s"),
    )
    each = between.select(*SENSOR, F.inline(F.array_append("buckets", overnight)))
    known = each.where(F.col("step").isNotNull())
    sums = known.groupBy(*SENSOR, "step").agg(
        F.sum("intervals").alias("intervals"), F.sum("total_s").alias("total_s")
    )
    of_sensor = Window.partitionBy(*SENSOR)
    below = F.sum("intervals").over(of_sensor.orderBy("step"))
    counted = sums.withColumn("below", below).withColumn("all", F.sum("intervals").over(of_sensor))
    upper = counted.where((F.col("below") * 2 >= F.col("all")) & (F.col("all") >= MIN_INTERVALS))
    mean = F.col("total_s") / F.col("intervals")
    return upper.groupBy(*SENSOR).agg(F.min_by(mean, F.col("step")).alias("interval_s"))


def _known_until(lives: DataFrame, segments: DataFrame) -> DataFrame:
    """Compute `until`, the time to which a gateway's readings are known (see `TABLE`).

    Only the time after `reset` and after `resumed` can be judged.
    """
    place = lives.groupBy("gateway").agg(
        F.max("last").alias("last"),
        F.max("reset").alias("reset"),
        F.max("last_reading").alias("last_reading"),
    )
    known = place.join(_backlog(segments), on="gateway", how="left")
    late = F.coalesce("late", F.lit(False))
    until = F.when(~late, F.greatest("last.at", "last_reading.at")).otherwise(
        F.col("last_reading.at")
    )
    return known.select(
        "gateway", until.alias("until"), F.col("reset.at").alias("reset"), "resumed"
    )


def _backlog(segments: DataFrame) -> DataFrame:
    """Compute whether a gateway's readings arrive `late`, and when they `resumed` after a gap."""
    accepted = segments.where(F.col("fate") == "accepted")
    order = Window.partitionBy("gateway", "epoch", "lane").orderBy("first_seq")
    before = F.coalesce(F.lag("last_seq").over(order), F.lit(0))
    of_readings = F.col("lane") == "readings"
    timed = accepted.withColumns(
        {
            "gap": of_readings & (F.col("first_seq") > before + 1),
            "came": seconds("arrived"),
            "sealed": seconds("sealed_at"),
            "latest": F.max(seconds("arrived")).over(Window.partitionBy("gateway")),
        }
    )
    now = of_readings & (F.col("latest") - F.col("came") <= 2 * BACKLOG_S)
    return timed.groupBy("gateway").agg(
        F.bool_or(now & (F.col("came") - F.col("sealed") > BACKLOG_S)).alias("late"),
        F.max(F.when(F.col("gap"), F.col("sealed"))).alias("resumed"),
    )


def problems(findings: Findings) -> Iterator[Problem]:
    """Find silent sensors."""
    for row in findings["sensors"]:
        if row["state"] == "silent":
            silence = row["silence_s"]
            silent = "" if silence is None else f", silent for {duration(silence)}"
            yield _SILENT.of(
                row["gateway"],
                f"Last reading at {findings.moment(row['last'])}{silent}. The sensor "
                f"usually sends a reading every {duration(row['interval_s'])}.",
                remedies.SENSOR_SILENT,
                f"{plain(row['source'])}, {row['sensor']}",
            )


DAILY: Final = Summary("sensors", 1, DAYS, days)
DAILY_LIVES: Final = Summary("sensor_lives", 1, LIVES, lives)

REPORT: Final = Report(
    "sensors",
    (DAILY, DAILY_LIVES),
    lambda context: sensors(context.daily(DAILY), context.daily(DAILY_LIVES), context.segments()),
    TABLE,
    problem_kinds=(_SILENT,),
    problems=problems,
)
