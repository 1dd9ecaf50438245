"""Refusals: requests that limits refused, by source and by rule.

A surge is a day with far more refusals than usual for a source and a rule (the limit's name).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sync.reports.shared import column, remedies
from sync.reports.shared.events import is_system_event, occurrences
from sync.reports.shared.findings import Findings, Row
from sync.reports.shared.formats import count, decimal, plural
from sync.reports.shared.frames import INTEGER, TEXT, TIME, merged, schema, times_since_until
from sync.reports.shared.report import Problem, ProblemKind, Report, Table
from sync.reports.shared.thresholds import SURGE_FACTOR, SURGE_MIN
from sync.tables.partitions import conform
from sync.tables.summaries import Summary

TABLE: Final = Table(
    order=80,
    title="Refusals",
    about=(
        "Requests that were refused, by the device that made them and the limit that refused them. "
        "A surge is a day with far more refusals than usual."
    ),
    columns=(
        column.prose("source", "Device"),
        column.text("rule", "Limit"),
        column.flag("surge", "Surge"),
        column.number("times", "Times"),
        column.number("latest", "Latest day"),
        column.real("usual", "Usual day", decimal),
        column.time("since", "First"),
        column.time("until", "Last"),
        column.number("gateways", "Gateways"),
        column.prose("which", "Gateways with most"),
    ),
    empty="No limit has refused anything.",
)
"""A source that was refused (null if the gateways do not know it), and the rule that refused it.

`times` is the number of refusals, reported first at `since` and last at `until` by the gateways'
clocks. `gateways` is how many reported them; `which` names those with most refusals (`NAMED` at
most), separated by commas. `latest` is the greater count of the last two days (UTC), the last of
which is not over; `usual` is the median count of the days before (null if there are none). `surge`:
`latest` is far above `usual`."""

NAMED: Final = 5
"""Maximum number of gateways that a row names; the others are only counted."""

ROWS: Final = 1_000
"""Maximum number of rows, those with most refusals: an attacker can invent any number of names."""

_REFUSALS: Final = ProblemKind("refusals", 140, "wrong", "limits refused what devices sent")

DAYS: Final = schema(gateway=TEXT, source=TEXT, rule=TEXT, times=INTEGER, since=TIME, until=TIME)
"""The refusals of a day. A row without a rule (`times` is 0) shows that the day has events."""


def days(events: DataFrame) -> DataFrame:
    """Compute the rows of `DAYS`, each with its `day`."""
    refused = is_system_event("limit")
    rule = F.when(refused, F.coalesce("name", F.lit("")))
    rows = events.groupBy(
        "day", "gateway", F.when(refused, F.col("source")).alias("source"), rule.alias("rule")
    )
    return rows.agg(
        F.coalesce(F.sum(F.when(refused, occurrences())), F.lit(0)).alias("times"),
        F.min("time").alias("since"),
        F.max("time").alias("until"),
    )


def refusals(days: DataFrame, as_of: datetime) -> DataFrame:
    """Compute the rows of `TABLE` from `days` (rows of `DAYS`), surges first, then by count."""
    refused = days.where(F.col("rule").isNotNull())
    rows = merged(("source", "rule"), _by_gateway(refused), _by_day(refused, as_of))
    recent = as_of.date() - timedelta(days=1)
    before = days.where(F.col("day") < F.lit(recent))
    known = rows.crossJoin(F.broadcast(before.agg(F.countDistinct("day").alias("known"))))
    usual = known.withColumn("usual", _median())
    surge = (F.col("latest") >= SURGE_MIN) & (F.col("latest") > SURGE_FACTOR * F.col("usual"))
    judged = usual.withColumn("surge", F.coalesce(surge, F.lit(False)))
    judged = conform(judged, TABLE.schema)
    return judged.orderBy(F.desc("surge"), F.desc("times"), "source", "rule").limit(ROWS)


def _by_gateway(refused: DataFrame) -> DataFrame:
    each = refused.groupBy("source", "rule", "gateway").agg(*times_since_until())
    most = F.array_sort(F.collect_list(F.struct((-F.col("times")).alias("less"), "gateway")))
    return each.groupBy("source", "rule").agg(
        *times_since_until(),
        F.count("gateway").alias("gateways"),
        F.array_join(F.slice(most["gateway"], 1, NAMED), ", ").alias("which"),
    )


def _by_day(refused: DataFrame, as_of: datetime) -> DataFrame:
    """Compute the greater count of the last two days, and the sorted counts of the days before."""
    today, yesterday = as_of.date(), as_of.date() - timedelta(days=1)
    each = refused.groupBy("source", "rule", "day").agg(F.sum("times").alias("times"))
    late = F.when(F.col("day").between(F.lit(yesterday), F.lit(today)), F.col("times"))
    earlier = F.when(F.col("day") < F.lit(yesterday), F.col("times"))
    return each.groupBy("source", "rule").agg(
        F.coalesce(F.max(late), F.lit(0)).alias("latest"),
        F.array_sort(F.collect_list(earlier)).alias("earlier"),
    )


def _median() -> Column:
    """Return the median of `earlier` over all `known` days; days without refusals count as zero."""
    none = F.array_repeat(F.lit(0).cast("long"), (F.col("known") - F.size("earlier")).cast("int"))
    counts = F.concat(none, F.col("earlier"))
    middle = (F.col("known") / 2).cast("int")
    low, high = F.get(counts, ((F.col("known") - 1) / 2).cast("int")), F.get(counts, middle)
    return F.when(F.col("known") > 0, (low + high) / 2)


def gateways_of(row: Row) -> list[str]:
    """Return the gateways that a row names."""
    which: str = row["which"]
    return which.split(", ")


def problems(findings: Findings) -> Iterator[Problem]:
    """Yield a problem for each row of refusals, of weight `wrong` for a surge, else `notice`."""
    for row in findings["refusals"]:
        gateway = row["which"] if row["gateways"] == 1 else ""
        who = row["source"] or "an unknown source"
        place = who if gateway else f"{who} at {plural(row['gateways'], 'gateway')}"
        what = f"Refused by the limit {row['rule']}: {count(row['times'])}"
        if row["surge"]:
            what += (
                f", {count(row['latest'])} of them on one day; usual are "
                f"{decimal(row['usual'])} a day"
            )
        found = _REFUSALS.of(gateway or "", f"{what}.", remedies.REFUSALS, place)
        yield found if row["surge"] else found._replace(weight="notice")


DAILY: Final = Summary("refusals", 1, DAYS, days)

REPORT: Final = Report(
    "refusals",
    (DAILY,),
    lambda context: refusals(context.daily(DAILY), context.as_of),
    TABLE,
    problem_kinds=(_REFUSALS,),
    problems=problems,
    gateways_of=gateways_of,
)
