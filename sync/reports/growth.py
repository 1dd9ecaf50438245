"""Report 11, growth: what gateways ship and keep, and when their storage will be full.

The forecast goes on with the trend of the last weeks: it knows of no change to come.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sync.reports.columns import NUMBER, REAL, TEXT, TIME, columns, number, tag
from sync.reports.common import conform, seconds
from sync.reports.context import Report
from sync.tables.partitions import gathered
from sync.tables.summaries import Summary

SCHEMA: Final = columns(
    gateway=TEXT,
    state=TEXT,
    days=NUMBER,
    shipped_day=REAL,
    events_day=REAL,
    disk_used=NUMBER,
    trend_day=REAL,
    trend_low=REAL,
    trend_high=REAL,
    cap=NUMBER,
    cap_from=TEXT,
    days_left=REAL,
    days_low=REAL,
    days_high=REAL,
    evicted=NUMBER,
    last_evicted=TIME,
)
"""A gateway. `state`: `full` (it gave up events in its last `EVICTED_H` hours, or has reached its
cap), `soon` (that is less than `SOON_D` days away) or `ok`.

`shipped_day`: bytes of segments a day, and `events_day`: events, medians of whole days, `days` of
them. `disk_used`: bytes that its folder takes, as told last. `trend_day`: bytes by which that grows
in a day, with the bounds of its interval. `cap`: bytes that the folder may take, and who says so
(`cap_from`: `gateway`, `operator`, or `default`, that of gateways that nobody set otherwise).
`days_left` until the cap, with the bounds of its interval; null where it does not grow or no cap is
known. `evicted`: events given up, the last time at `last_evicted`."""

SOON_D: Final = 30.0
"""Days before its storage is full at which somebody has to know: what needs a visit is planned by
the month."""

EVICTED_H: Final = 24.0
"""Hours before the last thing that a gateway told, in which an eviction makes it full now."""

CAP: Final = 1_073_741_824
"""Bytes that a gateway's database may take where nobody says otherwise: the default of
`[limits] database_bytes`, by far the most of what is in its folder."""

TREND_D: Final = 30
"""Days by which the trend is told: longer ago, housekeeping was another."""

POINT_S: Final = 21_600.0
"""Seconds of which the most that the folder took is one point of the trend: so a short history has
some as well, and a long one no more than 120."""

POINTS: Final = 6
"""Points that a trend needs: with fewer, its interval says nothing."""

Z: Final = 1.645
"""Of the normal distribution: the trend lies in its interval with 90 %."""

DAYS: Final = columns(
    gateway=TEXT, events=NUMBER, evicted=NUMBER, last_evicted=TIME, last=TIME, cap=NUMBER
)
"""Events; those that were given up, and when last; the last event; the cap, if it is told."""


def days(events: DataFrame) -> DataFrame:
    """Give the rows of `DAYS` and `day`.

    The cap is the tag `cap` of `system/wear`, in bytes.
    """
    system = F.col("lane") == "system"
    gone = system & (F.col("kind") == "uplink") & (F.col("name") == "evicted")
    wear = system & (F.col("kind") == "system") & (F.col("name") == "wear")
    count = F.coalesce(number(F.col("value")), F.lit(1))
    return events.groupBy("day", "gateway").agg(
        F.count(F.lit(1)).alias("events"),
        F.sum(F.when(gone, count).otherwise(0)).alias("evicted"),
        F.max(F.when(gone, F.col("time"))).alias("last_evicted"),
        F.max("time").alias("last"),
        F.max_by(tag("cap"), F.when(wear & (tag("cap") > 0), F.col("time"))).alias("cap"),
    )


def growth(days: DataFrame, segments: DataFrame, cap: int | None = None) -> DataFrame:
    """Give a row of `SCHEMA` for each gateway that has accepted segments.

    `cap` is what the operator says that the folder of a gateway may take, in bytes.
    """
    sent = segments.where(F.col("fate") == "accepted")
    rows = _shipped(sent)
    for part in (_told(days), _trend(sent)):
        rows = rows.join(part, on="gateway", how="left")
    operators = F.lit(cap).cast("long")
    judged = (
        rows.fillna(0, subset=["evicted"])
        .withColumn("cap_from", _whose(operators))
        .withColumn("cap", F.coalesce(operators, "told_cap", F.lit(CAP)))
        .withColumn("days_left", _days("trend_day"))
        .withColumn("days_low", _days("trend_high"))
        .withColumn("days_high", _days("trend_low"))
    )
    return conform(judged.withColumn("state", _state()), SCHEMA).orderBy("gateway")


def _whose(operators: Column) -> Column:
    told = F.when(F.col("told_cap").isNotNull(), "gateway").otherwise("default")
    return F.when(operators.isNotNull(), "operator").otherwise(told)


def _days(trend: str) -> Column:
    """Give the days until the cap, if the folder grows by so much a day."""
    room = F.greatest(F.col("cap") - F.col("disk_used"), F.lit(0))
    return F.round(F.when(F.col(trend) > 0, room / F.col(trend)), 1)


def _state() -> Column:
    evicting = F.col("last") - F.col("gone") <= EVICTED_H * 3_600
    soon = (F.col("days_left") < SOON_D) & F.col("days_high").isNotNull()
    return (
        F.when(evicting | (F.col("disk_used") >= F.col("cap")), "full")
        .when(soon, "soon")
        .otherwise("ok")
    )


def _whole_days(rows: DataFrame, column: str, name: str) -> DataFrame:
    """Give the median of a gateway's days, without its first and last if there are others."""
    of = Window.partitionBy("gateway")
    inner = (F.col("day") > F.col("first")) & (F.col("day") < F.col("end"))
    bounds = rows.withColumns({"first": F.min("day").over(of), "end": F.max("day").over(of)})
    whole = F.when(inner, F.col(column))
    medians = F.coalesce(F.median(whole), F.median(column)).alias(name)
    return bounds.groupBy("gateway").agg(medians, F.count(whole).alias("days"))


def _shipped(sent: DataFrame) -> DataFrame:
    """Give the bytes that are shipped on an ordinary day, and what the folder takes now."""
    day = F.to_date("sealed_at").alias("day")
    sizes = sent.groupBy("gateway", day).agg(F.sum("size").alias("size"))
    place = F.struct("epoch", "service_seconds", "disk_used", "sealed_at")
    last = sent.groupBy("gateway").agg(F.max(place)["disk_used"].alias("disk_used"))
    shipped = _whole_days(sizes, "size", "shipped_day")
    return gathered(shipped.join(last, on="gateway", how="inner"))


def _told(days: DataFrame) -> DataFrame:
    """Give the events of an ordinary day, those that were given up, and the cap that was told."""
    by_day = days.groupBy("gateway", "day").agg(F.sum("events").alias("events"))
    told = days.groupBy("gateway").agg(
        F.sum("evicted").alias("evicted"),
        F.max("last_evicted").alias("last_evicted"),
        F.max(seconds("last_evicted")).alias("gone"),
        F.max(seconds("last")).alias("last"),
        F.max_by("cap", F.when(F.col("cap").isNotNull(), F.col("day"))).alias("told_cap"),
    )
    events = _whole_days(by_day, "events", "events_day").drop("days")
    return gathered(events.join(told, on="gateway", how="inner"))


def _trend(sent: DataFrame) -> DataFrame:
    """Give the trend of what the folder takes, in bytes a day, and its interval.

    It is the median of the slopes between any two points (Theil and Sen), and the interval is of
    the slopes that Kendall's tau gives: single peaks change little, and no distribution is assumed,
    but that points are independent, which they are not quite: it is a little too narrow.
    """
    at = seconds("sealed_at")
    end = F.max_by(at, F.struct("epoch", "service_seconds")).over(Window.partitionBy("gateway"))
    recent = sent.select("gateway", at.alias("at"), end.alias("end"), "disk_used").where(
        F.col("end") - F.col("at") <= TREND_D * _DAY_S
    )
    points = recent.groupBy("gateway", F.floor(F.col("at") / POINT_S).alias("point")).agg(
        F.max("disk_used").alias("used")
    )
    later = points.select("gateway", F.col("point").alias("to"), F.col("used").alias("then"))
    pairs = gathered(points.join(later, on="gateway", how="inner"))
    pairs = pairs.where(F.col("to") > F.col("point"))
    apart = (F.col("to") - F.col("point")) * (POINT_S / _DAY_S)
    slopes = pairs.groupBy("gateway").agg(
        F.array_sort(F.collect_list((F.col("then") - F.col("used")) / apart)).alias("slopes")
    )
    known = points.groupBy("gateway").agg(F.count(F.lit(1)).alias("points"))
    enough = known.where(F.col("points") >= POINTS)
    of = gathered(slopes.join(enough, on="gateway", how="inner"))
    pairs_of, n = F.size("slopes"), F.col("points")
    width = F.sqrt(n * (n - 1) * (2 * n + 5) / 18) * Z
    return of.select(
        "gateway",
        ((_slope((pairs_of - 1) / 2) + _slope(pairs_of / 2)) / 2).alias("trend_day"),
        _slope((pairs_of - width) / 2 - 1).alias("trend_low"),
        _slope((pairs_of + width) / 2).alias("trend_high"),
    )


def _slope(place: Column) -> Column:
    """Give the slope at that place of all of them in their order."""
    last = F.size("slopes") - 1
    return F.get("slopes", F.least(F.greatest(place.cast("int"), F.lit(0)), last))


_DAY_S: Final = 86_400.0

DAILY: Final = Summary("growth", 1, DAYS, days)

REPORT: Final = Report(
    "growth",
    SCHEMA,
    (DAILY,),
    lambda given: growth(given.daily(DAILY), given.segments(), given.cap),
)
