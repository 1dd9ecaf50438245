"""Outages: every outage of a gateway, its length, and how it ended.

Life events are starts, heartbeats and stops. The time after a gateway's last life event is left
out, because it is not known yet whether it is an outage.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sync.reports.shared import column, heartbeats, lanes
from sync.reports.shared.frames import time_at
from sync.reports.shared.report import Report, Table
from sync.tables.partitions import conform

_ENDED: Final = {
    "restarted": "restarted",
    "new_epoch": "restarted with a new database",
    "went_on": "continued without a restart",
}

TABLE: Final = Table(
    order=20,
    title="Outages",
    about=(
        "Times without heartbeats, latest first. An outage lasts from the last heartbeat before it "
        "to the first one after it, by the gateway's clock. A gateway that continued without a "
        "restart was suspended, or could not write."
    ),
    columns=(
        column.text("gateway", "Gateway"),
        column.time("begin", "From"),
        column.time("end", "To"),
        column.duration("seconds", "Duration"),
        column.text("ended", "Ended", _ENDED),
    ),
    empty="No outage is known.",
)
"""An outage: `begin` is the last life event (start, heartbeat, stop) before it, `end` the first one
after it, both by the gateway's clock; `ended` is `restarted` or `went_on` (see `SPANS`)."""

ROWS: Final = 1_000
"""Maximum number of listed outages, the latest ones: a greater number usually has one cause."""


def outages(spans: DataFrame) -> DataFrame:
    """Compute the rows of `TABLE` from `spans` (rows of `heartbeats.SPANS`), latest first."""
    rows = spans.where(F.col("state") == "outage").select(
        "gateway",
        time_at("begin").alias("begin"),
        time_at("end").alias("end"),
        F.round(F.col("end") - F.col("begin"), 3).alias("seconds"),
        "ended",
    )
    return conform(rows, TABLE.schema).orderBy(F.desc("begin"), "gateway").limit(ROWS)


REPORT: Final = Report(
    "outages",
    (heartbeats.DAILY, lanes.DAILY),
    lambda context: outages(heartbeats.spans_of(context)),
    TABLE,
)
