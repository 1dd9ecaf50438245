"""Dates: events whose time is implausible, and which therefore count on the day of their arrival.

The ingest decides which events these are (`sync.ingest.decoding`). A clock that is wrong by years
would otherwise spread the events of one gateway over any number of days.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sync.reports.shared import column
from sync.reports.shared.findings import Findings
from sync.reports.shared.formats import plural
from sync.reports.shared.frames import times_since_until
from sync.reports.shared.report import Problem, ProblemKind, Report, Table
from sync.tables.partitions import conform
from sync.tables.summaries import Summary

TABLE: Final = Table(
    order=125,
    title="Implausible times",
    about=(
        "Events that are dated more than 366 days before they arrived, or more than a day after. "
        "The gateway's clock was wrong. They count on the day of their arrival."
    ),
    columns=(
        column.text("gateway", "Gateway"),
        column.number("times", "Events"),
        column.time("since", "Earliest"),
        column.time("until", "Latest"),
    ),
    empty="Every event is dated plausibly.",
)
"""`times` is the number of events. `since` and `until`: the earliest and the latest of their times
by the gateway's clock."""

_MISDATED: Final = ProblemKind("misdated", 195, "notice", "events have implausible times")


def daily_dates(events: DataFrame) -> DataFrame:
    """Compute the rows of `TABLE` for each `day`."""
    wrong = events.where(F.to_date("time") != F.col("day")).withColumn("times", F.lit(1))
    return wrong.groupBy("day", "gateway").agg(*times_since_until("time", "time"))


def dates(daily: DataFrame) -> DataFrame:
    """Compute a row of `TABLE` for each gateway in `daily`."""
    rows = daily.groupBy("gateway").agg(*times_since_until())
    return conform(rows, TABLE.schema).orderBy("gateway")


def problems(findings: Findings) -> Iterator[Problem]:
    """Report each gateway that has dated events implausibly."""
    for row in findings["dates"]:
        yield _MISDATED.of(
            row["gateway"],
            f"{plural(row['times'], 'event')} dated more than 366 days before arrival, or more "
            "than a day after.",
            "The events count on the day of their arrival. Set up time synchronisation at the "
            "gateway; `fieldpost doctor` checks it.",
        )


DAILY: Final = Summary("dates", 1, TABLE.schema, daily_dates)

REPORT: Final = Report(
    "dates",
    (DAILY,),
    lambda context: dates(context.daily(DAILY)),
    TABLE,
    problem_kinds=(_MISDATED,),
    problems=problems,
)
