"""The ingest of few files, which needs no Spark: the same outcome, whenever it is interrupted."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from sync.common.errors import FleetError, LeaseError
from sync.common.fleet_folder import FleetFolder
from sync.ingest import ingest as ingest_module
from sync.ingest.ingest import STEPS, IngestControl, IngestResult, ingest_waiting
from sync.tables.delta import Counts, local_tables
from sync.tables.locations import FleetStorage
from tests.helpers.faulty_landing import RoughLanding, Row
from tests.helpers.fleet_tables import Lane, fleet_folder, land, put, some_events, waiting
from tests.helpers.stored_rows import stored_rows


class SparkAskedFor(Exception):
    """Raised in place of starting Spark."""


class Cut(Exception):
    """Raised at a step, as if the process ended there."""


def no_spark() -> SparkSession:
    raise SparkAskedFor


@pytest.fixture
def fleet(tmp_path: Path) -> FleetFolder:
    return fleet_folder(tmp_path / "fleet [a] 100% #ü?")


def ingest(
    fleet: FleetFolder, control: IngestControl | None = None, batch_files: int = 100
) -> IngestResult:
    places = FleetStorage.of(fleet)
    return ingest_waiting(no_spark, places, batch_files=batch_files, control=control)


def cut_at(step: str, number: int = 1) -> IngestControl:
    left = [number]

    def on_step(taken: str) -> None:
        left[0] -= taken == step
        if taken == step and left[0] == 0:
            raise Cut

    return IngestControl(on_step)


def fates(fleet: FleetFolder) -> dict[str, tuple[str, str | None]]:
    _, segments = stored_rows(fleet)
    return {row["path"]: (row["fate"], row["reason"]) for row in segments}


def test_each_file_has_its_fate_and_leaves_the_landing(fleet: FleetFolder) -> None:
    lane, clone = Lane(), Lane()
    sealed = lane.seal(some_events(3))
    path = land(fleet, sealed, at=1_000)
    put(fleet.landing / "stick" / "again.seg", sealed[1], at=1_001)
    put(fleet.landing / "stick" / "clone.seg", clone.seal(some_events(5))[1], at=1_002)
    put(fleet.landing / "stick" / "empty.seg", b"")
    put(fleet.landing / "stick" / "spoiled.seg", b"nothing of the kind" * 10)
    put(fleet.aside / "gw.example" / "e" / "logs" / "1-3.0123.seg", lane.seal(some_events(2))[1])

    counts = Counts(segments=1, events=3, duplicates=1, quarantined=4)
    assert ingest(fleet) == IngestResult(1, counts)

    relative = path.relative_to(fleet.root).as_posix()
    assert fates(fleet) == {
        relative: ("accepted", None),
        "landing/stick/again.seg": ("duplicate", None),
        "landing/stick/clone.seg": ("fork", "fork"),
        "landing/stick/empty.seg": ("bad", "short"),
        "landing/stick/spoiled.seg": ("bad", "magic"),
        "aside/gw.example/e/logs/1-3.0123.seg": ("fork", "fork"),
    }
    assert waiting(fleet) == set()
    assert (fleet.archive / path.relative_to(fleet.landing)).read_bytes() == sealed[1]
    assert len(list(fleet.quarantine.rglob("*.seg"))) == 4
    assert ingest(fleet) == IngestResult(0, Counts())


def test_only_an_empty_file_waits(fleet: FleetFolder) -> None:
    put(fleet.landing / "x" / "empty.seg", b"")
    assert ingest(fleet) == IngestResult(1, Counts(quarantined=1))
    assert waiting(fleet) == set()


def test_later_batches_are_checked_against_the_ledger(fleet: FleetFolder) -> None:
    lane, other = Lane(), Lane(gateway="other.example")
    first = lane.seal(some_events(4))
    land(fleet, first)
    land(fleet, other.seal(some_events(2)))
    assert ingest(fleet).counts == Counts(segments=2, events=6)
    put(fleet.landing / "a" / "again.seg", first[1])
    within = Lane(next_seq=2, previous=b"p" * 32).seal(some_events(1))
    put(fleet.landing / "a" / "within.seg", within[1])
    sibling = Lane(next_seq=5, previous=bytes(32)).seal(some_events(1))
    put(fleet.landing / "a" / "sibling.seg", sibling[1])
    land(fleet, lane.seal(some_events(1)))
    assert ingest(fleet).counts == Counts(segments=1, events=1, duplicates=1, quarantined=2)


@pytest.mark.parametrize("step", STEPS)
def test_it_is_completed_after_an_interruption(fleet: FleetFolder, step: str) -> None:
    landing = RoughLanding(fleet, Random(step))
    landing.fill()
    with pytest.raises(Cut):
        ingest(fleet, cut_at(step))
    landing.fill(all_of_it=True)
    ingest(fleet)
    check(fleet, landing)


def test_any_number_of_interruptions_lose_and_double_nothing(fleet: FleetFolder, seed: int) -> None:
    dice = Random(seed)
    landing = RoughLanding(fleet, dice)
    for _ in range(12):
        landing.fill()
        with contextlib.suppress(Cut):
            ingest(fleet, cut_at(dice.choice(STEPS), dice.randint(1, 3)), batch_files=4)
    landing.fill(all_of_it=True)
    ingest(fleet)
    check(fleet, landing)


def check(fleet: FleetFolder, landing: RoughLanding) -> None:
    """Compare the tables with the truth: each event once, and nothing else."""
    events, segments = stored_rows(fleet)
    found = Counter(
        Row(
            **{name: row[name] for name in Row._fields if name not in ("time", "tags")},
            time=round(row["time"].timestamp() * 1000),
            tags=tuple(sorted(row["tags"] or ())),
        )
        for row in events
    )
    assert found == landing.rows()
    fates: dict[str, Counter[str]] = {fate: Counter() for fate in ("accepted", "duplicate", "bad")}
    for row in segments:
        fates[row["fate"]][row["digest"] or row["sha256"]] += 1
    assert fates["accepted"] == landing.digests()
    assert set(fates["bad"]) == landing.cut
    assert waiting(fleet) == set()
    assert local_tables(fleet.tables).unarchived() == 0


def test_it_stops_before_the_next_batch(fleet: FleetFolder) -> None:
    lane = Lane()
    for _ in range(3):
        land(fleet, lane.seal(some_events(2)))
    control = IngestControl(on_batch=lambda counts: control.stopping.set())
    assert ingest(fleet, control, batch_files=1).batches == 1
    assert len(waiting(fleet)) == 2


def test_the_lease_allows_one_driver(fleet: FleetFolder) -> None:
    with local_tables(fleet.tables).lease(), pytest.raises(LeaseError):
        ingest(fleet)


def test_a_refusing_disk_is_one_error(fleet: FleetFolder) -> None:
    land(fleet, Lane().seal(some_events(1)))
    put(fleet.tables / "events" / "day=2025-11-21", b"a file where a folder has to be")
    with pytest.raises(FleetError, match="the ingest failed: "):
        ingest(fleet)
    assert len(waiting(fleet)) == 1


@pytest.mark.parametrize(("limit", "value"), [("HERE_FILES", 1), ("HERE_BYTES", 1_000)])
def test_spark_ingests_what_is_more(
    fleet: FleetFolder, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(ingest_module, limit, value)
    lane = Lane()
    land(fleet, lane.seal(some_events(2)))
    assert ingest(fleet).batches == 1
    for _ in range(2):
        land(fleet, lane.seal(some_events(20)))
    with pytest.raises(SparkAskedFor):
        ingest(fleet)
