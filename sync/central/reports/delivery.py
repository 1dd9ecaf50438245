"""Report 3, delivery: how long messages were in custody before they were where they go.

Counts events, of which a message with several fields makes several. The way from the gateway to the
centre is not in it: that is `lag`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.types import ByteType, LongType, StringType, StructField, StructType

from sync.central.reports.common import conform, exact_percentile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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


def delivery(events: DataFrame) -> DataFrame:
    """Give a row of `SCHEMA` for each gateway and level that has events with a latency."""
    timed = events.where(F.col("qos").isNotNull() & F.col("latency_ms").isNotNull())
    rows = timed.groupBy("gateway", "qos").agg(
        F.count(F.lit(1)).alias("events"),
        exact_percentile(0.50, "latency_ms").alias("p50_ms"),
        exact_percentile(0.95, "latency_ms").alias("p95_ms"),
        exact_percentile(0.99, "latency_ms").alias("p99_ms"),
        F.max("latency_ms").alias("max_ms"),
    )
    return conform(rows, SCHEMA).orderBy("gateway", "qos")
