"""Storage through Hadoop's file systems: on `file:`, with a hard link for what HDFS and S3 do."""

from __future__ import annotations

import secrets
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sync.common.errors import FleetError, LeaseError
from sync.ingest.ingest import run_ingest
from sync.tables import hadoop
from sync.tables.compaction import Compaction
from sync.tables.hadoop import HadoopStorage, storage_at
from sync.tables.locations import FleetStorage
from sync.tables.maintenance import compact
from sync.tables.manifest import Commits, Counts, Manifest
from sync.tables.storage import LocalStorage, Storage
from sync.tables.tables import read_events
from tests.helpers.fleet_tables import Lane, fleet_folder, land, put, some_events, waiting
from tests.helpers.storage_promises import keeps_promises

pytestmark = pytest.mark.spark


class Linked:
    """Creates by a hard link, the one exclusive act that a local file system has."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm

    def __call__(self, fs: Any, path: Any, data: bytes) -> None:
        part = path.getParent().suffix(f"/.{secrets.token_hex(8)}.part")
        stream = fs.createFile(part).recursive().build()
        stream.write(bytearray(data))
        stream.close()
        new, old = (
            self._jvm.java.io.File(each.toUri().getPath()).toPath() for each in (path, part)
        )
        try:
            self._jvm.java.nio.file.Files.createLink(new, old)
        finally:
            fs.delete(part, False)


@pytest.fixture
def storage(spark: SparkSession, tmp_path: Path) -> HadoopStorage:
    (tmp_path / "tables").mkdir()
    return HadoopStorage(spark, f"file:{tmp_path}/tables", Linked(spark))


@pytest.fixture(params=["local", "hadoop"])
def either(request: pytest.FixtureRequest, storage: HadoopStorage, tmp_path: Path) -> Storage:
    return storage if request.param == "hadoop" else LocalStorage(tmp_path / "tables")


def test_every_storage_keeps_the_same_promises(either: Storage, tmp_path: Path) -> None:
    root = tmp_path / "tables"
    keeps_promises(either, lambda path, data, at: put(root / path, data, at))
    assert either.relative(f"file:{root}/a/z.seg") == "a/z.seg"
    with pytest.raises(ValueError, match="subpath"):
        either.relative(f"file:{root}s/a/z.seg")


def test_of_several_who_commit_a_batch_one_wins(storage: HadoopStorage) -> None:
    outcomes: list[str] = []
    begin = threading.Barrier(6)

    def commit(token: str) -> None:
        begin.wait(30)
        try:
            commits.commit(Manifest("q", 0, token, "2025-11-21T12:00:00+00:00", ()))
            outcomes.append(token)
        except FleetError:
            outcomes.append("refused")

    commits = Commits(storage)
    storage.keep_lease = lambda: None  # type: ignore[method-assign]
    threads = [threading.Thread(target=commit, args=(f"t{at}",)) for at in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert outcomes.count("refused") == 5
    [winner] = set(outcomes) - {"refused"}
    assert [each.attempt for each in commits.manifests()] == [winner]
    # a request that was sent twice meets what it made itself
    commits.commit(Manifest("q", 0, winner, "2025-11-21T12:00:00+00:00", ()))


def test_the_lease_is_one_drivers_until_it_ends_or_runs_out(
    spark: SparkSession, storage: HadoopStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = HadoopStorage(spark, storage.uri(), Linked(spark))
    with storage.lease():
        storage.keep_lease()
        storage.keep_lease()
        with pytest.raises(LeaseError, match="another ingest is at work"), other.lease():
            pytest.fail("two held the lease")
        assert len(list(storage.files(hadoop.LEASES))) == 1
    with other.lease():
        pass
    with pytest.raises(LeaseError, match="nobody holds"):
        other.keep_lease()

    with storage.lease():
        later = time.time() + hadoop.LEASE_S + 1
        monkeypatch.setattr("sync.tables.hadoop.time.time", lambda: later)
        with other.lease():
            with pytest.raises(LeaseError, match="has taken the lease"):
                storage.keep_lease()
            commits = Commits(storage)
            with pytest.raises(LeaseError):
                commits.commit(Manifest("q", 0, "a", "2025-11-21T12:00:00+00:00", ()))
            assert list(commits.manifests()) == []
            other.keep_lease()


def test_an_ingest_a_crash_and_a_compaction_through_hadoop(
    spark: SparkSession, tmp_path: Path
) -> None:
    fleet = fleet_folder(tmp_path / "fleet [a] 100%20 #ü")
    root = f"file:{fleet.root}"
    places = FleetStorage(
        HadoopStorage(spark, root), HadoopStorage(spark, f"{root}/tables", Linked(spark))
    )
    commits = Commits(places.tables)
    lane = Lane()
    land(fleet, lane.seal(some_events(3)))
    put(fleet.landing / "x.seg", b"spoiled" * 9)
    put(fleet.landing / "y.seg", b"")

    def cut(step: str) -> None:
        if step == "committed":
            raise OSError(step)

    with pytest.raises(FleetError, match="committed"):
        run_ingest(spark, places, commits, cut)
    land(fleet, lane.seal(some_events(3)))
    # the empty file is told of again: no stream sees it, so no checkpoint knows it
    counts = run_ingest(spark, places, commits).counts
    assert counts == Counts(segments=1, events=3, quarantined=1)
    assert waiting(fleet) == set()
    assert len(list(fleet.archive.rglob("*.seg"))) == 2
    assert len(list(fleet.quarantine.rglob("*.seg"))) == 2
    shutil.rmtree(fleet.tables / "checkpoints")
    done, _ = compact(Compaction(spark, places.tables, commits), places, commits, lambda day: True)
    assert (done.replaced, done.written) == (4, 2)
    events = read_events(spark, places.tables, commits.manifests())
    assert sorted(row["seq"] for row in events.select("seq").collect()) == [1, 2, 3, 4, 5, 6]


def test_what_cannot_create_safely_or_is_not_there_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    plain = HadoopStorage(spark, f"file:{tmp_path}")
    with pytest.raises(FleetError, match="conditional writes"), plain.lease():
        pytest.fail("a lease that two can have")
    with pytest.raises(FleetError, match="nowhere"):
        storage_at(spark, "nowhere://bucket/tables")
    for uri in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}"):
        opened = storage_at(spark, uri)
        assert isinstance(opened, LocalStorage)
        assert opened.root == tmp_path.resolve()
