"""Report 3, its other half: how long after it happened an event was at the centre.

Compares the gateway's clock with the centre's, and so keeps apart what was written while the
gateway's clock was synchronised and what was not: the latter may be off by any amount.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DoubleType, LongType, StringType, StructField, StructType

from sync.central.reports.common import conform, exact_percentile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA: Final = StructType(
    [
        StructField("gateway", StringType()),
        StructField("clock", BooleanType()),
        StructField("events", LongType()),
        StructField("p50_s", DoubleType()),
        StructField("p95_s", DoubleType()),
        StructField("p99_s", DoubleType()),
        StructField("max_s", DoubleType()),
    ]
)
"""Seconds from the event to the arrival of its segment; `clock`: was the gateway's synchronised.
Percentiles are exact, by nearest rank, to the millisecond."""


def lag(events: DataFrame) -> DataFrame:
    """Give a row of `SCHEMA` for each gateway and state of its clock that has events."""
    timed = events.withColumn("lag_ms", F.unix_millis("arrived") - F.unix_millis("time"))
    columns = {
        "p50_s": exact_percentile(0.50, "lag_ms"),
        "p95_s": exact_percentile(0.95, "lag_ms"),
        "p99_s": exact_percentile(0.99, "lag_ms"),
        "max_s": F.max("lag_ms"),
    }
    rows = timed.groupBy("gateway", "clock").agg(
        F.count(F.lit(1)).alias("events"),
        *((value / 1000).alias(name) for name, value in columns.items()),
    )
    return conform(rows, SCHEMA).orderBy("gateway", F.desc("clock"))
