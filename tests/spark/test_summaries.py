from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from sync.reports.shared.report import ReportContext
from sync.storage.local import LocalStorage
from sync.storage.locations import FleetStorage
from sync.tables.delta import Snapshot, local_tables
from sync.tables.maintenance import RetentionPolicy, compact, retain
from sync.tables.summaries import StoredSummaries, Summary, events_to_summarise, stored, summarise
from sync.tables.summaries.index import FOLDER, GRACE_S
from sync.tables.tables import SEGMENTS
from tests.helpers.committed import Committer
from tests.helpers.small_tables import at, table

pytestmark = pytest.mark.spark

DAY_S = 86_400
COUNT = StructType([StructField("gateway", StringType()), StructField("events", LongType())])


def count(events: DataFrame) -> DataFrame:
    return events.groupBy("gateway", "day").agg(F.count(F.lit(1)).alias("events"))


EVENTS_A_DAY = Summary("events_a_day", 1, COUNT, count)
NONE = Summary("none", 1, COUNT, lambda events: count(events).where("false"))
BOTH = (EVENTS_A_DAY, NONE)


def batch(tables: Path, *days: int) -> Snapshot:
    """Commit a batch with an event on each of these days."""
    return Committer(tables).commit([{"gateway": "gw", "time": at(day * DAY_S)} for day in days])


def events_by_day(kept: StoredSummaries, since: date | None = None) -> dict[int, int]:
    days: dict[int, int] = {}
    for row in kept.rows(EVENTS_A_DAY, since).collect():
        days[row["day"].day] = days.get(row["day"].day, 0) + row["events"]
    return days


def parquet(tables: Path) -> set[Path]:
    return set((tables / FOLDER).rglob("*.parquet"))


def test_only_days_with_new_events_are_computed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = batch(tmp_path, 0, 1, 1)
    assert events_to_summarise(first, BOTH) == 3
    kept = summarise(spark, first, BOTH)
    assert (kept.days, events_by_day(kept)) == ((0, 2, 0), {21: 1, 22: 2})
    assert events_to_summarise(first, BOTH) == 0
    assert kept.rows(NONE).collect() == []
    assert events_by_day(kept, date(2025, 11, 22)) == {22: 2}

    # the same again; then a late segment touches one of the days, and brings a new one
    again = summarise(spark, first, BOTH)
    assert (again.days, events_by_day(again)) == ((2, 0, 0), {21: 1, 22: 2})
    late = batch(tmp_path, 0, 2)
    assert events_to_summarise(late, BOTH) == 2 + 1
    now = summarise(spark, late, BOTH)
    assert (now.days, events_by_day(now)) == ((1, 2, 0), {21: 2, 22: 2, 23: 1})

    # a report that began before reads on; compaction changes nothing; another version of one
    # summary is computed anew
    assert events_by_day(kept) == {21: 1, 22: 2}
    assert compact(local_tables(tmp_path), ("<=", "2025-11-23")).days == 1
    compacted = local_tables(tmp_path).snapshot()
    assert summarise(spark, compacted, BOTH).days == (3, 0, 0)
    newer = replace(EVENTS_A_DAY, version=2)
    assert summarise(spark, compacted, [newer, NONE]).days == (0, 3, 0)
    assert events_by_day(now) == {21: 2, 22: 2, 23: 1}

    # a report of the past removes nothing; replaced summaries go once the grace is over
    held = parquet(tmp_path)
    later = time.time() + GRACE_S + 1
    monkeypatch.setattr("sync.tables.summaries.index.time.time", lambda: later)
    third = batch(tmp_path, 3)
    assert events_by_day(summarise(spark, first, [EVENTS_A_DAY], past=True)) == {21: 1, 22: 2}
    summarise(spark, third, [replace(EVENTS_A_DAY, version=3)], past=True)
    assert held <= parquet(tmp_path)
    summarise(spark, third, [newer, NONE])
    assert len(held - parquet(tmp_path)) == 2, "a file of each of the two computations"


def test_an_interrupted_report_keeps_the_days_that_it_has_summarised(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "DAYS_AT_ONCE", 2)
    monkeypatch.setattr(stored, "EVENTS_AT_ONCE", 2)
    snapshot = batch(tmp_path, 0, 1, 2, 3, 4)
    steps: list[tuple[int, int]] = []

    def interrupt(stage: str, done: int, total: int) -> None:
        assert stage == "summarising days"
        steps.append((done, total))
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        summarise(spark, snapshot, BOTH, progress=interrupt)
    assert steps == [(0, 5), (2, 5), (4, 5)]
    assert events_to_summarise(snapshot, BOTH) == 1
    kept = summarise(spark, snapshot, BOTH)
    assert (kept.days, len(events_by_day(kept))) == ((4, 1, 0), 5)


def test_days_with_few_events_share_a_file_until_all_are_replaced(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "FILE_EVENTS", 3)
    first = batch(tmp_path, 0, 1, 2, 3, 3, 3, 3, 4)
    kept = summarise(spark, first, BOTH)
    assert events_by_day(kept) == {21: 1, 22: 1, 23: 1, 24: 4, 25: 1}
    shared = min(parquet(tmp_path), key=lambda path: path.parent.name)
    assert sorted(path.parent.name for path in parquet(tmp_path)) == [
        "of=2025-11-21",
        "of=2025-11-24",
        "of=2025-11-25",
    ]

    later = time.time() + 2 * GRACE_S
    monkeypatch.setattr("sync.tables.summaries.index.time.time", lambda: later)
    now = summarise(spark, batch(tmp_path, 1), BOTH)
    assert (now.days, events_by_day(now)) == ((4, 1, 0), {21: 1, 22: 2, 23: 1, 24: 4, 25: 1})
    assert events_by_day(now, date(2025, 11, 22)) == {22: 2, 23: 1, 24: 4, 25: 1}
    assert events_by_day(now.until(date(2025, 11, 22))) == {21: 1, 22: 2}
    assert shared.exists(), "two days of it are in use"
    now = summarise(spark, batch(tmp_path, 0, 2), BOTH)
    assert events_by_day(now) == {21: 2, 22: 2, 23: 2, 24: 4, 25: 1}
    assert not shared.exists()


def test_summaries_of_another_version_are_computed_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    only = batch(tmp_path, 0)
    summarise(spark, only, BOTH)
    [index] = (tmp_path / FOLDER).rglob("kept.json")
    index.write_text(index.read_text().replace('"version": 2', '"version": 3'))
    assert summarise(spark, only, BOTH).days == (0, 1, 0)


def test_damaged_and_incomplete_summaries_are_computed_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    only = batch(tmp_path, 0)
    summarise(spark, only, BOTH)
    [path] = parquet(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    kept = summarise(spark, only, BOTH)
    assert (kept.days, events_by_day(kept)) == ((0, 1, 0), {21: 1})
    for found in (tmp_path / FOLDER).rglob("kept.json"):
        found.write_bytes(b"{")
    kept = summarise(spark, only, BOTH)
    assert (kept.days, events_by_day(kept)) == ((0, 1, 0), {21: 1})


def test_summaries_of_removed_events_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    """The events of the first day are removed, and some that arrive later once more."""
    storage = FleetStorage(LocalStorage(tmp_path), LocalStorage(tmp_path))
    policy, far = RetentionPolicy(events=1), datetime.now(UTC) + timedelta(days=30)

    def retire() -> dict[str, int]:
        return retain(
            storage, policy, far, summarise=lambda tables: summarise(spark, tables, BOTH)
        ).days

    batch(tmp_path, 0, 1)
    batch(tmp_path, 0)
    assert retire() == {"2025-11-21": 2, "2025-11-22": 1}
    late = batch(tmp_path, 0)
    kept = summarise(spark, late, BOTH)
    assert (kept.days, events_by_day(kept)) == ((1, 1, 0), {21: 3, 22: 1})
    assert retire() == {"2025-11-21": 1}
    reduced = local_tables(tmp_path).snapshot()
    kept = summarise(spark, reduced, BOTH)
    assert (kept.days, events_by_day(kept)) == ((2, 0, 0), {21: 3, 22: 1})
    newer = (replace(EVENTS_A_DAY, version=2), NONE)
    assert summarise(spark, reduced, newer).days == (2, 0, 2)
    added = replace(EVENTS_A_DAY, name="of_a_new_report")
    kept = summarise(spark, reduced, (*BOTH, added))
    assert (kept.days, events_by_day(kept)) == ((2, 0, 2), {21: 3, 22: 1})
    assert kept.rows(added).collect() == []
    later = batch(tmp_path, 0)
    kept = summarise(spark, later, BOTH)
    assert (kept.days, events_by_day(kept)) == ((1, 1, 0), {21: 4, 22: 1})


def test_a_report_of_the_past_leaves_out_later_days_and_later_segments(
    spark: SparkSession, tmp_path: Path
) -> None:
    kept = summarise(spark, batch(tmp_path, 0, 1, 1, 2), BOTH)
    rows = [
        {"gateway": "gw", "path": f"archive/{number}", "arrived": at(second)}
        for number, second in enumerate((DAY_S - 1, DAY_S, DAY_S + 1))
    ]
    past = ReportContext(kept, table(spark, SEGMENTS, rows), at(DAY_S)).restricted_to_past()
    assert events_by_day(past.summaries) == {21: 1, 22: 2}
    paths = sorted(row["path"] for row in past.segments().collect())
    assert paths == ["archive/0", "archive/1"]
    assert events_by_day(kept) == {21: 1, 22: 2, 23: 1}, "the stored summaries stay complete"
