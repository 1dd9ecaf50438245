"""Versions: which gateways run which version, and whether a version has more errors than the last.

Compares what the same gateways recorded under both versions: a gateway that always had many errors
does not make a version worse. Errors of devices count too, because they are logged through the
gateway.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sync.reports.shared import column
from sync.reports.shared.events import ERROR_LEVELS, is_system_event, text_tag
from sync.reports.shared.findings import Findings
from sync.reports.shared.formats import count, decimal, or_unknown, plural
from sync.reports.shared.frames import INTEGER, OLDER, REAL, TEXT, TIME, schema, seconds
from sync.reports.shared.report import Problem, ProblemKind, Report, Table
from sync.tables.partitions import coalesced, conform
from sync.tables.summaries import Summary

GATEWAY_VERSIONS: Final = 100
"""Maximum versions of one gateway that have a row of their own: that many upgrades take years. One
gateway that invents versions does not lengthen the table for all."""

TABLE: Final = Table(
    order=130,
    title="Versions",
    about=(
        "Which versions of Fieldpost run, and whether one has more errors than the version before "
        "it, on the gateways that ran both. The versions of a gateway before its latest "
        f"{count(GATEWAY_VERSIONS)} are in one row, {OLDER}."
    ),
    columns=(
        column.text("version", "Version"),
        column.number("current", "Gateways now"),
        column.number("gateways", "Gateways ever"),
        column.flag("worse", "More errors"),
        column.flag("caution", "Too little data"),
        column.real("per_thousand", "Errors per 1,000 events", decimal),
        column.real("per_day", "Errors a day", or_unknown(decimal)),
        column.text("before", "Compared with"),
        column.number("compared", "Gateways that ran both"),
        column.number("higher", "More errors on"),
        column.real("ratio", "Times as many errors", decimal),
        column.number("events", "Events"),
        column.number("errors", "Errors"),
        column.real("gateway_days", "Gateway days", decimal),
        column.time("first_seen", "First seen"),
        column.time("last_seen", "Last seen"),
    ),
)
"""A version of Fieldpost: the `gateways` that ever ran it, and that run it now (`current`); when it
was seen first and last, by synchronised clocks if there were any; for how many `gateway_days` it
ran; `events` recorded under it and `errors` (of level Error and above), as `per_thousand` events
and as `per_day` of a gateway.

`before` is the version that most of its gateways ran before it. `compared` gateways ran both;
`higher` of them have more errors a day than before. `ratio` is the errors a day of the compared
gateways, new to old. `worse` is the judgement; `caution` says that it rests on too little data."""

WORSE_RATIO: Final = 2.0
"""Minimum ratio of a worse version's errors a day to those of the version before: a smaller
increase may come from the weather, or from what people do."""

MIN_ERRORS: Final = 10
"""Number of errors below which a version is not `worse`, even if the version before had none."""

SIGMAS: Final = 4.0
"""Minimum excess of a worse version's errors over what the earlier rate predicts, in standard
deviations of Poisson counts. Two or three are not enough, because errors come in groups."""

MIN_HIGHER: Final = 0.5
"""A version is `worse` only if at least this share of the compared gateways have more errors a day
with it than before: one broken device is not the version's fault."""

MIN_EXPOSURE_D: Final = 1.0
"""Days, summed over the compared gateways, that both versions must have run to avoid `caution`."""

MIN_RATE_D: Final = 1 / 24
"""Minimum days that a version ran, summed over gateways, to compute its errors a day: one error in
a second is not 86,400 errors a day."""

UNKNOWN: Final = "unknown"
"""The version of events before any start or segment named one."""

DAYS: Final = schema(
    gateway=TEXT,
    version=TEXT,
    events=INTEGER,
    errors=INTEGER,
    begin=TIME,
    end=TIME,
    known_begin=TIME,
    known_end=TIME,
    span_s=REAL,
)
"""Events of a gateway on one day under one version, from the first at `begin` to the last at `end`,
`span_s` seconds later. Start events name the version; before the first one of a day, `version` is
null, because the last version of an earlier day was still running. `known_begin` and `known_end`
are the times of the first and the last event with a synchronised clock."""


def days(events: DataFrame) -> DataFrame:
    """Compute the rows of `DAYS` for each `day`."""
    named = F.when(is_system_event("system", "start"), text_tag("version"))
    start = F.when(named.isNotNull(), F.struct("time", named.alias("version")))
    so_far = Window.partitionBy("day", "gateway").orderBy("time")
    running = events.withColumn("version", F.max(start).over(so_far)["version"])
    rows = running.groupBy("day", "gateway", "version").agg(
        F.count(F.lit(1)).alias("events"),
        F.count_if(F.col("level").isin(*ERROR_LEVELS)).alias("errors"),
        F.min("time").alias("begin"),
        F.max("time").alias("end"),
        F.min(F.when(F.col("clock"), F.col("time"))).alias("known_begin"),
        F.max(F.when(F.col("clock"), F.col("time"))).alias("known_end"),
    )
    # events with implausible times have the day of their arrival, and may be years apart
    span_s = F.least(seconds("end") - seconds("begin"), F.lit(_DAY_S))
    return rows.withColumn("span_s", span_s)


def versions(days: DataFrame, segments: DataFrame) -> DataFrame:
    """Compute a row of `TABLE` for each version in `days` (rows of `DAYS`), the latest first."""
    by_gateway = _by_gateway(days, segments)
    rows = by_gateway.groupBy("version").agg(
        F.count("gateway").alias("gateways"),
        F.count_if(F.col("version") == F.col("now")).alias("current"),
        F.coalesce(F.min("known_begin"), F.min("begin")).alias("first_seen"),
        F.coalesce(F.max("known_end"), F.max("end")).alias("last_seen"),
        F.sum("events").alias("events"),
        F.sum("errors").alias("errors"),
        F.sum("days").alias("gateway_days"),
        F.mode("before").alias("before"),
    )
    compared = rows.join(_compared(by_gateway, rows), on="version", how="left")
    enough = F.least("new_days", "old_days") >= MIN_EXPOSURE_D
    judged = compared.fillna(0, subset=["compared", "higher"]).withColumns(
        {
            "per_thousand": F.col("errors") / F.col("events") * 1000,
            "per_day": F.when(
                F.col("gateway_days") >= MIN_RATE_D, F.col("errors") / F.col("gateway_days")
            ),
            "ratio": F.try_divide(
                F.col("new") / F.col("new_days"), F.col("old") / F.col("old_days")
            ),
            "worse": F.coalesce(_worse(), F.lit(False)),
            "caution": F.col("before").isNotNull() & ~F.coalesce(enough, F.lit(False)),
        }
    )
    return conform(judged, TABLE.schema).orderBy(F.desc("first_seen"), "version")


def _by_gateway(days: DataFrame, segments: DataFrame) -> DataFrame:
    """Sum up what each gateway recorded under each version, and add the version `before` it."""
    sent = segments.where(F.col("fate") == "accepted").groupBy("gateway")
    place = F.struct("epoch", "service_seconds", "software")
    headers = sent.agg(
        F.min(place)["software"].alias("at_first"), F.max(place)["software"].alias("now")
    )
    order = Window.partitionBy("gateway").orderBy("begin")
    latest = F.last("version", ignorenulls=True).over(order)
    named = days.withColumn("latest", latest).join(headers, on="gateway", how="left")
    version = F.coalesce("latest", "at_first", F.lit(UNKNOWN))
    every = _sums(named.withColumn("version", version))
    newest = Window.partitionBy("gateway").orderBy(
        F.coalesce(F.col("version") == F.col("now"), F.lit(False)).desc(), F.desc("end"), "version"
    )
    told_apart = F.row_number().over(newest) <= GATEWAY_VERSIONS
    by_gateway = _sums(
        every.withColumn("version", F.when(told_apart, F.col("version")).otherwise(OLDER))
    )
    before = F.when(F.col("version") != OLDER, F.nullif(F.lag("version").over(order), F.lit(OLDER)))
    return by_gateway.withColumns({"before": before, "days": F.col("span_s") / _DAY_S})


def _sums(rows: DataFrame) -> DataFrame:
    return rows.groupBy("gateway", "version").agg(
        F.any_value("now").alias("now"),
        F.min("begin").alias("begin"),
        F.max("end").alias("end"),
        F.min("known_begin").alias("known_begin"),
        F.max("known_end").alias("known_end"),
        *(F.sum(name).alias(name) for name in ("events", "errors", "span_s")),
    )


def _compared(by_gateway: DataFrame, rows: DataFrame) -> DataFrame:
    """Sum up errors and days under a version and the one before it, of gateways that ran both."""
    new = by_gateway.select(
        "gateway", "version", F.col("errors").alias("new"), F.col("days").alias("new_days")
    )
    old = by_gateway.select(
        "gateway",
        F.col("version").alias("before"),
        F.col("errors").alias("old"),
        F.col("days").alias("old_days"),
    )
    both = coalesced(new.join(rows.select("version", "before"), on="version", how="inner"))
    both = coalesced(both.join(old, on=["gateway", "before"], how="inner"))
    known = both.where((F.col("new_days") > 0) & (F.col("old_days") > 0))
    higher = F.col("new") / F.col("new_days") > F.col("old") / F.col("old_days")
    return known.groupBy("version").agg(
        F.count("gateway").alias("compared"),
        F.count_if(higher).alias("higher"),
        *(F.sum(name).alias(name) for name in ("new", "new_days", "old", "old_days")),
    )


def _worse() -> Column:
    """Return whether a version is worse; square roots make the deviations of counts constant."""
    exposed = F.col("new_days") / F.col("old_days")
    distance = F.sqrt(F.col("new") + 0.375) - F.sqrt((F.col("old") + 0.375) * exposed)
    deviations = distance * 2 / F.sqrt(exposed + 1)
    return (
        (F.col("new") >= MIN_ERRORS)
        & (F.col("new") >= F.col("old") * exposed * WORSE_RATIO)
        & (deviations >= SIGMAS)
        & (F.col("higher") >= F.col("compared") * MIN_HIGHER)
    )


_DAY_S: Final = 86_400.0

_WORSE: Final = ProblemKind("version_errors", 150, "wrong", "more errors than the version before")


def problems(findings: Findings) -> Iterator[Problem]:
    """Find versions of Fieldpost with more errors than the one before, in the whole fleet."""
    for row in findings["versions"]:
        if row["worse"]:
            often = f"{decimal(row['ratio'])} times" if row["ratio"] is not None else "many times"
            yield _WORSE.of(
                "",
                f"{often} as many errors a day as {row['before']}, and more on "
                f"{count(row['higher'])} of {plural(row['compared'], 'gateway')} that ran both.",
                "Look for new errors in the logs of these gateways with `fieldpost events`, and do "
                "not install this version on more gateways until the cause is known.",
                f"version {row['version']}",
            )


DAILY: Final = Summary("versions", 1, DAYS, days)

REPORT: Final = Report(
    "versions",
    (DAILY,),
    lambda context: versions(context.daily(DAILY), context.segments()),
    TABLE,
    problem_kinds=(_WORSE,),
    problems=problems,
)
