"""Report 3, its other half: how long after it happened an event was at the centre.

Compares the gateway's clock with the centre's, and so keeps apart what was written while the
gateway's clock was synchronised and what was not: the latter may be off by any amount.
"""

from __future__ import annotations

import math
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DoubleType, LongType, StringType, StructField, StructType

from sync.reports.common import conform, percentiles
from sync.reports.context import Report
from sync.tables.summaries import Summary

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
Percentiles are values that occurred, by nearest rank, and at most `RESOLUTION` above the exact
one; the maximum is exact."""

RESOLUTION: Final = 0.02
"""Lags that differ by less, as a share of the lag, may count as one: a day of a gateway is then
some hundred rows, where milliseconds would make nearly one of each event."""


HISTOGRAM: Final = StructType(
    [
        StructField("gateway", StringType()),
        StructField("clock", BooleanType()),
        StructField("step", LongType()),
        StructField("lag_ms", LongType()),
        StructField("events", LongType()),
    ]
)
"""How many events had a lag within this step, and the greatest of their lags in milliseconds. Steps
are as wide as `RESOLUTION` says; those of negative lags are negative."""


def histogram(events: DataFrame) -> DataFrame:
    """Give a row of `HISTOGRAM` and `day` for each step of lag that occurred on a day."""
    lag_ms = F.unix_millis("arrived") - F.unix_millis("time")
    timed = events.select("day", "gateway", "clock", lag_ms.alias("lag_ms"))
    length = F.log1p(F.abs("lag_ms").cast("double")) / math.log1p(RESOLUTION)
    step = (F.signum("lag_ms") * F.floor(length)).cast("long")
    rows = timed.groupBy("day", "gateway", "clock", step.alias("step"))
    return rows.agg(F.max("lag_ms").alias("lag_ms"), F.count(F.lit(1)).alias("events"))


def lag(daily: DataFrame) -> DataFrame:
    """Give a row of `SCHEMA` for each gateway and state of its clock that `DAILY` has rows of."""
    steps = daily.groupBy("gateway", "clock", "step").agg(
        F.max("lag_ms").alias("lag_ms"), F.sum("events").alias("events")
    )
    rows = percentiles(steps, ("gateway", "clock"), "lag_ms", "_s", each=1_000)
    return conform(rows, SCHEMA).orderBy("gateway", F.desc("clock"))


DAILY: Final = Summary("lag", 1, HISTOGRAM, histogram)

REPORT: Final = Report("lag", SCHEMA, (DAILY,), lambda given: lag(given.daily(DAILY)))
