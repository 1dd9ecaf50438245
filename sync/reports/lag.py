"""Upstream lag: the time from an event to its arrival at the centre.

Compares the gateway's clock with the centre's, and therefore separates events that were recorded
while the gateway's clock was synchronised from the others, whose times may be off by any amount.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sync.reports.shared import column
from sync.reports.shared.column import Column
from sync.reports.shared.findings import Findings
from sync.reports.shared.formats import duration, synchronised
from sync.reports.shared.frames import FLAG, INTEGER, TEXT, percentiles, schema
from sync.reports.shared.report import Problem, ProblemKind, Report, Table
from sync.tables.partitions import conform
from sync.tables.summaries import Summary

TABLE: Final = Table(
    order=50,
    title="Upstream lag",
    about=(
        "The time from an event to its arrival here: collecting events into a segment, waiting, "
        "and the link. This compares two clocks, so events that were recorded while the gateway's "
        "clock was not synchronised are listed separately. A lag is unknown if the clocks make it "
        "more than a year, or less than minus one day."
    ),
    columns=(
        column.text("gateway", "Gateway"),
        Column("clock", FLAG, "Gateway's clock", synchronised),
        column.number("events", "Events"),
        *(column.lag(f"{name}_s", name) for name in ("p50", "p95", "p99", "max")),
    ),
)
"""Seconds from the event to the arrival of its segment; `clock`: whether the gateway's clock was
synchronised. Percentiles are values that occurred, by nearest rank, and at most `RESOLUTION` above
the exact ones; the maximum is exact."""

RESOLUTION: Final = 0.02
"""Relative width of the steps in which lags are counted: a day of a gateway is then some hundred
rows, while steps of a millisecond would make nearly one row for each event."""

BACKLOG_S: Final = 7_200.0
"""Seconds of median lag beyond which a link does not keep up. Neither an outage of the link, which
delays less than half of the events, nor a clock that is off by an hour has so much median lag."""

_BACKLOG: Final = ProblemKind("backlog", 160, "notice", "most events arrive late")

HISTOGRAM: Final = schema(gateway=TEXT, clock=FLAG, step=INTEGER, lag_ms=INTEGER, events=INTEGER)
"""Number of events whose lag is in a step, and the greatest of these lags in ms; `clock` is as in
`TABLE`. Steps are as wide as `RESOLUTION`; steps of negative lags have negative numbers."""


def histogram(events: DataFrame) -> DataFrame:
    """Compute the rows of `HISTOGRAM` for each `day`."""
    lag_ms = F.unix_millis("arrived") - F.unix_millis("time")
    timed = events.select("day", "gateway", "clock", lag_ms.alias("lag_ms"))
    length = F.log1p(F.abs("lag_ms").cast("double")) / math.log1p(RESOLUTION)
    step = (F.signum("lag_ms") * F.floor(length)).cast("long")
    rows = timed.groupBy("day", "gateway", "clock", step.alias("step"))
    return rows.agg(F.max("lag_ms").alias("lag_ms"), F.count(F.lit(1)).alias("events"))


def lag(daily: DataFrame) -> DataFrame:
    """Compute a row of `TABLE` for each gateway and clock state in rows of `HISTOGRAM`."""
    steps = daily.groupBy("gateway", "clock", "step").agg(
        F.max("lag_ms").alias("lag_ms"), F.sum("events").alias("events")
    )
    rows = percentiles(steps, ("gateway", "clock"), "lag_ms", "_s", divisor=1_000)
    return conform(rows, TABLE.schema).orderBy("gateway", F.desc("clock"))


def problems(findings: Findings) -> Iterator[Problem]:
    """Find gateways whose median lag is above `BACKLOG_S`, by synchronised clocks."""
    for row in findings["lag"]:
        if row["clock"] and (row["p50_s"] or 0) > BACKLOG_S:
            yield _BACKLOG.of(
                row["gateway"],
                f"Half of the gateway's events arrive {duration(row['p50_s'])} or more after they "
                "happened.",
                "The gateway's link is too slow for its events. `fieldpost uplink status` at the "
                "gateway shows how much is waiting and how fast it is sent. Give it a better link, "
                "or let it send fewer events.",
            )


DAILY: Final = Summary("lag", 1, HISTOGRAM, histogram)

REPORT: Final = Report(
    "lag",
    (DAILY,),
    lambda context: lag(context.daily(DAILY)),
    TABLE,
    problem_kinds=(_BACKLOG,),
    problems=problems,
)
