from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from sync.common.errors import FleetError, LeaseError
from sync.common.fleet_folder import FleetFolder
from sync.ingest.ingest import STEPS, IngestControl, IngestResult, ingest_waiting
from sync.segment import Dropped
from sync.tables.delta import Counts, local_tables
from sync.tables.locations import FleetStorage
from sync.tables.tables import read_events, read_segments
from tests.helpers.fleet_tables import NOON, Lane, fleet_folder, land, put, some_events, waiting
from tests.helpers.local_ingest import ingest_by_spark

pytestmark = pytest.mark.spark


class Cut(Exception):
    """The crash that a test causes."""


def cut_after(step: str) -> Callable[[str], None]:
    def hook(taken: str) -> None:
        if taken == step:
            raise Cut(step)

    return hook


def ingest(spark: SparkSession, fleet: FleetFolder, cut: str | None = None) -> IngestResult:
    return ingest_by_spark(spark, fleet, IngestControl(cut_after(cut)) if cut else None)


def events(spark: SparkSession, fleet: FleetFolder) -> DataFrame:
    return read_events(spark, local_tables(fleet.tables).snapshot())


def segments(spark: SparkSession, fleet: FleetFolder) -> DataFrame:
    return read_segments(spark, local_tables(fleet.tables).snapshot())


def numbers(spark: SparkSession, fleet: FleetFolder) -> list[int]:
    return sorted(row["seq"] for row in events(spark, fleet).select("seq").collect())


def test_every_field_of_an_event_and_of_its_segment_is_stored(
    spark: SparkSession, tmp_path: Path
) -> None:
    fleet = fleet_folder(tmp_path / "fleet [a] 100% #ü?")
    lane = Lane()
    lane.skip(3)
    identity, data = lane.seal(some_events(2), (Dropped(1, 3, "backlog-full"),))
    path = land(fleet, (identity, data), at=NOON / 1000 + 2.5)

    with local_tables(fleet.tables).lease(), pytest.raises(LeaseError):
        ingest(spark, fleet)
    assert ingest(spark, fleet).counts == Counts(segments=1, events=2)
    assert not path.exists()
    assert (fleet.archive / path.relative_to(fleet.landing)).read_bytes() == data
    assert ingest(spark, fleet).counts == Counts()

    table = events(spark, fleet).orderBy("seq").toArrow().to_pylist()
    assert [row["seq"] for row in table] == [4, 5]
    row = table[1]
    assert row["time"].isoformat() == "2025-11-21T12:00:01+00:00"
    assert row["arrived"].isoformat() == "2025-11-21T12:00:02.500000+00:00"
    assert row["day"].isoformat() == "2025-11-21"
    assert row["tags"] == [("facility", "pump")]
    plain = ("gateway", "epoch", "lane", "clock", "kind", "source", "name", "level", "text", "qos")
    assert {name: row[name] for name in plain} == {
        "gateway": "gw.example",
        "epoch": lane.epoch,
        "lane": "logs",
        "clock": True,
        "kind": "log",
        "source": "pump1@gw.example/fw",
        "name": "event-1",
        "level": "Informational",
        "text": "ünïcode",
        "qos": 2,
    }
    assert [row[name] for name in ("latency_ms", "topic", "value", "unit")] == [1, None, None, None]

    segment = segments(spark, fleet).toArrow().to_pylist()[0]
    assert segment["path"] == path.relative_to(fleet.root).as_posix()
    assert (segment["fate"], segment["size"]) == ("accepted", len(data))
    assert segment["digest"] == data[-32:].hex()
    assert segment["previous"] == "00" * 32
    assert segment["dropped"] == [{"first_seq": 1, "last_seq": 3, "reason": "backlog-full"}]
    assert (segment["software"], segment["disk_used"]) == ("0.1.0", 1_000_000)


def test_many_small_segments_make_one_file_for_each_core(
    spark: SparkSession, fleet: FleetFolder
) -> None:
    lane = Lane()
    for at in range(80):
        land(fleet, lane.seal(some_events(1)), at=NOON / 1000 + at)
    assert ingest(spark, fleet).counts.events == 80
    assert len(local_tables(fleet.tables).snapshot().event_files) == 2


def test_an_ingest_that_crashes_after_any_step_is_completed_by_the_next(
    spark: SparkSession, fleet: FleetFolder
) -> None:
    """Each ingest completes what the one before has begun, and crashes one step later."""
    lane = Lane()
    put(fleet.landing / "copy" / "x.seg", Lane().seal(some_events(4))[1])
    for step in STEPS:
        land(fleet, lane.seal(some_events(4)))
        with pytest.raises(Cut, match=step):
            ingest(spark, fleet, cut=step)

    ingest(spark, fleet)

    count = len(STEPS)
    assert numbers(spark, fleet) == list(range(1, 4 * count + 1))
    fates = [row["fate"] for row in segments(spark, fleet).select("fate").collect()]
    assert sorted(fates) == ["accepted"] * count + ["duplicate"]
    assert waiting(fleet) == set()
    assert len(list(fleet.archive.rglob("*.seg"))) == count + 1
    assert local_tables(fleet.tables).unarchived() == 0


def test_an_ingest_that_is_stopped_ends_after_the_batch(
    spark: SparkSession, fleet: FleetFolder
) -> None:
    lane = Lane()
    for _ in range(2):
        land(fleet, lane.seal(some_events(2)))
    control = IngestControl(lambda step: control.stopping.set() if step == "committed" else None)
    stopped = ingest_by_spark(spark, fleet, control, batch_files=1)
    assert stopped == IngestResult(1, Counts(segments=1, events=2))
    assert len(waiting(fleet)) == 1


def test_odd_names_and_empty_files_are_read(spark: SparkSession, fleet: FleetFolder) -> None:
    names = ("%41 b", "[a]{b,c}*?", "ü\u2028", "back\\slash", "co:lon", "x=1/y=2", "x=3/y", "'\"")
    lane = Lane()
    for at, name in enumerate(names):
        put(fleet.landing / name / f"{at}{name[:1]}.seg", lane.seal(some_events(2))[1], at=at)
        put(fleet.landing / name / "empty.seg", b"")
    count = len(names)
    assert ingest(spark, fleet).counts == Counts(count, 2 * count, quarantined=count)
    assert waiting(fleet) == set()
    put(fleet.landing / "empty.seg", b"")
    assert ingest(spark, fleet) == IngestResult(1, Counts(quarantined=1))


def test_a_file_that_exists_and_is_not_read_fails_the_batch(
    spark: SparkSession, fleet: FleetFolder
) -> None:
    """Spark leaves out a file that became empty after it was listed."""
    path = put(fleet.landing / "x.seg", b"spoiled" * 9)

    def session() -> SparkSession:
        path.write_bytes(b"")
        return spark

    with pytest.raises(FleetError, match=r"has not read .*x\.seg; nothing was committed"):
        ingest_waiting(session, FleetStorage.of(fleet), here_files=0)
    assert ingest(spark, fleet) == IngestResult(1, Counts(quarantined=1))
