"""Report 1, its outages: each one that a gateway had, how long it was, and how it ended.

Says nothing of the time after a gateway's last sign: whether it is out is not known yet.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, StringType, StructField, StructType, TimestampType

from sync.reports import heartbeats, lanes
from sync.reports.common import conform
from sync.reports.context import Report

SCHEMA: Final = StructType(
    [
        StructField("gateway", StringType()),
        StructField("begin", TimestampType()),
        StructField("end", TimestampType()),
        StructField("seconds", DoubleType()),
        StructField("ended", StringType()),
    ]
)
"""From the last sign of life to the next one, by the gateway's clock; `ended` is as in
`signs.SPANS`: `restarted` or `went_on`."""

ROWS: Final = 1_000
"""Outages that are listed, the latest of them: more than that is one cause, and fills no page."""


def outages(times: DataFrame) -> DataFrame:
    """Give a row of `SCHEMA` for the latest `ROWS` outages of `signs.spans`, latest first."""
    out = times.where(F.col("state") == "outage").select(
        "gateway",
        F.timestamp_seconds("begin").alias("begin"),
        F.timestamp_seconds("end").alias("end"),
        F.round(F.col("end") - F.col("begin"), 3).alias("seconds"),
        "ended",
    )
    return conform(out, SCHEMA).orderBy(F.desc("begin"), "gateway").limit(ROWS)


REPORT: Final = Report(
    "outages",
    SCHEMA,
    (heartbeats.DAILY, lanes.DAILY),
    lambda given: outages(heartbeats.times_of(given)),
)
