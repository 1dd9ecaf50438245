"""Duplicates: messages and segments that were sent again, recognised, and counted once.

Devices offer a message again if they did not receive its confirmation; gateways send segments
again for the same reason. Both are normal, but many of them indicate a bad link. Events that are
stored twice are something else, and are part of `completeness`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sync.reports.notices import REPEATED
from sync.reports.shared import column
from sync.reports.shared.events import is_system_event, occurrences
from sync.reports.shared.findings import Findings
from sync.reports.shared.formats import count, plain
from sync.reports.shared.frames import (
    INTEGER,
    TEXT,
    TIME,
    of_each_gateway,
    schema,
    times_since_until,
)
from sync.reports.shared.report import Problem, ProblemKind, Report, Table
from sync.tables.partitions import conform, union
from sync.tables.summaries import Summary

TABLE: Final = Table(
    order=60,
    title="Duplicates",
    about=(
        "What was sent again and recognised, so that it counts once: messages of devices, and "
        "segments (files of events) of gateways. Many of them indicate a bad link."
    ),
    columns=(
        column.text("gateway", "Gateway"),
        column.text("what", "What", {"offers": "messages", "segments": "segments"}),
        column.prose("source", "From"),
        column.number("times", "Times"),
        column.time("since", "First"),
        column.time("until", "Last"),
    ),
    empty="Nothing was sent again.",
)
"""`what`: `offers`, messages that a device offered again, or `segments` that arrived again.
`source`: for offers the device, for segments their lane. `times`: the number of repetitions.
`since` and `until`: the first and the last one; offers by the gateway's clock, segments by their
arrival."""

OFFERS: Final = schema(gateway=TEXT, source=TEXT, times=INTEGER, since=TIME, until=TIME)

MANY_OFFERS: Final = 100
"""Number of repeated offers from which a device is a problem: a few are made on any link."""

_REPEATS: Final = ProblemKind(
    "repeats", 220, "notice", "devices send the same messages again and again"
)


def offers(events: DataFrame) -> DataFrame:
    """Compute the rows of `OFFERS` for each `day`."""
    repeated = events.where(is_system_event("message", REPEATED))
    rows = repeated.withColumn("times", occurrences())
    return rows.groupBy("day", "gateway", "source").agg(*times_since_until("time", "time"))


def duplicates(daily: DataFrame, segments: DataFrame, since: date | None = None) -> DataFrame:
    """Compute a row of `TABLE` for each device and each lane that sent something again.

    `daily` has rows of `OFFERS`. The rows of a gateway are together, those of devices first.
    Segments that arrived before the day `since` (UTC) are left out.
    """
    again = segments.where(F.col("fate") == "duplicate")
    if since is not None:
        again = again.where(F.col("arrived") >= F.lit(since).cast("timestamp"))
    rows = again.withColumns({"source": F.col("lane"), "times": F.lit(1)})
    of_segments = rows.groupBy("gateway", "source").agg(*times_since_until("arrived", "arrived"))
    of_offers = daily.groupBy("gateway", "source").agg(*times_since_until())
    both = union(
        of_offers.withColumn("what", F.lit("offers")),
        of_segments.withColumn("what", F.lit("segments")),
    )
    shown = of_each_gateway(conform(both, TABLE.schema), F.desc("times"), F.col("source"))
    return shown.orderBy("gateway", "what", "source")


def problems(findings: Findings) -> Iterator[Problem]:
    """Find devices that repeat `MANY_OFFERS` or more; repeated segments are no problem."""
    for row in findings["duplicates"]:
        if row["what"] == "offers" and row["times"] >= MANY_OFFERS:
            yield _REPEATS.of(
                row["gateway"],
                f"Messages that the device sent again: {count(row['times'])}, the last one at "
                f"{findings.moment(row['until'])}.",
                "Each message counts once nevertheless. The device does not receive the "
                "confirmations: check its link, and how long it waits for an answer.",
                plain(row["source"]),
            )


DAILY: Final = Summary("duplicates", 1, OFFERS, offers)

REPORT: Final = Report(
    "duplicates",
    (DAILY,),
    lambda context: duplicates(context.daily(DAILY), context.segments(), context.since),
    TABLE,
    problem_kinds=(_REPEATS,),
    problems=problems,
)
