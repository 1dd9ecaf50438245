from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from sync.common.fleet_folder import FleetFolder, archive_path, segment_path
from sync.ingest.ingest import STEPS, IngestControl, IngestResult
from sync.segment import Dropped
from sync.tables.delta import Counts, local_tables
from sync.tables.tables import read_events, read_segments
from tests.helpers.committed import SimulatedCrash
from tests.helpers.fleet_tables import (
    NOON,
    Lane,
    fleet_folder,
    land,
    put,
    some_events,
    waiting_segments,
)
from tests.helpers.local_ingest import crash_at, ingest_by_spark
from tests.helpers.small_tables import START

pytestmark = pytest.mark.spark


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

    assert ingest_by_spark(spark, fleet).counts == Counts(segments=1, events=2)
    assert not path.exists()
    assert (fleet.archive / archive_path(segment_path(identity))).read_bytes() == data
    assert ingest_by_spark(spark, fleet).counts == Counts()

    times = {"arrived": START + timedelta(seconds=2.5), "day": START.date()}
    place = {"gateway": "gw.example", "epoch": lane.epoch, "lane": "logs", **times}
    rows = events(spark, fleet).orderBy("seq").toArrow().to_pylist()
    assert rows == [
        event._asdict()
        | place
        | {"seq": 4 + at, "time": START + timedelta(seconds=at), "tags": [*event.tags.items()]}
        for at, event in enumerate(some_events(2))
    ]

    [segment] = segments(spark, fleet).toArrow().to_pylist()
    assert segment == segment | {
        "path": path.relative_to(fleet.root).as_posix(),
        "fate": "accepted",
        "size": len(data),
        "digest": data[-32:].hex(),
        "previous": "00" * 32,
        "dropped": [{"first_seq": 1, "last_seq": 3, "reason": "backlog-full"}],
        "software": "0.1.0",
        "disk_used": 1_000_000,
    }


def test_many_small_segments_make_one_file_for_each_core(
    spark: SparkSession, fleet: FleetFolder
) -> None:
    lane = Lane()
    for at in range(80):
        land(fleet, lane.seal(some_events(1)), at=NOON / 1000 + at)
    assert ingest_by_spark(spark, fleet).counts.events == 80
    assert len(local_tables(fleet.tables).snapshot().event_files) == 2


def test_an_ingest_that_crashes_after_any_step_is_completed_by_the_next(
    spark: SparkSession, fleet: FleetFolder
) -> None:
    """Each ingest completes what the one before has begun, and crashes one step later."""
    lane = Lane()
    put(fleet.landing / "copy" / "x.seg", Lane().seal(some_events(4))[1])
    for step in STEPS:
        land(fleet, lane.seal(some_events(4)))
        with pytest.raises(SimulatedCrash, match=step):
            ingest_by_spark(spark, fleet, crash_at(step))

    ingest_by_spark(spark, fleet)

    count = len(STEPS)
    assert numbers(spark, fleet) == list(range(1, 4 * count + 1))
    outcomes = [row["fate"] for row in segments(spark, fleet).select("fate").collect()]
    assert sorted(outcomes) == ["accepted"] * count + ["duplicate"]
    assert waiting_segments(fleet) == set()
    assert len(list(fleet.archive.rglob("*.seg"))) == count + 1
    assert local_tables(fleet.tables).unarchived() == 0


def test_odd_names_and_empty_files_are_read(spark: SparkSession, fleet: FleetFolder) -> None:
    names = ("%41 b", "[a]{b,c}*?", "ü\u2028", "back\\slash", "co:lon", "x=1/y=2", "x=3/y", "'\"")
    lane = Lane()
    for at, name in enumerate(names):
        path = fleet.landing / name / f"{at}{name[:1]}.seg"
        put(path, lane.seal(some_events(2))[1], at=NOON / 1000 + at)
        put(fleet.landing / name / "empty.seg", b"")
    count = len(names)
    assert ingest_by_spark(spark, fleet).counts == Counts(count, 2 * count, quarantined=count)
    assert waiting_segments(fleet) == set()
    put(fleet.landing / "empty.seg", b"")
    assert ingest_by_spark(spark, fleet) == IngestResult(1, Counts(quarantined=1))


def test_files_that_vanish_are_skipped(spark: SparkSession, fleet: FleetFolder) -> None:
    lane = Lane()
    paths = [land(fleet, lane.seal(some_events(2))) for _ in range(3)]

    def on_step(step: str) -> None:
        if step == "began":
            paths.pop().unlink()

    result = ingest_by_spark(spark, fleet, IngestControl(on_step))
    assert result == IngestResult(1, Counts(segments=2, events=4))
    paths.append(land(fleet, lane.seal(some_events(2))))
    assert ingest_by_spark(spark, fleet, IngestControl(on_step)) == IngestResult(1, Counts())
    assert waiting_segments(fleet) == set()
