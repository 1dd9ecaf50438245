"""Compaction and retention lose and duplicate no row, wherever they are interrupted."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from sync.common.errors import FleetError
from sync.common.fleet_folder import FleetFolder, segment_path
from sync.storage.locations import FleetStorage
from sync.tables.delta import EVENTS, KEPT_DAYS, SEGMENTS, Counts, FleetTables, Snapshot
from sync.tables.maintenance import (
    TARGET,
    CompactionResult,
    RetentionPolicy,
    RetentionResult,
    compact,
    old_days,
    retain,
)
from tests.helpers.committed import Committer, SimulatedCrash
from tests.helpers.fleet_tables import NOON, Lane, fleet_folder, land, put, some_events
from tests.helpers.local_ingest import ingest
from tests.helpers.stored_rows import stored_rows

DAY_MS = 86_400_000
FIRST, SECOND = "2025-11-21", "2025-11-22"


class Tables:
    """The tables of a fleet folder with a few batches."""

    def __init__(self, fleet: FleetFolder) -> None:
        self.fleet = fleet
        self.storage = FleetStorage.of(fleet)
        self.tables = FleetTables(self.storage.tables)
        self.lane = Lane()
        self.summarised: list[Snapshot] = []

    def batch(self, *starts: int) -> None:
        for start in starts:
            land(self.fleet, self.lane.seal(some_events(3, start=start)))
        ingest(self.fleet)

    def rows(self) -> list[tuple[int, date]]:
        return [(row["seq"], row["time"].date()) for row in stored_rows(self.fleet)[0]]

    def outcomes(self) -> list[str]:
        return sorted(row["fate"] for row in stored_rows(self.fleet)[1])

    def compact(self, op: str = "<=", day: str = SECOND, target: int = TARGET) -> CompactionResult:
        return compact(self.tables, (op, day), target=target, wait_s=0)

    def retain(
        self, keep: RetentionPolicy, days: float, *, dry_run: bool = False
    ) -> RetentionResult:
        now = datetime.now(UTC) + timedelta(days=days)
        return retain(
            *(self.storage, keep, now), summarise=self.summarised.append, dry_run=dry_run, wait_s=0
        )

    def parquet(self) -> set[str]:
        names = (EVENTS, SEGMENTS)
        return {each.path for name in names for each in self.storage.tables.files(name, ".parquet")}

    def age(self, days: float) -> None:
        """Make every file and removal of the tables older by this many days."""
        for name in (EVENTS, SEGMENTS):
            table = self.fleet.tables / name
            for path in table.rglob("*"):
                at = path.stat().st_mtime - days * 86_400
                os.utime(path, (at, at))
            for commit in (table / "_delta_log").glob("*.json"):
                commit.write_text(older(commit.read_text("utf-8"), days), "utf-8")


def older(commit: str, days: float) -> str:
    actions = [json.loads(line) for line in commit.splitlines()]
    for action in actions:
        for each, name in (("remove", "deletionTimestamp"), ("add", "modificationTime")):
            if each in action:
                action[each][name] -= round(days * DAY_MS)
    return "\n".join(map(json.dumps, actions)) + "\n"


@pytest.fixture
def empty(tmp_path: Path) -> Tables:
    return Tables(fleet_folder(tmp_path / "fleet"))


@pytest.fixture
def tables(empty: Tables) -> Tables:
    empty.batch(NOON)
    empty.batch(NOON, NOON + DAY_MS)
    return empty


def test_compaction_changes_no_row_wherever_it_is_interrupted(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, before = tables.rows(), tables.tables.snapshot()
    assert len(before.days[FIRST].files) == 2
    assert len(before.segment_files) == 2

    @contextlib.contextmanager
    def cut_off(*names: str) -> Iterator[None]:
        """Commit, and stop before the commit is durable."""
        with journaled(*names):
            yield
            raise SimulatedCrash

    with monkeypatch.context() as patched:
        journaled = tables.tables.journaled
        patched.setattr(tables.tables, "journaled", cut_off)
        with pytest.raises(SimulatedCrash):
            tables.compact()
    assert tables.rows() == rows
    assert tables.compact() == CompactionResult(0, 2, 1)

    after = tables.tables.snapshot()
    assert [len(after.days[day].files) for day in (FIRST, SECOND)] == [1, 1]
    assert len(after.segment_files) == 1
    assert (tables.rows(), tables.outcomes()) == (rows, ["accepted"] * 3)
    assert tables.compact() == CompactionResult()

    # the replaced files stay for their readers until KEPT_DAYS are over
    old = {*before.days[FIRST].files, *before.segment_files}
    assert old <= tables.parquet()
    tables.age(KEPT_DAYS - 0.1)
    assert tables.compact() == CompactionResult()
    tables.age(0.2)
    assert tables.compact() == CompactionResult(removed=len(old))
    assert tables.parquet() == {*after.event_files, *after.segment_files}
    assert tables.rows() == rows

    # committed batches stay committed, and the ledger is unchanged
    put(tables.fleet.landing / "copy.seg", Lane().seal(some_events(3))[1])
    assert ingest(tables.fleet).counts == Counts(duplicates=1)


def test_compaction_of_one_day_and_of_small_files(tables: Tables) -> None:
    rows = tables.rows()
    assert tables.compact("=", SECOND) == CompactionResult(0, 2, 1)
    paths = tables.tables.snapshot().days[FIRST].files
    sizes = [(tables.fleet.tables / path).stat().st_size for path in paths]
    assert tables.compact(target=min(sizes)) == CompactionResult()
    assert tables.compact(target=sum(sizes) + 1) == CompactionResult(1, 2, 1)
    assert tables.rows() == rows


def test_retention_removes_whole_days_and_keeps_the_ledger(tables: Tables) -> None:
    """The centre's clock is far past the days of the events."""
    rows = tables.rows()
    keep = RetentionPolicy(events=30, archive=30, quarantine=30)
    tables.batch(0, NOON + 400 * 365 * DAY_MS)  # clocks that are wrong by years
    [wrong] = set(tables.tables.snapshot().days) - {FIRST, SECOND}
    quarantined = put(tables.fleet.quarantine / "x.seg", b"spoiled")
    assert tables.retain(keep, 0).days == {}
    assert len(tables.rows()) == len(rows) + 6

    planned = tables.retain(keep, 31, dry_run=True)
    assert set(planned.days) >= {FIRST, SECOND, wrong}
    assert len(tables.rows()) == len(rows) + 6
    assert tables.summarised == []
    before = tables.tables.snapshot()
    result = tables.retain(keep, 31)
    assert [each.event_files for each in tables.summarised] == [before.event_files]
    assert (result.days[FIRST], result.days[wrong], sum(result.days.values())) == (6, 6, 15)
    after = tables.tables.snapshot()
    assert {day: after.retired(day) for day in result.days} == result.days
    assert after.retired("2025-01-01") == 0
    assert (tables.rows(), tables.outcomes()) == ([], ["accepted"] * 5)
    assert tables.retain(keep, 31).days == {}
    assert not quarantined.exists()

    # the last segment of the lane stays; a repeated segment is still a duplicate
    names = [path.name for path in tables.fleet.archive.rglob("*.seg")]
    assert names == ["r9223372036854775792.13-15.seg"]
    identity, data = Lane().seal(some_events(3))
    put(tables.fleet.landing / segment_path(identity), data)
    assert ingest(tables.fleet).counts == Counts(duplicates=1)

    # the next maintenance after KEPT_DAYS removes the files, except those of the ledger
    tables.age(KEPT_DAYS + 1)
    assert len(tables.retain(RetentionPolicy(), 0).replaced) == 4
    assert len(tables.parquet()) == len(tables.tables.snapshot().segment_files) == 4


def test_an_ingest_during_the_summaries_of_retention_keeps_the_days_that_it_adds_to(
    tables: Tables,
) -> None:
    def ingest_more(_: Snapshot) -> None:
        tables.batch(NOON + 1_000)  # would raise LeaseError if retention held the lease

    now = datetime.now(UTC) + timedelta(days=31)
    keep = RetentionPolicy(events=30)
    result = retain(tables.storage, keep, now, summarise=ingest_more, wait_s=0)
    assert result.days == {SECOND: 3}
    assert {day for _, day in tables.rows()} == {date.fromisoformat(FIRST)}
    assert tables.tables.snapshot().retired(FIRST) == 0


def test_a_compaction_during_the_summaries_of_retention_does_not_keep_a_day(
    tables: Tables,
) -> None:
    def compact_all(_: Snapshot) -> None:
        tables.compact()

    now = datetime.now(UTC) + timedelta(days=31)
    result = retain(tables.storage, RetentionPolicy(30), now, summarise=compact_all, wait_s=0)
    assert result.days == {FIRST: 6, SECOND: 3}


def test_a_day_is_kept_while_part_of_it_is_recent(empty: Tables) -> None:
    now = datetime.now(UTC)
    committer = Committer(empty.fleet.tables)

    def days(*ago: float) -> None:
        committer.commit([{"gateway": "gw", "time": now - timedelta(days=each)} for each in ago])

    days(60, 61, 3, -11_000)
    empty.age(40)
    days(61, -11_001)
    found = old_days(empty.tables.snapshot(), now, 30)
    assert [(now.date() - date.fromisoformat(day)).days for day in found] == [60, -11_000]


def test_abandoned_files_are_removed_after_a_week(empty: Tables) -> None:
    empty.batch(NOON)
    root = empty.fleet.tables
    old = put(root / "events/day=2025-11-21/x.parquet", b"rows")
    recent = put(root / "events/day=2025-11-21/y.parquet", b"rows")
    os.utime(old, (1, 1))
    result = empty.retain(RetentionPolicy(), 0)
    assert result.replaced == ("events/day=2025-11-21/x.parquet",)
    assert [old.exists(), recent.exists()] == [False, True]


def test_maintenance_waits_for_the_lease(empty: Tables) -> None:
    with empty.tables.lease(), pytest.raises(FleetError, match="another command is at work"):
        empty.compact()
