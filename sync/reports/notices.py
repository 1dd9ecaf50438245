"""What gateways told of messages that went nowhere, and of what their limits refused.

Counts what the system lane says. The messages themselves are at the gateway.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from sync.reports.columns import number
from sync.reports.common import conform
from sync.reports.context import Report
from sync.tables.summaries import Summary

SCHEMA: Final = StructType(
    [
        StructField("gateway", StringType()),
        StructField("kind", StringType()),
        StructField("name", StringType()),
        StructField("times", LongType()),
        StructField("since", TimestampType()),
        StructField("until", TimestampType()),
    ]
)
"""How often each gateway told of a `message` (`dead`, `expired`, `evicted`, ...) or of a refusal by
a `limit` (the rule's name), first and last. An event of kind `limit` stands for as many refusals as
its value says."""

REPEATED: Final = "repeated"
"""The event of kind `message` that tells of no loss; the report of duplicates has it."""


def summary(events: DataFrame) -> DataFrame:
    """Give a row of `SCHEMA` and `day` for each gateway, kind and name of a day."""
    system = events.where((F.col("lane") == "system") & F.col("kind").isin("message", "limit"))
    told = system.where(F.col("name") != REPEATED)
    each = F.when(F.col("kind") == "limit", F.coalesce(number(F.col("value")), F.lit(1))).otherwise(
        1
    )
    return _sums(told.withColumn("times", each), "day", first="time", last="time")


def notices(daily: DataFrame) -> DataFrame:
    """Give a row of `SCHEMA` for each gateway, kind and name that `DAILY` has rows of."""
    rows = _sums(daily, first="since", last="until")
    return conform(rows, SCHEMA).orderBy("gateway", "kind", "name")


def _sums(rows: DataFrame, *by: str, first: str, last: str) -> DataFrame:
    sums: list[Column] = [
        F.sum("times").alias("times"),
        F.min(first).alias("since"),
        F.max(last).alias("until"),
    ]
    return rows.groupBy(*by, "gateway", "kind", "name").agg(*sums)


DAILY: Final = Summary("notices", 1, SCHEMA, summary)

REPORT: Final = Report("notices", SCHEMA, (DAILY,), lambda given: notices(given.daily(DAILY)))
