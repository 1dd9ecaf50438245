"""The report `trends`: each figure in the requested period and in the one before it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession

from sync.reports import trends
from sync.reports.shared.report import ReportContext
from sync.tables.summaries import StoredSummaries, Summary
from sync.tables.tables import SEGMENTS
from tests.helpers.small_tables import at, checked_rows, event, events, named_rows, table

pytestmark = pytest.mark.spark

HOUR, DAY = 3_600, 86_400
BEGIN = DAY // 2
"""Midnight after `START`, in seconds after it: when the period begins. It lasts 12 hours, and the
one before begins with `START`."""

SINCE, NOW = date(2025, 11, 22), BEGIN + DAY // 2


@dataclass(frozen=True)
class ComputedSummaries:
    """Summaries of a few events, computed on demand."""

    spark: SparkSession
    events: DataFrame

    def rows(self, summary: Summary, since: date | None = None) -> DataFrame:
        rows = summary.compute(self.events)
        return rows if since is None else rows.where(f"day >= '{since}'")


def beat(gateway: str, seq: int, hours: float, name: str = "heartbeat") -> Any:
    columns = {"kind": "system", "name": name, "clock": True, "value": 3_600.0}
    return event(gateway, epoch="1", lane="system", seq=seq, time=at(hours * HOUR), **columns)


def log(gateway: str, seq: int, hours: float) -> Any:
    return event(gateway, epoch="1", lane="logs", seq=seq, time=at(hours * HOUR), clock=True)


def arrival(gateway: str | None, hours: float, fate: str = "accepted", **more: Any) -> Any:
    segment = {"gateway": gateway, "epoch": "1", "lane": "logs", "fate": fate}
    return segment | {"arrived": at(hours * HOUR), "path": f"{hours}", "sha256": f"{hours}", **more}


def context(
    spark: SparkSession, rows: list[Any], segments: list[Any], since: date | None = SINCE
) -> ReportContext:
    summaries = cast("StoredSummaries", ComputedSummaries(spark, events(spark, rows).persist()))
    return ReportContext(summaries, table(spark, SEGMENTS, segments), at(NOW), since)


EVENTS = [
    # old: known for a day before; an outage of 9 h across the beginning of the period
    beat("old", 1, -24, "start"),
    *(beat("old", 1 + number, -24 + number) for number in range(1, 34)),
    *(beat("old", 35 + number, 18 + number) for number in range(5)),
    # of its logs, 3 are missing before the period, 2 of them dropped; 5 in it; one is stored twice
    log("old", 1, 1),
    log("old", 5, 2),
    log("old", 6, 13),
    log("old", 12, 14),
    log("old", 12, 14),
    # ended: stopped before the period
    beat("ended", 1, 1, "start"),
    beat("ended", 2, 2, "stop"),
    # new: since the period began
    beat("new", 1, 13, "start"),
]
FILES = [
    arrival("old", -20, dropped=[{"first_seq": 2, "last_seq": 3, "reason": "backlog"}]),
    *(arrival("old", hours) for hours in (1, 2, 13, 14, 15)),
    arrival("old", 16, "fork", digest="x"),
    arrival(None, 3, "bad"),
    arrival("new", 13),
    arrival("ended", 2),
]


def test_figures_of_both_periods(spark: SparkSession) -> None:
    report = trends.trends(context(spark, EVENTS, FILES))
    found = {row["gateway"]: row for row in named_rows(report, trends.TABLE.schema)}
    assert list(found) == [None, "ended", "new", "old"]

    def both(gateway: str | None, figure: str) -> tuple[float, float]:
        return found[gateway][figure], found[gateway][f"{figure}_before"]

    assert {figure: both("old", figure) for figure in trends.FIGURES} == {
        "events": (9 - 1, 9 + 1 + 2),
        "segments": (3, 2),
        "missing": (5, 3),
        "unexplained": (5, 1),
        "duplicates": (1, 0),
        "forks": (1, 0),
        "bad_segments": (0, 0),
        "outages": (1, 1),
        "running_s": (4 * HOUR, 9 * HOUR),
        "judged_s": (10 * HOUR, 12 * HOUR),
    }
    assert both(None, "bad_segments") == (0, 1)
    states = {gateway: row["state_before"] for gateway, row in found.items() if gateway}
    assert states == {"ended": "stopped", "new": None, "old": "silent"}
    known = {gateway: row["known_since"] for gateway, row in found.items() if gateway}
    assert known == {"ended": HOUR, "new": 13 * HOUR, "old": -24 * HOUR}


def test_a_report_of_all_days_has_no_row(spark: SparkSession) -> None:
    assert (
        checked_rows(trends.trends(context(spark, EVENTS, FILES, None)), trends.TABLE.schema) == []
    )
