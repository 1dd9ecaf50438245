"""Report 3, delivery: how long messages were in custody before they were where they go.

Counts events, of which a message with several fields makes several. The way from the gateway to the
centre is not in it: that is `lag`.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ByteType, LongType, StringType, StructField, StructType

from sync.reports.common import conform, percentiles
from sync.reports.context import Report
from sync.tables.summaries import Summary

SCHEMA: Final = StructType(
    [
        StructField("gateway", StringType()),
        StructField("qos", ByteType()),
        StructField("events", LongType()),
        StructField("p50_ms", LongType()),
        StructField("p95_ms", LongType()),
        StructField("p99_ms", LongType()),
        StructField("max_ms", LongType()),
    ]
)
"""Latency in milliseconds from custody to delivery, by level: 0 plain, 1 acknowledged, 2 assured.
Percentiles are exact, by nearest rank."""


HISTOGRAM: Final = StructType(
    [
        StructField("gateway", StringType()),
        StructField("qos", ByteType()),
        StructField("latency_ms", LongType()),
        StructField("events", LongType()),
    ]
)
"""How often each latency, in milliseconds, occurred: days add up, and percentiles stay exact."""


def histogram(events: DataFrame) -> DataFrame:
    """Give a row of `HISTOGRAM` and `day` for each latency that occurred on a day."""
    timed = events.where(F.col("qos").isNotNull() & F.col("latency_ms").isNotNull())
    rows = timed.groupBy("day", "gateway", "qos", "latency_ms")
    return rows.agg(F.count(F.lit(1)).alias("events"))


def delivery(daily: DataFrame) -> DataFrame:
    """Give a row of `SCHEMA` for each gateway and level that `DAILY` has rows of."""
    rows = percentiles(daily, ("gateway", "qos"), "latency_ms", "_ms")
    return conform(rows, SCHEMA).orderBy("gateway", "qos")


DAILY: Final = Summary("delivery", 1, HISTOGRAM, histogram)

REPORT: Final = Report("delivery", SCHEMA, (DAILY,), lambda given: delivery(given.daily(DAILY)))
