"""Storage through Hadoop's file systems, on `file:`; delta-rs commits beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sync.common.errors import FleetError
from sync.ingest.ingest import IngestControl, IngestResult, ingest_waiting
from sync.tables.delta import Counts, FleetTables
from sync.tables.hadoop import HadoopStorage, storage_at
from sync.tables.locations import FleetStorage
from sync.tables.maintenance import compact
from sync.tables.storage import LocalStorage, Storage
from sync.tables.tables import read_events
from tests.helpers.fleet_tables import Lane, fleet_folder, land, put, some_events, waiting
from tests.helpers.storage_promises import keeps_promises

pytestmark = pytest.mark.spark


@pytest.fixture(params=["local", "hadoop"])
def either(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Storage:
    (tmp_path / "tables").mkdir()
    if request.param == "hadoop":
        return HadoopStorage(spark, f"file:{tmp_path}/tables")
    return LocalStorage(tmp_path / "tables")


def test_every_storage_keeps_the_same_promises(either: Storage, tmp_path: Path) -> None:
    root = tmp_path / "tables"
    keeps_promises(either, lambda path, data, at: put(root / path, data, at))
    assert either.relative(f"file:{root}/a/z.seg") == "a/z.seg"
    with pytest.raises(ValueError, match="subpath"):
        either.relative(f"file:{root}s/a/z.seg")


def test_an_ingest_two_crashes_and_a_compaction_through_hadoop(
    spark: SparkSession, tmp_path: Path
) -> None:
    fleet = fleet_folder(tmp_path / "fleet [a]")
    root = f"file:{fleet.root}"
    places = FleetStorage(HadoopStorage(spark, root), HadoopStorage(spark, f"{root}/tables"))
    lane = Lane()
    put(fleet.landing / "x.seg", b"spoiled" * 9)
    put(fleet.landing / "y.seg", b"")

    for step in ("events", "committed"):
        land(fleet, lane.seal(some_events(3)))
        with pytest.raises(FleetError, match=step):
            ingest_waiting(lambda: spark, places, IngestControl(cut_at(step)))
    land(fleet, lane.seal(some_events(3)))
    counts = ingest_waiting(lambda: spark, places).counts
    assert counts == Counts(segments=1, events=3)
    assert waiting(fleet) == set()
    assert len(list(fleet.archive.rglob("*.seg"))) == 3
    assert len(list(fleet.quarantine.rglob("*.seg"))) == 2
    tables = FleetTables(places.tables)
    done = compact(tables, ("<=", "2026-01-01"))
    assert (done.replaced, done.written) == (6, 2)
    events = read_events(spark, tables.snapshot())
    assert sorted(row["seq"] for row in events.select("seq").collect()) == list(range(1, 10))


@pytest.mark.parametrize("storage", ["local", "hadoop"])
def test_files_that_vanish_are_skipped(spark: SparkSession, tmp_path: Path, storage: str) -> None:
    """One vanishes before Spark looks for the files, another before it reads them."""
    fleet, lane = fleet_folder(tmp_path / "fleet [a]"), Lane()
    places = FleetStorage.of(fleet)
    if storage == "hadoop":
        root = f"file:{fleet.root}"
        places = FleetStorage(HadoopStorage(spark, root), HadoopStorage(spark, f"{root}/tables"))

    def ingest(count: int) -> IngestResult:
        paths = [land(fleet, lane.seal(some_events(2))) for _ in range(count)]

        def session() -> SparkSession:
            paths.pop().unlink()
            return spark

        def on_step(step: str) -> None:
            if step == "began" and paths:
                paths.pop().unlink()

        return ingest_waiting(session, places, IngestControl(on_step), here_files=0)

    assert ingest(3) == IngestResult(1, Counts(segments=1, events=2))
    assert ingest(2).counts == ingest(1).counts == Counts()
    assert waiting(fleet) == set()


def cut_at(step: str) -> Callable[[str], None]:
    def cut(taken: str) -> None:
        if taken == step:
            raise OSError(taken)

    return cut


def test_what_is_not_there_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(FleetError, match="nowhere"):
        storage_at(spark, "nowhere://bucket/tables")
    with pytest.raises(FleetError, match="needs Spark"):
        storage_at(None, "s3a://bucket/tables")
    for uri in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}"):
        opened = storage_at(spark, uri)
        assert isinstance(opened, LocalStorage)
        assert opened.root == tmp_path.resolve()
