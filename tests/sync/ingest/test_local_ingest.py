"""The ingest of few files without Spark has the same outcome, whenever it is interrupted."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from random import Random

import pytest

from sync.common.errors import FleetError, LeaseError
from sync.common.fleet_folder import FleetFolder, archive_path, segment_path
from sync.ingest import ingest as ingest_module
from sync.ingest.decoding import MAX_DAYS
from sync.ingest.ingest import STEPS, IngestControl, IngestResult, ingest_waiting
from sync.segment import Dropped
from sync.segment.limits import MAX_TIME, MIN_TIME
from sync.storage.local import LocalStorage
from sync.storage.locations import FleetStorage
from sync.tables.delta import Counts, local_tables
from tests.helpers.committed import SimulatedCrash
from tests.helpers.faulty_landing import FaultyLanding, remove_all_but_tables
from tests.helpers.fleet_tables import (
    NOON,
    Lane,
    fleet_folder,
    land,
    put,
    some_events,
    waiting_segments,
)
from tests.helpers.local_ingest import SparkStartAttempt, check, crash_at, ingest, no_spark
from tests.helpers.stored_rows import stored_rows

DAY_MS = 86_400_000


@pytest.fixture
def fleet(tmp_path: Path) -> FleetFolder:
    return fleet_folder(tmp_path / "fleet [a] 100% #ü?")


def outcomes(fleet: FleetFolder) -> dict[str, tuple[str, str | None]]:
    _, segments = stored_rows(fleet)
    return {row["path"]: (row["fate"], row["reason"]) for row in segments}


def test_each_file_is_recorded_and_leaves_the_landing(fleet: FleetFolder) -> None:
    lane, clone = Lane(), Lane()
    sealed = lane.seal(some_events(3))
    path = land(fleet, sealed, at=NOON / 1000 + 10)
    put(fleet.landing / "stick" / "again.seg", sealed[1], at=NOON / 1000 + 11)
    clone_data = clone.seal(some_events(5))[1]
    put(fleet.landing / "stick" / "clone.seg", clone_data, at=NOON / 1000 + 12)
    put(fleet.landing / "stick" / "empty.seg", b"")
    put(fleet.landing / "stick" / "spoiled.seg", b"nothing of the kind" * 10)
    put(fleet.aside / "gw.example" / "e" / "logs" / "1-3.0123.seg", lane.seal(some_events(2))[1])

    counts = Counts(segments=1, events=3, duplicates=1, quarantined=4)
    assert ingest(fleet) == IngestResult(1, counts)

    relative = path.relative_to(fleet.root).as_posix()
    assert outcomes(fleet) == {
        relative: ("accepted", None),
        "landing/stick/again.seg": ("duplicate", None),
        "landing/stick/clone.seg": ("fork", "fork"),
        "landing/stick/empty.seg": ("bad", "short"),
        "landing/stick/spoiled.seg": ("bad", "magic"),
        "aside/gw.example/e/logs/1-3.0123.seg": ("fork", "fork"),
    }
    forks = [row["detail"] for row in stored_rows(fleet)[1] if row["fate"] == "fork"]
    assert sorted(detail.split(" (")[0] for detail in forks) == [
        "overlaps 1-3",
        "the receiver has a different file with this name",
    ]
    assert waiting_segments(fleet) == set()
    assert (fleet.archive / archive_path(segment_path(sealed[0]))).read_bytes() == sealed[1]
    assert len(list(fleet.quarantine.rglob("*.seg"))) == 4
    assert ingest(fleet) == IngestResult(0, Counts())


def test_tables_in_a_folder_that_does_not_exist_are_created(
    fleet: FleetFolder, tmp_path: Path
) -> None:
    """Tables named by a URI have no folder before the first ingest."""
    land(fleet, Lane().seal(some_events(3)))
    storage = LocalStorage(tmp_path / "new" / "tables")
    places = FleetStorage(LocalStorage(fleet.root), storage)
    assert ingest_waiting(no_spark, places).counts == Counts(segments=1, events=3)


def test_later_batches_are_checked_against_the_ledger(fleet: FleetFolder) -> None:
    lane, other = Lane(), Lane(gateway="other.example")
    first = lane.seal(some_events(4))
    land(fleet, first)
    land(fleet, other.seal(some_events(2)))
    assert ingest(fleet).counts == Counts(segments=2, events=6)
    within = Lane(next_seq=2, previous=b"p" * 32).seal(some_events(1))
    sibling = Lane(next_seq=5, previous=bytes(32)).seal(some_events(1))
    for name, (_, data) in (("again", first), ("within", within), ("sibling", sibling)):
        put(fleet.landing / "a" / f"{name}.seg", data)
    land(fleet, lane.seal(some_events(1)))
    assert ingest(fleet).counts == Counts(segments=1, events=1, duplicates=1, quarantined=2)


def test_batches_of_one_run_are_checked_against_each_other(fleet: FleetFolder) -> None:
    lane = Lane()
    for at in range(3):
        land(fleet, lane.seal(some_events(2)), at=NOON / 1000 + at)
    put(fleet.landing / "copy" / "x.seg", Lane().seal(some_events(2))[1], at=NOON / 1000 + 9)
    land(fleet, Lane(next_seq=2, previous=lane.previous).seal(some_events(3)), at=NOON / 1000 + 10)
    counts = Counts(segments=3, events=6, duplicates=1, quarantined=1)
    assert ingest(fleet, batch_files=2) == IngestResult(3, counts)


@pytest.mark.parametrize("count", [4, 5])
def test_a_batch_fails_if_a_segment_changes_after_it_was_judged(
    fleet: FleetFolder, count: int
) -> None:
    """Because of the copy, the batch is decoded twice, the second time with another segment."""
    sealed = Lane().seal(some_events(4))
    path = land(fleet, sealed, at=NOON / 1000)
    put(fleet.landing / "copy" / "x.seg", sealed[1], at=NOON / 1000 + 1)

    def change(step: str) -> None:
        if step == "judged":
            put(path, Lane().seal(some_events(count, start=NOON + 7))[1], at=NOON / 1000)

    with pytest.raises(FleetError, match="changed while it was ingested"):
        ingest(fleet, IngestControl(change))
    assert local_tables(fleet.tables).snapshot().batch == 0
    assert ingest(fleet).counts == Counts(segments=1, events=count, quarantined=1)
    events, _ = stored_rows(fleet)
    assert [row["seq"] for row in events] == list(range(1, count + 1))


def test_a_declared_range_that_arrives_after_its_declaration_is_ingested(
    fleet: FleetFolder,
) -> None:
    lane = Lane()
    evicted = lane.seal(some_events(4))
    land(fleet, lane.seal(some_events(3), (Dropped(1, 4, "backlog-full"),)))
    assert ingest(fleet).counts == Counts(segments=1, events=3)
    land(fleet, evicted)
    assert ingest(fleet).counts == Counts(segments=1, events=4)


def test_wrong_clocks_are_accepted_and_limited_in_days(fleet: FleetFolder) -> None:
    """A board without a clock starts in 1970 and may stay there for weeks."""
    behind, ahead, stepped = (Lane(gateway=f"gw-{at}.example") for at in range(3))
    for day in range(21):
        land(fleet, behind.seal(some_events(2, start=day * DAY_MS)))
    before = some_events(2, start=1000)
    arrived = NOON / 1000 + 60
    for path in (
        land(fleet, ahead.seal(some_events(3, start=MAX_TIME - 2_000))),
        land(fleet, stepped.seal([*before, *some_events(2), *some_events(1, start=MIN_TIME)])),
        land(fleet, stepped.seal(some_events(MAX_DAYS, step_ms=-400 * DAY_MS))),
        land(fleet, stepped.seal(some_events(MAX_DAYS + 1, step_ms=-DAY_MS))),
        *fleet.landing.rglob("*.seg"),
    ):
        os.utime(path, (arrived, arrived))

    counts = ingest(fleet).counts
    wrong = 42 + 3 + 3 + MAX_DAYS - 1
    assert counts == Counts(24, 42 + 3 + 5 + MAX_DAYS, quarantined=1, misdated=wrong)
    events, _ = stored_rows(fleet)
    assert len({row["time"].date() for row in events}) > 50
    assert [*local_tables(fleet.tables).snapshot().days] == ["2025-11-21"]


@pytest.mark.parametrize("step", STEPS)
def test_an_interrupted_ingest_is_completed(fleet: FleetFolder, step: str) -> None:
    landing = FaultyLanding(fleet, Random(step))
    landing.fill()
    with pytest.raises(SimulatedCrash):
        ingest(fleet, crash_at(step))
    remove_all_but_tables(fleet)
    landing.fill(all_of_it=True)
    ingest(fleet)
    check(fleet, landing)


def test_interruptions_lose_and_duplicate_nothing(fleet: FleetFolder, seed: int) -> None:
    dice = Random(seed)
    landing = FaultyLanding(fleet, dice)
    for _ in range(12):
        landing.fill()
        with contextlib.suppress(SimulatedCrash):
            ingest(fleet, crash_at(dice.choice(STEPS), dice.randint(1, 3)), batch_files=4)
    landing.fill(all_of_it=True)
    ingest(fleet)
    check(fleet, landing)


def test_a_file_that_vanishes_is_skipped(fleet: FleetFolder) -> None:
    lane = Lane()
    land(fleet, lane.seal(some_events(2)))
    path = land(fleet, lane.seal(some_events(2)))

    def vanish(step: str) -> None:
        if step == "began":
            path.unlink()

    assert ingest(fleet, IngestControl(vanish)) == IngestResult(1, Counts(segments=1, events=2))


def test_the_ingest_stops_before_the_next_batch(fleet: FleetFolder) -> None:
    lane = Lane()
    for _ in range(3):
        land(fleet, lane.seal(some_events(2)))
    control = IngestControl(lambda step: control.stopping.set() if step == "committed" else None)
    assert ingest(fleet, control, batch_files=1).batches == 1
    assert len(waiting_segments(fleet)) == 2


def test_the_lease_allows_one_driver(fleet: FleetFolder) -> None:
    with local_tables(fleet.tables).lease(), pytest.raises(LeaseError):
        ingest(fleet)


def test_a_failed_write_is_one_error(fleet: FleetFolder) -> None:
    land(fleet, Lane().seal(some_events(1)))
    put(fleet.tables / "events" / "day=2025-11-21", b"a file where a folder has to be")
    with pytest.raises(FleetError, match="the ingest failed: "):
        ingest(fleet)
    assert len(waiting_segments(fleet)) == 1


@pytest.mark.parametrize(("files", "size"), [(1, 1_000_000), (10, 1_000)])
def test_spark_ingests_many_or_large_files(
    fleet: FleetFolder, monkeypatch: pytest.MonkeyPatch, files: int, size: int
) -> None:
    monkeypatch.setattr(ingest_module, "HERE_BYTES", size)
    lane = Lane()
    land(fleet, lane.seal(some_events(2)))
    assert ingest(fleet, here_files=files).batches == 1
    for _ in range(2):
        land(fleet, lane.seal(some_events(20)))
    with pytest.raises(SparkStartAttempt):
        ingest(fleet, here_files=files)
