"""Spark's tasks read and write an object store through the storage, without Hadoop's classes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import NoReturn

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sync.ingest.ingest import ingest_waiting
from sync.reports.shared.registry import SUMMARIES
from sync.storage.locations import FleetStorage, StorageOptions, open_storage
from sync.tables.delta import FleetTables, Snapshot
from sync.tables.maintenance import RetentionPolicy, compact, retain
from sync.tables.summaries import StoredSummaries, summarise
from sync.tables.tables import read_segments
from tests.helpers.committed import SimulatedCrash
from tests.helpers.faulty_landing import FaultyLanding
from tests.helpers.fleet_command import Command
from tests.helpers.fleet_tables import fleet_folder
from tests.helpers.local_ingest import check, crash_at
from tests.helpers.object_store import BUCKET, download, environment, upload

pytestmark = pytest.mark.spark

SOME = SUMMARIES[:3]
URIS = ("--landing", f"s3://{BUCKET}/landing", "--tables", f"s3://{BUCKET}/tables")


@pytest.fixture
def places(spark: SparkSession, s3: str) -> Iterator[FleetStorage]:
    """A bucket that Spark's workers reach by their environment."""
    given = spark.sparkContext.environment
    before = dict(given)
    given.update(environment(s3))
    yield StorageOptions(None, URIS[1], URIS[3]).open()
    given.clear()
    given.update(before)


def rows(kept: StoredSummaries) -> list[list[tuple[object, ...]]]:
    return [sorted(map(tuple, kept.rows(each).collect()), key=repr) for each in SOME]


def test_a_bucket_has_the_same_tables_and_summaries_as_a_disk(
    spark: SparkSession, places: FleetStorage, tmp_path: Path, seed: int
) -> None:
    arriving = fleet_folder(tmp_path / "arriving")
    landing = FaultyLanding(arriving, Random(seed))
    for step in ("judged", "events", "committed"):
        landing.fill(all_of_it=step == "committed")
        upload(arriving, places.segments)
        with pytest.raises(SimulatedCrash):
            ingest_waiting(lambda: spark, places, crash_at(step), here_files=0)
    ingest_waiting(lambda: spark, places, here_files=0)
    copy = download(places.segments, tmp_path / "copy")
    check(copy, landing)

    tables = FleetTables(places.tables, places.segments)
    compact(tables, ("<=", "9999-01-01"))
    in_store, on_disk = tables.snapshot(), FleetTables(FleetStorage.of(copy).tables).snapshot()
    found = rows(summarise(spark, in_store, SOME))
    assert found == rows(summarise(spark, on_disk, SOME))
    assert any(found)
    assert segments(spark, in_store) == segments(spark, on_disk)

    far = datetime.now(UTC) + timedelta(days=60)
    removed = retain(
        *(places, RetentionPolicy(events=1, archive=1), far),
        summarise=lambda seen: summarise(spark, seen, SOME),
    )
    assert sum(removed.days.values()) == in_store.rows > 0
    emptied = tables.snapshot()
    assert emptied.rows == 0
    assert rows(summarise(spark, emptied, SOME)) == found


def test_a_report_in_a_bucket_is_that_on_a_disk(
    places: FleetStorage,
    tmp_path: Path,
    seed: int,
    command_in_process: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark's tasks draw the pages of gateways that are in the bucket."""
    arriving = fleet_folder(tmp_path / "arriving")
    FaultyLanding(arriving, Random(seed)).fill(all_of_it=True)
    upload(arriving, places.segments)
    first = command_in_process("ingest", *URIS, "--report", f"s3://{BUCKET}/first")
    assert (first.returncode, first.stderr) == (0, "")
    copy = download(places.segments, tmp_path / "copy")
    moment, out, uri = datetime.now(UTC).isoformat(), tmp_path / "out", f"s3://{BUCKET}/out"
    on_disk = command_in_process("report", "--dir", copy.root, "--out", out, "--as-of", moment)
    monkeypatch.setattr("sync.cli.gather.FEW_EVENTS", 0)
    monkeypatch.setattr("sync.cli.gather.LARGE_FLEET", 1)
    monkeypatch.setattr("sync.pages.files.by_gateway", not_here)
    in_bucket = command_in_process("report", *URIS, "--out", uri, "--as-of", moment)
    assert (in_bucket.returncode, in_bucket.stderr) == (0, "")
    assert in_bucket.stdout == on_disk.stdout.replace(str(out), uri)
    report = open_storage(uri)
    written = {file.path: report.read(file.path) for file in report.files()}
    paths = [path for path in out.rglob("*") if path.is_file()]
    assert written == {str(path.relative_to(out)): path.read_bytes() for path in paths}
    assert written.keys() == {file.path for file in open_storage(f"s3://{BUCKET}/first").files()}


def not_here(_: object) -> NoReturn:
    pytest.fail("the driver draws the pages of gateways")


def segments(spark: SparkSession, snapshot: Snapshot) -> list[tuple[object, ...]]:
    counts = read_segments(spark, snapshot).groupBy("gateway", "lane", "fate").agg(F.count("path"))
    return sorted(map(tuple, counts.collect()), key=repr)
