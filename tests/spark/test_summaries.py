from __future__ import annotations

import time
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from sync.reports.shared.report import ReportContext
from sync.tables.manifest import Manifest
from sync.tables.storage import LocalStorage
from sync.tables.summaries import StoredSummaries, Summary, summarise
from sync.tables.summaries.index import FOLDER, GRACE_S
from sync.tables.tables import EVENTS, SEGMENTS, Attempt
from tests.helpers.small_tables import at, table

pytestmark = pytest.mark.spark

DAY_S = 86_400
COUNT = StructType([StructField("gateway", StringType()), StructField("events", LongType())])


def count(events: DataFrame) -> DataFrame:
    return events.groupBy("gateway", "day").agg(F.count(F.lit(1)).alias("events"))


EVENTS_A_DAY = Summary("events_a_day", 1, COUNT, count)
NONE = Summary("none", 1, COUNT, lambda events: count(events).where("false"))
BOTH = (EVENTS_A_DAY, NONE)


def batch(spark: SparkSession, tables: Path, number: int, *days: int) -> Manifest:
    """Write a batch with an event on each of these days."""
    rows: list[dict[str, Any]] = [{"gateway": "gw", "time": at(day * DAY_S)} for day in days]
    attempt = Attempt(LocalStorage(tables), f"data/q/{number}/attempt")
    return Manifest(
        "q", number, "attempt", "", (), attempt.write_events(table(spark, EVENTS, rows))
    )


def told(kept: StoredSummaries, since: date | None = None) -> dict[int, int]:
    days: dict[int, int] = {}
    for row in kept.rows(EVENTS_A_DAY, since).collect():
        days[row["day"].day] = days.get(row["day"].day, 0) + row["events"]
    return days


def parquet(tables: Path) -> set[Path]:
    return set((tables / FOLDER).rglob("*.parquet"))


def test_only_days_with_new_events_are_computed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = batch(spark, tmp_path, 0, 0, 1, 1)
    kept = summarise(spark, tmp_path, [first], BOTH)
    assert (kept.days, told(kept)) == ((0, 2, 0), {21: 1, 22: 2})
    assert kept.rows(NONE).collect() == []
    assert told(kept, date(2025, 11, 22)) == {22: 2}

    # the same again; then a late segment touches one of the days, and brings a new one
    again = summarise(spark, tmp_path, [first], BOTH)
    assert (again.days, told(again)) == ((2, 0, 0), {21: 1, 22: 2})
    late = batch(spark, tmp_path, 1, 0, 2)
    now = summarise(spark, tmp_path, [first, late], BOTH)
    assert (now.days, told(now)) == ((1, 2, 0), {21: 2, 22: 2, 23: 1})

    # a report that began before reads on; another version of one summary is computed anew
    assert told(kept) == {21: 1, 22: 2}
    newer = replace(EVENTS_A_DAY, version=2)
    assert summarise(spark, tmp_path, [first, late], [newer, NONE]).days == (0, 3, 0)
    assert told(now) == {21: 2, 22: 2, 23: 1}

    # what was replaced goes once the grace is over
    held = parquet(tmp_path)
    later = time.time() + GRACE_S + 1
    monkeypatch.setattr("sync.tables.summaries.index.time.time", lambda: later)
    third = batch(spark, tmp_path, 2, 3)
    summarise(spark, tmp_path, [first, late, third], [newer, NONE])
    assert len(held - parquet(tmp_path)) == 2 + 2


def test_damaged_and_incomplete_summaries_are_computed_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    only = batch(spark, tmp_path, 0, 0)
    summarise(spark, tmp_path, [only], BOTH)
    [path] = parquet(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    kept = summarise(spark, tmp_path, [only], BOTH)
    assert (kept.days, told(kept)) == ((0, 1, 0), {21: 1})
    for found in (tmp_path / FOLDER).rglob("kept.json"):
        found.write_bytes(b"{")
    kept = summarise(spark, tmp_path, [only], BOTH)
    assert (kept.days, told(kept)) == ((0, 1, 0), {21: 1})


def test_summaries_of_removed_events_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    first = batch(spark, tmp_path, 0, 0, 1)
    second = batch(spark, tmp_path, 1, 0)
    summarise(spark, tmp_path, [first, second], BOTH)
    gone = (*first.events["2025-11-21"], *second.events["2025-11-21"])
    compacted = Manifest(
        "upkeep", 0, "a", "", (), {"2025-11-21": ("c",)}, kind="compacted", replaces=gone
    )
    retired = Manifest("upkeep", 1, "a", "", (), kind="retired", replaces=("c",))
    late = batch(spark, tmp_path, 2, 0)
    manifests = [first, second, late, compacted, retired]
    kept = summarise(spark, tmp_path, manifests, BOTH)
    assert (kept.days, told(kept)) == ((1, 1, 0), {21: 3, 22: 1})
    newer = (replace(EVENTS_A_DAY, version=2), NONE)
    assert summarise(spark, tmp_path, manifests, newer).days == (0, 2, 1)


def test_a_report_of_the_past_leaves_out_later_days_and_later_segments(
    spark: SparkSession, tmp_path: Path
) -> None:
    kept = summarise(spark, tmp_path, [batch(spark, tmp_path, 0, 0, 1, 1, 2)], BOTH)
    rows = [
        {"gateway": "gw", "path": f"archive/{number}", "arrived": at(second)}
        for number, second in enumerate((DAY_S - 1, DAY_S, DAY_S + 1))
    ]
    past = ReportContext(kept, table(spark, SEGMENTS, rows), at(DAY_S)).restricted_to_past()
    assert told(past.summaries) == {21: 1, 22: 2}
    paths = sorted(row["path"] for row in past.segments().collect())
    assert paths == ["archive/0", "archive/1"]
    assert told(kept) == {21: 1, 22: 2, 23: 1}, "the stored summaries stay complete"
