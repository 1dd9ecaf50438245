from __future__ import annotations

import contextlib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from sync.reports import anomalies, availability, completeness, refusals, sensors
from sync.reports.shared.frames import seconds, time_at
from sync.reports.shared.report import ReportContext
from sync.tables import partitions
from sync.tables.delta import Snapshot
from sync.tables.partitions import coalesced, empty_frame, size_of, union, without_repartitioning
from sync.tables.summaries import StoredSummaries, summarise
from sync.tables.summaries import stored as kept
from sync.tables.summaries.index import FOLDER
from sync.tables.tables import read_segments
from tests.helpers.committed import Committer
from tests.helpers.small_tables import START, at, table

pytestmark = pytest.mark.spark

SCHEMA = StructType([StructField("gateway", StringType()), StructField("n", LongType())])
REPORTS = tuple(
    module.REPORT for module in (availability, completeness, refusals, sensors, anomalies)
)
DAILY = {each.name: each for report in REPORTS for each in report.summaries}
GATEWAYS, DAYS, READINGS = 4, 2, 3


def stored(spark: SparkSession, folder: Path, *numbers: int) -> DataFrame:
    """Return rows that are in two files."""
    rows = [{"gateway": "gw", "n": number} for number in numbers]
    table(spark, SCHEMA, rows).repartition(2).write.parquet(str(folder))
    return spark.read.schema(SCHEMA).parquet(str(folder))


def numbers(rows: DataFrame) -> list[int]:
    return sorted(row["n"] for row in rows.collect())


def partitions_of(rows: DataFrame) -> int:
    return rows.rdd.getNumPartitions()


def test_small_frames_are_in_one_partition(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "SMALL_BYTES", 8_000)
    spark.conf.set("spark.sql.files.maxPartitionBytes", "500")
    try:
        few, more = stored(spark, tmp_path / "a", 1, 2), stored(spark, tmp_path / "b", 3, 4)
        size = sum(file.stat().st_size for file in (tmp_path / "a").glob("*.parquet"))
        assert size_of(few) == size
        assert partitions_of(few) > partitions_of(coalesced(few)) == 1
        both = union(coalesced(few), coalesced(more.drop("n")))
        assert (partitions_of(both), sum(row["n"] is None for row in both.collect())) == (1, 2)
        none = union(empty_frame(spark, SCHEMA), few)
        assert (partitions_of(none), numbers(none)) == (1, [1, 2])
        assert empty_frame(spark, SCHEMA).schema == SCHEMA

        # a larger frame keeps its partitions, and so does a union that gets too large
        monkeypatch.setattr(partitions, "SMALL_BYTES", size)
        assert partitions_of(coalesced(few)) == 1
        assert partitions_of(union(coalesced(few), coalesced(more))) > 1
        monkeypatch.setattr(partitions, "SMALL_BYTES", size - 1)
        assert partitions_of(coalesced(few)) == partitions_of(few)
        assert numbers(coalesced(few)) == [1, 2]
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")


def test_settings_are_restored_after_an_error(spark: SparkSession) -> None:
    name = "spark.sql.autoBroadcastJoinThreshold"
    before = spark.conf.get(name)
    within = []
    with contextlib.suppress(ZeroDivisionError), without_repartitioning(spark):
        within.append(spark.conf.get(name))
        raise ZeroDivisionError
    assert within == ["-1"] != [before]
    assert spark.conf.get(name) == before


def batch(tables: Path) -> Snapshot:
    """Write two days of a few gateways: a heartbeat and readings every hour, and their segments."""
    place = [(f"gw{gateway}", day) for gateway in range(GATEWAYS) for day in range(DAYS)]
    events: list[dict[str, Any]] = []
    segments: list[dict[str, Any]] = []
    for gateway, day in place:
        base = {"gateway": gateway, "epoch": "1", "clock": True, "level": "Informational"}
        for number in range(1, READINGS + 1):
            seq, when = day * READINGS + number, at(day * 86_400 + number * 3_600)
            event = base | {"seq": seq, "time": when, "arrived": when + timedelta(seconds=number)}
            heartbeat = {"lane": "system", "kind": "system", "name": "heartbeat", "value": 60.0}
            reading = {"lane": "readings", "kind": "reading", "topic": "t", "value": float(seq)}
            events += [event | heartbeat, event | reading]
        ends = {"first_seq": day * READINGS + 1, "last_seq": (day + 1) * READINGS}
        sealed = {"arrived": at(day * 86_400), "sealed_at": at(day * 86_400), "size": 100}
        head = {"fate": "accepted", "digest": f"{day}", "previous": f"{day - 1}", "dropped": []}
        row = {"gateway": gateway, "epoch": "1", **ends, **sealed, **head}
        segments += [row | {"lane": lane} for lane in ("system", "readings")]
    committer = Committer(tables)
    committer.commit(events[::2], segments[::2])
    return committer.commit(events[1::2], segments[1::2])


def stages(spark: SparkSession) -> int:
    """Count the stages of all jobs so far that are in no group."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup()]
    return sum(len(job.stageIds) for job in jobs if job is not None)


def rows_of(summaries: StoredSummaries) -> dict[str, list[str]]:
    return {name: sorted(map(str, summaries.rows(each).collect())) for name, each in DAILY.items()}


def test_a_report_of_small_tables_needs_no_shuffle(spark: SparkSession, tmp_path: Path) -> None:
    snapshot = batch(tmp_path)
    summaries = summarise(spark, snapshot, list(DAILY.values()))
    context = ReportContext(summaries, read_segments(spark, snapshot), START, START.date())
    needed = {}
    with without_repartitioning(spark):
        for each in REPORTS:
            before = stages(spark)
            rows = each.compute(context).collect()
            needed[each.name] = stages(spark) - before
            assert rows or each is refusals.REPORT
    # two reports use a figure of all rows, which needs one more stage
    two = ("refusals", "anomalies")
    assert needed == {each.name: 2 if each.name in two else 1 for each in REPORTS}


def test_many_events_in_several_partitions_give_the_same_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = batch(tmp_path)
    whole = rows_of(summarise(spark, snapshot, list(DAILY.values())))
    assert len(whole["lanes"]) == GATEWAYS * DAYS * 2
    before = set((tmp_path / FOLDER).rglob("*.parquet"))
    for summary in (tmp_path / FOLDER).rglob("kept.json"):
        summary.unlink()
    monkeypatch.setattr(kept, "PART", 1_000)
    divided = summarise(spark, snapshot, list(DAILY.values()))
    assert rows_of(divided) == whole
    written = set((tmp_path / FOLDER).rglob("*.parquet")) - before
    folders = [path.parent for path in written]
    assert len(folders) == len(set(folders)) == len(before)


@pytest.mark.parametrize("text", ["9999-12-31T20:59:59.999", "0001-01-01T00:00:00.001"])
def test_times_of_far_years_stay_exact_as_seconds(spark: SparkSession, text: str) -> None:
    rows = spark.range(1).select(F.lit(text).cast("timestamp").alias("time"))
    [row] = rows.select(time_at(seconds("time")).alias("shown")).toArrow().to_pylist()
    shown = row["shown"]
    assert shown.isoformat(timespec="milliseconds") == f"{text}+00:00"
