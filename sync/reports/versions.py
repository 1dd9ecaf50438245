"""Report 9, versions: which gateway runs what, and whether a version errs more than the last.

Compares what the same gateways told under both: a gateway that always had many errors makes no
version a bad one. Errors of devices count as well, since they are logged through the gateway.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sync.reports.columns import FLAG, NUMBER, REAL, TEXT, TIME, columns
from sync.reports.common import conform, seconds
from sync.reports.context import Report
from sync.tables.partitions import gathered
from sync.tables.summaries import Summary

SCHEMA: Final = columns(
    version=TEXT,
    gateways=NUMBER,
    current=NUMBER,
    first_seen=TIME,
    last_seen=TIME,
    gateway_days=REAL,
    events=NUMBER,
    errors=NUMBER,
    per_thousand=REAL,
    per_day=REAL,
    before=TEXT,
    compared=NUMBER,
    higher=NUMBER,
    ratio=REAL,
    worse=FLAG,
    caution=FLAG,
)
"""A version of Fieldpost. `gateways` that ever ran it, and that run it now (`current`); when it was
seen first and last, by clocks that were synchronised if there were any; for how many `gateway_days`
it ran; `events` under it and `errors` (of level Error and above), as `per_thousand` events and as
`per_day` of a gateway.

`before` is the version that was seen first before it. `compared` gateways ran both; on `higher` of
them the errors a day are more than they were. `ratio` is of the errors a day on these gateways, new
to old. `worse` is the judgement, `caution` tells that too little was seen for one."""

ERRORS: Final = ("Error", "Critical", "Alert", "Emergency")
"""The levels (XEP-0337) of events that count as errors."""

WORSE: Final = 2.0
"""How many times the errors a day of the version before make one worse: less than that comes and
goes with the weather, and with what people do."""

LEAST: Final = 10
"""Errors without which no version is worse, however few there were before."""

SIGMAS: Final = 4.0
"""By how many standard deviations the errors have to be more than the rate before lets expect, both
being counts (Poisson's): errors come in groups, so that it takes more than the usual two or three.
"""

MOST: Final = 0.5
"""The share of the compared gateways that have to have more errors a day: one broken device is none
of the version's faults."""

EXPOSED_D: Final = 1.0
"""Days of gateways, under each of the two versions, below which a judgement is with caution."""

UNTOLD: Final = "unknown"
"""What the version is called that no start and no segment told of."""

DAYS: Final = columns(
    gateway=TEXT,
    version=TEXT,
    events=NUMBER,
    errors=NUMBER,
    begin=TIME,
    end=TIME,
    known_begin=TIME,
    known_end=TIME,
    span_s=REAL,
)
"""Events from a start with a version (null: before the first start of the day; it goes on from the
day before) to the next start: from `begin` to `end`, which is `span_s`; the first and the last that
were told while the clock was synchronised (`known_begin`, `known_end`)."""


def days(events: DataFrame) -> DataFrame:
    """Give the rows of `DAYS` and `day`."""
    of_day = ("day", "gateway")
    joined = events.join(_changes(events), on=[*of_day], how="left")
    now = F.col("time")
    so_far = F.filter("changes", lambda change: change["time"] <= now)
    version = F.get(so_far, F.size(so_far) - 1)["version"]
    rows = joined.groupBy(*of_day, version.alias("version")).agg(
        F.count(F.lit(1)).alias("events"),
        F.count_if(F.col("level").isin(*ERRORS)).alias("errors"),
        F.min("time").alias("begin"),
        F.max("time").alias("end"),
        F.min(F.when(F.col("clock"), F.col("time"))).alias("known_begin"),
        F.max(F.when(F.col("clock"), F.col("time"))).alias("known_end"),
    )
    return rows.withColumn("span_s", seconds("end") - seconds("begin"))


def _changes(events: DataFrame) -> DataFrame:
    """Give, of each gateway's day, the starts with another version than the one before: few."""
    order = Window.partitionBy("day", "gateway").orderBy("time")
    version = F.element_at("tags", F.lit("version"))
    start = (F.col("kind") == "system") & (F.col("name") == "start") & version.isNotNull()
    starts = events.where((F.col("lane") == "system") & start).withColumn("version", version)
    other = starts.withColumn("before", F.lag("version").over(order))
    changed = other.where(F.col("before").isNull() | (F.col("before") != F.col("version")))
    return changed.groupBy("day", "gateway").agg(
        F.array_sort(F.collect_list(F.struct("time", "version"))).alias("changes")
    )


def versions(days: DataFrame, segments: DataFrame) -> DataFrame:
    """Give a row of `SCHEMA` for each version that an event was told under, the latest first."""
    ran = _ran(days, segments)
    rows = ran.groupBy("version").agg(
        F.count("gateway").alias("gateways"),
        F.count_if(F.col("version") == F.col("now")).alias("current"),
        F.coalesce(F.min("known_begin"), F.min("begin")).alias("first_seen"),
        F.coalesce(F.max("known_end"), F.max("end")).alias("last_seen"),
        F.sum("events").alias("events"),
        F.sum("errors").alias("errors"),
        F.sum("days").alias("gateway_days"),
        F.mode("before").alias("before"),
    )
    compared = rows.join(_compared(ran, rows), on="version", how="left")
    judged = compared.fillna(0, subset=["compared", "higher"]).withColumns(
        {
            "per_thousand": F.col("errors") / F.col("events") * 1000,
            "per_day": F.try_divide("errors", "gateway_days"),
            "ratio": F.try_divide(
                F.col("new") / F.col("new_days"), F.col("old") / F.col("old_days")
            ),
            "worse": F.coalesce(_worse(), F.lit(0).cast("boolean")),
            "caution": F.col("before").isNotNull()
            & ~F.coalesce(_enough(), F.lit(0).cast("boolean")),
        }
    )
    return conform(judged, SCHEMA).orderBy(F.desc("first_seen"), "version")


def _ran(days: DataFrame, segments: DataFrame) -> DataFrame:
    """Tell of each gateway and version how long it ran, what it told, and what ran `before`."""
    sent = segments.where(F.col("fate") == "accepted").groupBy("gateway")
    place = F.struct("epoch", "service_seconds", "software")
    headers = sent.agg(
        F.min(place)["software"].alias("at_first"), F.max(place)["software"].alias("now")
    )
    order = Window.partitionBy("gateway").orderBy("begin")
    told = F.last("version", ignorenulls=True).over(order)
    named = days.withColumn("told", told).join(headers, on="gateway", how="left")
    version = F.coalesce("told", "at_first", F.lit(UNTOLD))
    ran = named.groupBy("gateway", version.alias("version")).agg(
        F.any_value("now").alias("now"),
        F.min("begin").alias("begin"),
        F.max("end").alias("end"),
        F.min("known_begin").alias("known_begin"),
        F.max("known_end").alias("known_end"),
        F.sum("events").alias("events"),
        F.sum("errors").alias("errors"),
        (F.sum("span_s") / _DAY_S).alias("days"),
    )
    return ran.withColumn("before", F.lag("version").over(order))


def _compared(ran: DataFrame, rows: DataFrame) -> DataFrame:
    """Count errors and days of the gateways that ran a version and the one before it, of both."""
    new = ran.select(
        "gateway", "version", F.col("errors").alias("new"), F.col("days").alias("new_days")
    )
    old = ran.select(
        "gateway",
        F.col("version").alias("before"),
        F.col("errors").alias("old"),
        F.col("days").alias("old_days"),
    )
    both = gathered(new.join(rows.select("version", "before"), on="version", how="inner"))
    both = gathered(both.join(old, on=["gateway", "before"], how="inner"))
    known = both.where((F.col("new_days") > 0) & (F.col("old_days") > 0))
    higher = F.col("new") / F.col("new_days") > F.col("old") / F.col("old_days")
    return known.groupBy("version").agg(
        F.count("gateway").alias("compared"),
        F.count_if(higher).alias("higher"),
        *(F.sum(name).alias(name) for name in ("new", "new_days", "old", "old_days")),
    )


def _worse() -> Column:
    """Judge by the square roots of the counts, whose deviation does not depend on the rate."""
    exposed = F.col("new_days") / F.col("old_days")
    distance = F.sqrt(F.col("new") + 0.375) - F.sqrt((F.col("old") + 0.375) * exposed)
    deviations = distance * 2 / F.sqrt(exposed + 1)
    return (
        (F.col("new") >= LEAST)
        & (F.col("new") >= F.col("old") * exposed * WORSE)
        & (deviations >= SIGMAS)
        & (F.col("higher") >= F.col("compared") * MOST)
    )


def _enough() -> Column:
    return (F.col("new_days") >= EXPOSED_D) & (F.col("old_days") >= EXPOSED_D)


_DAY_S: Final = 86_400.0

DAILY: Final = Summary("versions", 1, DAYS, days)

REPORT: Final = Report(
    "versions", SCHEMA, (DAILY,), lambda given: versions(given.daily(DAILY), given.segments())
)
