"""Storage through Hadoop's file systems, on `file:`; delta-rs commits beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sync.common.errors import FleetError
from sync.common.fleet_folder import FleetFolder
from sync.ingest.ingest import IngestControl, IngestResult, ingest_waiting
from sync.tables.delta import Counts, FleetTables
from sync.tables.hadoop import HadoopStorage, storage_at
from sync.tables.locations import FleetStorage
from sync.tables.maintenance import compact
from sync.tables.storage import LocalStorage
from sync.tables.tables import read_events
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
from tests.helpers.local_ingest import crash_at

pytestmark = pytest.mark.spark


def hadoop(spark: SparkSession, fleet: FleetFolder) -> FleetStorage:
    root = f"file:{fleet.root}"
    return FleetStorage(HadoopStorage(spark, root), HadoopStorage(spark, f"{root}/tables"))


@pytest.mark.parametrize("name", ["local", "hadoop"])
def test_every_storage_keeps_the_same_promises(
    spark: SparkSession, fleet: FleetFolder, name: str
) -> None:
    stores = hadoop(spark, fleet) if name == "hadoop" else FleetStorage.of(fleet)
    storage, root = stores.tables, fleet.tables

    assert list(storage.files("none")) == []
    storage.create("a/b [1] 100%20 #ü/x.json", b"one")
    with pytest.raises(FileExistsError):
        storage.create("a/b [1] 100%20 #ü/x.json", b"two")
    assert storage.read("a/b [1] 100%20 #ü/x.json") == b"one"
    put(root / "a/.hidden/y.json", b"")
    put(root / "a/_hidden.json", b"")
    put(root / "a/z.seg", b"12345", NOON / 1000)
    [file] = storage.files("a", ".json")
    assert (file.path, file.size) == ("a/b [1] 100%20 #ü/x.json", 3)
    [file] = storage.files("a", ".seg")
    assert (file.path, file.size, file.modified) == ("a/z.seg", 5, NOON / 1000)
    assert storage.relative(storage.uri(file.path)) == "a/z.seg"

    assert storage.move({"a/z.seg": "archive/a/z.seg"}) == []
    put(root / "a/z.seg", b"12345")
    assert storage.move({"a/z.seg": "archive/a/z.seg"}) == []
    assert (storage.exists("a/z.seg"), storage.read("archive/a/z.seg")) == (False, b"12345")
    put(root / "a/z.seg", b"other")
    put(root / "a/y.seg", b"more")
    moves = {"none": "b", "a/z.seg": "archive/a/z.seg", "a/y.seg": "archive/c/y.seg"}
    assert storage.move(moves) == ["a/z.seg"]
    assert (storage.read("a/z.seg"), storage.read("archive/a/z.seg")) == (b"other", b"12345")
    assert (storage.exists("a/y.seg"), storage.read("archive/c/y.seg")) == (False, b"more")
    put(root / "a/y.seg", b"alike")
    put(root / "a/w.seg", b"alike")
    assert storage.move({"a/y.seg": "archive/w.seg", "a/w.seg": "archive/w.seg"}) == []
    assert storage.move({}) == []
    for call in (storage.read, lambda path: storage.make_durable([path])):
        with pytest.raises(FileNotFoundError):
            call("none")
    storage.make_durable(["a/z.seg"])
    for path in ("a/z.seg", "a", "none"):
        storage.remove(path)
        assert not storage.exists(path)

    assert storage.relative(f"file:{root}/a/z.seg") == "a/z.seg"
    with pytest.raises(ValueError, match="subpath"):
        storage.relative(f"file:{root}s/a/z.seg")


def test_ingest_recovers_from_crashes_and_compacts_through_hadoop(
    spark: SparkSession, tmp_path: Path
) -> None:
    fleet = fleet_folder(tmp_path / "fleet [a]")
    stores, lane = hadoop(spark, fleet), Lane()
    put(fleet.landing / "x.seg", b"spoiled" * 9)
    put(fleet.landing / "y.seg", b"")

    for step in ("events", "committed"):
        land(fleet, lane.seal(some_events(3)))
        with pytest.raises(SimulatedCrash, match=step):
            ingest_waiting(lambda: spark, stores, crash_at(step))
    land(fleet, lane.seal(some_events(3)))
    counts = ingest_waiting(lambda: spark, stores).counts
    assert counts == Counts(segments=1, events=3)
    assert waiting_segments(fleet) == set()
    assert len(list(fleet.archive.rglob("*.seg"))) == 3
    assert len(list(fleet.quarantine.rglob("*.seg"))) == 2
    tables = FleetTables(stores.tables)
    done = compact(tables, ("<=", "2026-01-01"))
    assert (done.replaced, done.written) == (6, 2)
    events = read_events(spark, tables.snapshot())
    assert sorted(row["seq"] for row in events.select("seq").collect()) == list(range(1, 10))


@pytest.mark.parametrize("storage", ["local", "hadoop"])
def test_files_that_vanish_are_skipped(spark: SparkSession, tmp_path: Path, storage: str) -> None:
    """One vanishes before Spark looks for the files, another before it reads them."""
    fleet, lane = fleet_folder(tmp_path / "fleet [a]"), Lane()
    stores = hadoop(spark, fleet) if storage == "hadoop" else FleetStorage.of(fleet)

    def ingest(count: int) -> IngestResult:
        paths = [land(fleet, lane.seal(some_events(2))) for _ in range(count)]

        def session() -> SparkSession:
            paths.pop().unlink()
            return spark

        def on_step(step: str) -> None:
            if step == "began" and paths:
                paths.pop().unlink()

        return ingest_waiting(session, stores, IngestControl(on_step), here_files=0)

    assert ingest(3) == IngestResult(1, Counts(segments=1, events=2))
    assert ingest(2).counts == ingest(1).counts == Counts()
    assert waiting_segments(fleet) == set()


def test_local_uris_open_and_unusable_ones_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(FleetError, match="nowhere"):
        storage_at(spark, "nowhere://bucket/tables")
    with pytest.raises(FleetError, match="needs Spark"):
        storage_at(None, "s3a://bucket/tables")
    for uri in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}"):
        opened = storage_at(spark, uri)
        assert isinstance(opened, LocalStorage)
        assert opened.root == tmp_path.resolve()
