"""Report 6, refusals: what limits refused, by who asked and by the rule that refused it.

Tells a surge from what is usual with a source and a rule; why it refused, the gateway's log tells.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sync.reports.columns import FLAG, NUMBER, REAL, TEXT, TIME, columns, number
from sync.reports.common import conform
from sync.reports.context import Report
from sync.reports.thresholds import SURGE, SURGE_LEAST
from sync.tables.partitions import gathered
from sync.tables.summaries import Summary

SCHEMA: Final = columns(
    source=TEXT,
    rule=TEXT,
    times=NUMBER,
    since=TIME,
    until=TIME,
    gateways=NUMBER,
    which=TEXT,
    latest=NUMBER,
    usual=REAL,
    surge=FLAG,
)
"""A source (null: the gateways did not tell it) and a rule.

`times` is how many refusals, told first at `since` and last at `until`, by the gateways' clocks;
`gateways` how many told of them, and `which`: the names of those with most, `NAMED` at most, comma
between. `latest` is the greater count of the last two days (UTC), of which the last is not over;
`usual` the median of the counts of the days before these (null where there are none), and `surge`
tells that `latest` is far above it."""

NAMED: Final = 5
"""Gateways that a row names: the line stays readable, and more are counted beside it."""

ROWS: Final = 1_000
"""Sources and rules that are told of, those with most refusals: an attacker may invent names."""

DAYS: Final = columns(gateway=TEXT, source=TEXT, rule=TEXT, times=NUMBER, since=TIME, until=TIME)
"""The refusals of a day. A row without a rule says only that events of that day are there."""


def days(events: DataFrame) -> DataFrame:
    """Give the rows of `DAYS` and `day`."""
    refused = (F.col("lane") == "system") & (F.col("kind") == "limit")
    rule = F.when(refused, F.coalesce("name", F.lit("")))
    rows = events.groupBy(
        "day", "gateway", F.when(refused, F.col("source")).alias("source"), rule.alias("rule")
    )
    times = F.coalesce(number(F.col("value")), F.lit(1))
    return rows.agg(
        F.coalesce(F.sum(F.when(refused, times)), F.lit(0)).alias("times"),
        F.min("time").alias("since"),
        F.max("time").alias("until"),
    )


def refusals(days: DataFrame, as_of: datetime) -> DataFrame:
    """Give the rows of `SCHEMA`, surges and then those with most first; `ROWS` at most."""
    of = ("who", "rule")
    told = days.where(F.col("rule").isNotNull()).withColumn("who", F.coalesce("source", F.lit("")))
    rows = gathered(_gateways(told).join(_counts(told, as_of), on=[*of], how="inner"))
    recent = as_of.date() - timedelta(days=1)
    before = days.where(F.col("day") < F.lit(recent))
    known = rows.crossJoin(F.broadcast(before.agg(F.countDistinct("day").alias("known"))))
    usual = known.withColumn("usual", _median()).withColumn("source", F.nullif("who", F.lit("")))
    surge = (F.col("latest") >= SURGE_LEAST) & (F.col("latest") > SURGE * F.col("usual"))
    judged = conform(usual.withColumn("surge", F.coalesce(surge, F.lit(0).cast("boolean"))), SCHEMA)
    return judged.orderBy(F.desc("surge"), F.desc("times"), "source", "rule").limit(ROWS)


def _gateways(told: DataFrame) -> DataFrame:
    """Count refusals by gateway, and name those with most."""
    each = told.groupBy("who", "rule", "gateway").agg(
        F.sum("times").alias("times"), F.min("since").alias("since"), F.max("until").alias("until")
    )
    most = F.array_sort(F.collect_list(F.struct((-F.col("times")).alias("less"), "gateway")))
    return each.groupBy("who", "rule").agg(
        F.sum("times").alias("times"),
        F.min("since").alias("since"),
        F.max("until").alias("until"),
        F.count("gateway").alias("gateways"),
        F.array_join(F.slice(most["gateway"], 1, NAMED), ", ").alias("which"),
    )


def _counts(told: DataFrame, as_of: datetime) -> DataFrame:
    """Give the greater count of the last two days, and those of the days before, in order."""
    today, yesterday = as_of.date(), as_of.date() - timedelta(days=1)
    each = told.groupBy("who", "rule", "day").agg(F.sum("times").alias("times"))
    late = F.when(F.col("day").between(F.lit(yesterday), F.lit(today)), F.col("times"))
    earlier = F.when(F.col("day") < F.lit(yesterday), F.col("times"))
    return each.groupBy("who", "rule").agg(
        F.coalesce(F.max(late), F.lit(0)).alias("latest"),
        F.array_sort(F.collect_list(earlier)).alias("earlier"),
    )


def _median() -> Column:
    """Give the median of `earlier`, which lacks the days without refusals of the `known` ones."""
    none = F.array_repeat(F.lit(0).cast("long"), (F.col("known") - F.size("earlier")).cast("int"))
    counts = F.concat(none, F.col("earlier"))
    middle = (F.col("known") / 2).cast("int")
    low, high = F.get(counts, ((F.col("known") - 1) / 2).cast("int")), F.get(counts, middle)
    return F.when(F.col("known") > 0, (low + high) / 2)


DAILY: Final = Summary("refusals", 1, DAYS, days)

REPORT: Final = Report(
    "refusals", SCHEMA, (DAILY,), lambda given: refusals(given.daily(DAILY), given.as_of)
)
