"""Storage growth: what gateways send and store, and when their storage will be full.

The forecast continues the trend of the last weeks, and ignores planned changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sync.reports.shared import column, formats
from sync.reports.shared.events import is_system_event, occurrences, tag
from sync.reports.shared.findings import Findings
from sync.reports.shared.formats import plural, size
from sync.reports.shared.frames import INTEGER, TEXT, TIME, schema, seconds
from sync.reports.shared.report import Problem, ProblemKind, Report, Table
from sync.tables.partitions import coalesced, conform
from sync.tables.summaries import Summary

TABLE: Final = Table(
    order=140,
    title="Storage growth",
    about=(
        "What gateways send and store in a day, and in how many days their storage will reach its "
        "limit: the forecast, and its 90 % interval."
    ),
    columns=(
        column.text("gateway", "Gateway"),
        column.state("state", "State", {"ok": "good", "full": "wrong", "soon": "wrong"}),
        column.real("days_left", "Full in", formats.days),
        column.real("days_low", "Full in, at least", formats.days),
        column.real("days_high", "Full in, at most", formats.days),
        column.number("disk_used", "Used", size),
        column.number("cap", "Limit", size),
        column.text("cap_from", "Limit set by"),
        column.real("trend_day", "Growth a day", size),
        column.real("trend_low", "Growth, at least", size),
        column.real("trend_high", "Growth, at most", size),
        column.real("shipped_day", "Sent a day", size),
        column.real("events_day", "Events a day", formats.count),
        column.number("days", "Days measured"),
        column.alarm("evicted", "Dropped events"),
        column.time("last_evicted", "Last dropped"),
    ),
)
"""A gateway. `state`: `full` (it dropped events in its last `EVICTED_H` hours, or has reached its
limit), `soon` (it certainly grows, and reaches its limit in less than `SOON_D` days) or `ok`.

`shipped_day` and `events_day`: bytes of segments and events a day, medians of `days` whole days.
`disk_used`: bytes of its folder, as last reported. `trend_day`: bytes by which the folder grows in
a day, with the bounds of its 90 % interval. `cap`: the limit for `disk_used` in bytes. `cap_from`:
who set it: the `operator`, the `gateway` (the limit of its database), or `default` if none is known
(`DEFAULT_CAP`). `days_left`: days until the limit, with the bounds of the
90 % interval; null if the folder does not grow. `evicted`: events that were dropped, last at
`last_evicted`."""

SOON_D: Final = 30.0
"""Storage that will be full in fewer days is a problem, because visits are planned by the month."""

EVICTED_H: Final = 24.0
"""Length in hours of the period before a gateway's last event. If it dropped events in this period,
its storage counts as full."""

DEFAULT_CAP: Final = 1_073_741_824
"""Limit in bytes of a gateway's folder if none is known: the default of `[limits] database_bytes`.
The database is by far the largest part of the folder."""

TREND_D: Final = 30
"""Number of latest days that determine the trend of a folder's size."""

POINT_S: Final = 21_600.0
"""Seconds between two points of a trend: each is the greatest size of a folder in this time. So a
short history has enough points, and one of `TREND_D` days has 120."""

MIN_POINTS: Final = 6
"""Minimum points (see `POINT_S`) of a trend: from fewer, its confidence interval is useless."""

INTERVAL_Z: Final = 1.645
"""The quantile of the normal distribution for an interval of 90 %."""

DAYS: Final = schema(
    gateway=TEXT, events=INTEGER, evicted=INTEGER, last_evicted=TIME, last=TIME, cap=INTEGER
)
"""Of a gateway and a day: the number of events; the number of dropped events, and the time of the
last drop; the time of the last event; the maximum size of its database in bytes, if reported."""


def days(events: DataFrame) -> DataFrame:
    """Compute the rows of `DAYS` for each `day`; `cap` is a tag of the event `system/wear`."""
    dropped = is_system_event("uplink", "evicted")
    wear = is_system_event("system", "wear")
    return events.groupBy("day", "gateway").agg(
        F.count(F.lit(1)).alias("events"),
        F.sum(F.when(dropped, occurrences()).otherwise(0)).alias("evicted"),
        F.max(F.when(dropped, F.col("time"))).alias("last_evicted"),
        F.max("time").alias("last"),
        F.max_by(tag("cap"), F.when(wear & (tag("cap") > 0), F.col("time"))).alias("cap"),
    )


def growth(days: DataFrame, segments: DataFrame, cap: int | None = None) -> DataFrame:
    """Compute a row of `TABLE` for each gateway that has accepted segments.

    `days` has rows of `DAYS`. `cap` is the operator's limit of each gateway's folder, in bytes.
    """
    sent = segments.where(F.col("fate") == "accepted")
    rows = _shipped(sent)
    for part in (_recorded(days), _trend(sent)):
        rows = rows.join(part, on="gateway", how="left")
    operators = F.lit(cap).cast("long")
    reported = F.when(F.col("reported_cap").isNotNull(), "gateway").otherwise("default")
    cap_from = F.when(operators.isNotNull(), "operator").otherwise(reported)
    judged = (
        rows.fillna(0, subset=["evicted"])
        .withColumn("cap_from", cap_from)
        .withColumn("cap", F.coalesce(operators, "reported_cap", F.lit(DEFAULT_CAP)))
        .withColumn("days_left", _days_left("trend_day"))
        .withColumn("days_low", _days_left("trend_high"))
        .withColumn("days_high", _days_left("trend_low"))
    )
    return conform(judged.withColumn("state", _state()), TABLE.schema).orderBy("gateway")


def _days_left(trend: str) -> Column:
    free = F.greatest(F.col("cap") - F.col("disk_used"), F.lit(0))
    return F.round(F.when(F.col(trend) > 0, free / F.col(trend)), 1)


def _state() -> Column:
    dropping = F.col("last") - F.col("last_dropped") <= EVICTED_H * 3_600
    soon = (F.col("days_left") < SOON_D) & F.col("days_high").isNotNull()
    return (
        F.when(dropping | (F.col("disk_used") >= F.col("cap")), "full")
        .when(soon, "soon")
        .otherwise("ok")
    )


def _median_day(rows: DataFrame, column: str, name: str) -> DataFrame:
    """Compute the median of a column over a gateway's days, and how many `days` were whole.

    The first and the last day are not whole, and count only if there are no others.
    """
    of_gateway = Window.partitionBy("gateway")
    inner = (F.col("day") > F.col("first")) & (F.col("day") < F.col("end"))
    bounds = rows.withColumns(
        {"first": F.min("day").over(of_gateway), "end": F.max("day").over(of_gateway)}
    )
    whole = F.when(inner, F.col(column))
    medians = F.coalesce(F.median(whole), F.median(column)).alias(name)
    return bounds.groupBy("gateway").agg(medians, F.count(whole).alias("days"))


def _shipped(sent: DataFrame) -> DataFrame:
    """Compute the bytes that are sent on a median day, and the last reported size of the folder."""
    day = F.to_date("sealed_at").alias("day")
    sizes = sent.groupBy("gateway", day).agg(F.sum("size").alias("size"))
    place = F.struct("epoch", "service_seconds", "disk_used", "sealed_at")
    last = sent.groupBy("gateway").agg(F.max(place)["disk_used"].alias("disk_used"))
    shipped = _median_day(sizes, "size", "shipped_day")
    return coalesced(shipped.join(last, on="gateway", how="inner"))


def _recorded(days: DataFrame) -> DataFrame:
    """Compute the events of a median day, dropped events, and the last limit that was reported."""
    by_day = days.groupBy("gateway", "day").agg(F.sum("events").alias("events"))
    sums = days.groupBy("gateway").agg(
        F.sum("evicted").alias("evicted"),
        F.max("last_evicted").alias("last_evicted"),
        F.max(seconds("last_evicted")).alias("last_dropped"),
        F.max(seconds("last")).alias("last"),
        F.max_by("cap", F.when(F.col("cap").isNotNull(), F.col("day"))).alias("reported_cap"),
    )
    events = _median_day(by_day, "events", "events_day").drop("days")
    return coalesced(events.join(sums, on="gateway", how="inner"))


def _trend(sent: DataFrame) -> DataFrame:
    """Compute the growth of the folder in bytes a day, and its 90 % interval.

    The trend is the median of the slopes between any two points (Theil and Sen), and the interval
    is derived from Kendall's tau: single peaks change little, and no distribution is assumed.
    Points are assumed to be independent, which they are not quite, so the interval is a little too
    narrow.
    """
    at = seconds("sealed_at")
    end = F.max_by(at, F.struct("epoch", "service_seconds")).over(Window.partitionBy("gateway"))
    recent = sent.select("gateway", at.alias("at"), end.alias("end"), "disk_used").where(
        F.col("end") - F.col("at") <= TREND_D * _DAY_S
    )
    points = recent.groupBy("gateway", F.floor(F.col("at") / POINT_S).alias("point")).agg(
        F.max("disk_used").alias("used")
    )
    number = F.count("point").over(Window.partitionBy("gateway"))
    points = points.withColumn("points", number).where(F.col("points") >= MIN_POINTS)
    later = points.select("gateway", F.col("point").alias("to"), F.col("used").alias("then"))
    pairs = coalesced(points.join(later, on="gateway", how="inner"))
    pairs = pairs.where(F.col("to") > F.col("point"))
    apart = (F.col("to") - F.col("point")) * (POINT_S / _DAY_S)
    rows = pairs.groupBy("gateway", "points").agg(
        F.array_sort(F.collect_list((F.col("then") - F.col("used")) / apart)).alias("slopes")
    )
    pairs_of, n = F.size("slopes"), F.col("points")
    width = F.sqrt(n * (n - 1) * (2 * n + 5) / 18) * INTERVAL_Z
    return rows.select(
        "gateway",
        ((_slope((pairs_of - 1) / 2) + _slope(pairs_of / 2)) / 2).alias("trend_day"),
        _slope((pairs_of - width) / 2 - 1).alias("trend_low"),
        _slope((pairs_of + width) / 2).alias("trend_high"),
    )


def _slope(place: Column) -> Column:
    """Return the slope at index `place` of the sorted `slopes`; the nearest if out of range."""
    last = F.size("slopes") - 1
    return F.get("slopes", F.least(F.greatest(place.cast("int"), F.lit(0)), last))


_DAY_S: Final = 86_400.0

_FULL: Final = ProblemKind("disk_full_soon", 70, "wrong", "storage is full, or will be soon")


def problems(findings: Findings) -> Iterator[Problem]:
    """Find gateways whose storage is full, or will be soon."""
    for row in findings["growth"]:
        if row["state"] not in ("full", "soon"):
            continue
        what = f"{size(row['disk_used'])} of {size(row['cap'])} used"
        if row["evicted"]:
            what += f", {plural(row['evicted'], 'event')} dropped for lack of space"
        if row["state"] == "soon":
            span = f"{formats.days(row['days_low'])} to {formats.days(row['days_high'])}"
            what += f"; full in {formats.days(row['days_left'])} ({span})"
        yield _FULL.of(
            row["gateway"],
            f"{what}.",
            "`fieldpost status` at the gateway shows which limit is nearly reached, and "
            "`fieldpost uplink status` whether it sends what it stores. Repair its link, or raise "
            "the limit in its configuration if its card has space.",
        )


DAILY: Final = Summary("growth", 1, DAYS, days)

REPORT: Final = Report(
    "growth",
    (DAILY,),
    lambda context: growth(context.daily(DAILY), context.segments(), context.cap),
    TABLE,
    problem_kinds=(_FULL,),
    problems=problems,
)
