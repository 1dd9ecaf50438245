"""Ingest a fleet folder in this process or by Spark, and check what is in its tables."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from sync.common.fleet_folder import FleetFolder
from sync.ingest.ingest import HERE_FILES, IngestControl, IngestResult, ingest_waiting
from sync.storage.locations import FleetStorage
from sync.tables.delta import local_tables
from sync.tables.spark_session import BATCH_FILES
from tests.helpers.committed import SimulatedCrash
from tests.helpers.faulty_landing import FaultyLanding, Row
from tests.helpers.fleet_tables import waiting_segments
from tests.helpers.stored_rows import stored_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkStartAttempt(Exception):
    """Raised instead of starting Spark."""


def no_spark() -> SparkSession:
    raise SparkStartAttempt


def crash_at(step: str, number: int = 1) -> IngestControl:
    """Let an ingest crash when it reaches a step for the `number`th time."""
    remaining = [number]

    def on_step(name: str) -> None:
        remaining[0] -= name == step
        if name == step and remaining[0] == 0:
            raise SimulatedCrash(step)

    return IngestControl(on_step)


def ingest(
    fleet: FleetFolder,
    control: IngestControl | None = None,
    batch_files: int = 100,
    here_files: int = HERE_FILES,
) -> IngestResult:
    """Ingest all waiting files in this process."""
    places = FleetStorage.of(fleet)
    return ingest_waiting(no_spark, places, control, batch_files=batch_files, here_files=here_files)


def ingest_by_spark(
    spark: SparkSession,
    fleet: FleetFolder,
    control: IngestControl | None = None,
    batch_files: int = BATCH_FILES,
) -> IngestResult:
    """Ingest all waiting files by Spark, however few they are."""
    places = FleetStorage.of(fleet)
    return ingest_waiting(lambda: spark, places, control, batch_files=batch_files, here_files=0)


def check(fleet: FleetFolder, landing: FaultyLanding) -> None:
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
    sums: dict[str, Counter[str]] = {fate: Counter() for fate in ("accepted", "duplicate", "bad")}
    for row in segments:
        sums[row["fate"]][row["digest"] or row["sha256"]] += 1
    assert sums["accepted"] == landing.digests()
    assert set(sums["bad"]) == landing.truncated_sums
    assert set(sums["duplicate"]) <= set(sums["accepted"])
    assert waiting_segments(fleet) == set()
    assert local_tables(fleet.tables).unarchived() == 0
    kept = {path.read_bytes()[-32:].hex() for path in fleet.archive.rglob("*.seg")}
    assert kept == set(landing.digests())
