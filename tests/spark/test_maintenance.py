"""Compaction and retention lose and duplicate no row, wherever they are interrupted."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

import pytest
from pyspark.sql import SparkSession

from sync.common.errors import FleetError
from sync.common.fleet_folder import FleetFolder, segment_path
from sync.ingest.ingest import run_ingest
from sync.tables import maintenance
from sync.tables.compaction import Compaction, CompactionResult
from sync.tables.locations import FleetStorage
from sync.tables.maintenance import RetentionPolicy, compact, retain
from sync.tables.manifest import Commits, Counts, LiveFiles, Manifest, live_files, retired
from sync.tables.retention import old_days
from sync.tables.tables import read_events, read_segments
from sync.tables.vacuum import ABANDONED_S, GRACE_S
from tests.helpers.fleet_tables import NOON, Lane, land, put, some_events

pytestmark = pytest.mark.spark

DAY_MS = 86_400_000
FIRST, SECOND = "2025-11-21", "2025-11-22"


class Cut(Exception):
    """The crash that a test causes."""


class Tables:
    """The tables of a fleet folder with a few batches."""

    def __init__(self, spark: SparkSession, fleet: FleetFolder) -> None:
        self.spark, self.fleet = spark, fleet
        self.places = FleetStorage.of(fleet)
        self.commits = Commits(self.places.tables)
        self.lane = Lane()
        self.summarised: list[LiveFiles] = []

    def batch(self, *starts: int) -> None:
        for start in starts:
            land(self.fleet, self.lane.seal(some_events(3, start=start)))
        run_ingest(self.spark, self.fleet, self.commits)

    def rows(self) -> list[tuple[int, date]]:
        events = read_events(self.spark, self.places.tables, self.commits.manifests())
        return sorted(tuple(row) for row in events.select("seq", "day").collect())

    def fates(self) -> list[str]:
        segments = read_segments(self.spark, self.places.tables, self.commits.manifests())
        return sorted(row["fate"] for row in segments.select("fate").collect())

    def compact(
        self, chosen: Callable[[str], bool] = lambda day: True, cut: str | None = None
    ) -> CompactionResult:
        def on_step(step: str) -> None:
            if step == cut:
                raise Cut

        compaction = Compaction(self.spark, self.places.tables, self.commits, on_step)
        return compact(compaction, self.places, self.commits, chosen, wait_s=0)[0]

    def retain(
        self, keep: RetentionPolicy, days: float, *, dry_run: bool = False
    ) -> maintenance.RetentionResult:
        now = datetime.fromtimestamp(time.time(), UTC) + timedelta(days=days)
        return retain(
            *(self.spark, self.places, self.commits, keep, now),
            summarise=lambda manifests: self.summarised.append(live_files(manifests)),
            dry_run=dry_run,
            wait_s=0,
        )

    def parquet(self) -> set[str]:
        return {file.path for file in self.places.tables.files("data", ".parquet")}


@pytest.fixture
def none(spark: SparkSession, fleet: FleetFolder) -> Tables:
    return Tables(spark, fleet)


@pytest.fixture
def tables(none: Tables) -> Tables:
    none.batch(NOON)
    none.batch(NOON, NOON + DAY_MS)
    return none


def test_compaction_changes_no_row_wherever_it_is_interrupted(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, before = tables.rows(), live_files(tables.commits.manifests())
    assert len(before.events[FIRST]) == 2
    assert len(before.segments) == 2

    with pytest.raises(Cut):
        tables.compact(cut="written")
    assert (tables.rows(), live_files(tables.commits.manifests())) == (rows, before)
    with pytest.raises(Cut):
        tables.compact(cut="committed")
    assert tables.rows() == rows
    assert tables.compact() == CompactionResult(0, 2, 1)

    after = live_files(tables.commits.manifests())
    assert [len(after.events[day]) for day in (FIRST, SECOND)] == [1, 1]
    assert len(after.segments) == 1
    assert (tables.rows(), tables.fates()) == (rows, ["accepted"] * 3)
    assert tables.compact() == CompactionResult()

    # readers of before read on, until the grace is over; what was cut off goes later
    old = {*before.events[FIRST], *before.segments}
    assert old <= tables.parquet()
    now = time.time()
    monkeypatch.setattr("sync.tables.maintenance.time.time", lambda: now + GRACE_S + 60)
    tables.compact()
    assert not old & tables.parquet()
    assert set(before.events[SECOND]) <= tables.parquet()
    assert len(tables.parquet()) == 4
    monkeypatch.setattr("sync.tables.maintenance.time.time", lambda: now + ABANDONED_S + 60)
    tables.compact()
    assert tables.parquet() == {*after.events[FIRST], *after.events[SECOND], *after.segments}
    assert tables.rows() == rows

    # what is committed stays committed, and the ledger is the same
    assert all(
        tables.commits.committed(each.query, each.batch) for each in tables.commits.manifests()
    )
    put(tables.fleet.landing / "copy.seg", Lane().seal(some_events(3))[1])
    counts = run_ingest(tables.spark, tables.fleet, tables.commits).counts
    assert counts == Counts(duplicates=1)


def test_compaction_respects_the_target_and_refuses_incomplete_tables(
    tables: Tables,
) -> None:
    rows = tables.rows()
    assert tables.compact(lambda day: day == SECOND) == CompactionResult(0, 2, 1)
    paths = live_files(tables.commits.manifests()).events[FIRST]
    target = max((tables.fleet.tables / path).stat().st_size for path in paths) * 2 - 1
    compaction = Compaction(tables.spark, tables.places.tables, tables.commits, target=target)
    assert compaction.run(lambda day: True) == CompactionResult()
    compaction = Compaction(tables.spark, tables.places.tables, tables.commits, target=target + 3)
    assert compaction.run(lambda day: True) == CompactionResult(1, 2, 1)
    assert tables.rows() == rows
    [path] = live_files(tables.commits.manifests()).events[FIRST]
    found = tables.spark.read.parquet(tables.places.tables.uri(path)).select("seq").collect()
    assert found == sorted(found)

    (tables.fleet.tables / path).rename(tables.fleet.tables / "away")
    with pytest.raises(FileNotFoundError, match="which a manifest names"):
        tables.compact()
    assert len(tables.commits.manifests()) == 4


def test_retention_removes_whole_days_and_keeps_the_ledger(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The centre's clock is far past the days of the events."""
    rows = tables.rows()
    keep = RetentionPolicy(events=30, archive=30, quarantine=30)
    tables.batch(0, NOON + 400 * 365 * DAY_MS)  # clocks that are wrong by years, at present
    refused = put(tables.fleet.quarantine / "x.seg", b"spoiled")
    assert tables.retain(keep, 0).days == {}
    assert len(tables.rows()) == len(rows) + 6

    would = tables.retain(keep, 31, dry_run=True)
    assert set(would.days) >= {FIRST, SECOND, "1970-01-01"}
    assert len(tables.rows()) == len(rows) + 6
    assert tables.summarised == []
    before = live_files(tables.commits.manifests())
    done = tables.retain(keep, 31)
    assert tables.summarised == [before]
    assert (done.days[FIRST], done.days["1970-01-01"], sum(done.days.values())) == (6, 3, 15)
    assert retired(tables.commits.manifests()) == done.days
    assert (tables.rows(), tables.fates()) == ([], ["accepted"] * 5)
    assert tables.retain(keep, 31).days == {}
    assert not refused.exists()

    # the last segment of the lane stays; what comes again is a duplicate still
    names = [path.name for path in tables.fleet.archive.rglob("*.seg")]
    assert names == ["13-15.seg"]
    identity, data = Lane().seal(some_events(3))
    put(tables.fleet.landing / segment_path(identity), data)
    assert run_ingest(tables.spark, tables.fleet, tables.commits).counts == Counts(duplicates=1)

    # the files go with the next upkeep after the grace; the ledger's stay
    tables.retain(RetentionPolicy(), 31 + 2)
    assert len(tables.parquet()) == len(live_files(tables.commits.manifests()).segments) == 4


def test_a_day_is_kept_while_part_of_it_is_recent() -> None:
    old = [
        Manifest("q", batch, "a", at, (), {day: (f"{batch}",)})
        for batch, (at, day) in enumerate(
            [
                ("2025-01-01T00:00:00+00:00", "2025-01-01"),
                ("2025-01-02T00:00:00+00:00", "2024-12-31"),
                ("2025-02-20T00:00:00+00:00", "2024-12-31"),
                ("2025-02-20T00:00:00+00:00", "2025-02-10"),
                ("2025-01-01T00:00:00+00:00", "2055-01-01"),
                ("2025-02-20T00:00:00+00:00", "2056-01-01"),
            ]
        )
    ]
    now = datetime(2025, 3, 1, 12, tzinfo=UTC)
    assert set(old_days(old, now, 30).days) == {"2025-01-01", "2055-01-01"}


def test_abandoned_files_are_removed_after_a_week(none: Tables) -> None:
    root = none.fleet.tables
    cut = put(root / "data/lost/0/cut/events/day=2025-11-21/x.parquet", b"rows")
    young = put(root / "data/lost/1/cut/events/day=2025-11-21/x.parquet", b"rows")
    dead = put(root / "checkpoints/000001/offsets/0", b"offset")
    put(root / "checkpoints/000003/offsets/0", b"offset", at=1)
    for path in (cut, dead):
        os.utime(path, (1, 1))
    for path in (root / "checkpoints/000001").rglob("*"):
        os.utime(path, (1, 1))
    done = none.retain(RetentionPolicy(), 0)
    assert done.rubbish.attempts == ("data/lost/0/cut",)
    assert done.rubbish.checkpoints == ("checkpoints/000001",)
    assert [cut.exists(), young.exists(), dead.exists()] == [False, True, False]
    assert not (root / "data/lost/0").exists()
    assert (root / "checkpoints/000003").exists()


def test_maintenance_waits_for_the_lease(none: Tables) -> None:
    with none.commits.lease(), pytest.raises(FleetError, match="another ingest is at work"):
        none.compact()
