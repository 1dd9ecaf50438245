"""Delivery: how long messages were in custody before they were delivered.

Counts events, not messages: a message with several readings causes several. The time from the
gateway to the centre is not included: see the report `lag`.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sync.reports.shared import column
from sync.reports.shared.column import Column
from sync.reports.shared.formats import qos
from sync.reports.shared.frames import BYTE, INTEGER, TEXT, percentiles, schema
from sync.reports.shared.report import Report, Table
from sync.tables.partitions import conform
from sync.tables.summaries import Summary

TABLE: Final = Table(
    order=40,
    title="Delivery",
    about=(
        "The time from accepting responsibility for a message (custody) to its delivery, by level "
        "of service. Plain and acknowledged messages are delivered as they arrive. p95 is the time "
        "within which 95 % of the messages were delivered."
    ),
    columns=(
        column.text("gateway", "Gateway"),
        Column("qos", BYTE, "Level of service", qos),
        column.number("events", "Events"),
        *(column.latency(f"{name}_ms", name) for name in ("p50", "p95", "p99", "max")),
    ),
)
"""Milliseconds from custody to delivery, by level of service: 0 plain, 1 acknowledged, 2 assured.
Percentiles are exact, by nearest rank."""

HISTOGRAM: Final = schema(gateway=TEXT, qos=BYTE, latency_ms=INTEGER, events=INTEGER)
"""Number of events with each latency. Histograms of several days can be added, and percentiles
stay exact."""


def histogram(events: DataFrame) -> DataFrame:
    """Compute the rows of `HISTOGRAM` for each `day`."""
    timed = events.where(F.col("qos").isNotNull() & F.col("latency_ms").isNotNull())
    rows = timed.groupBy("day", "gateway", "qos", "latency_ms")
    return rows.agg(F.count(F.lit(1)).alias("events"))


def delivery(daily: DataFrame) -> DataFrame:
    """Compute a row of `TABLE` for each gateway and level in `daily` (rows of `HISTOGRAM`)."""
    rows = percentiles(daily, ("gateway", "qos"), "latency_ms", "_ms")
    return conform(rows, TABLE.schema).orderBy("gateway", "qos")


DAILY: Final = Summary("delivery", 1, HISTOGRAM, histogram)

REPORT: Final = Report("delivery", (DAILY,), lambda context: delivery(context.daily(DAILY)), TABLE)
