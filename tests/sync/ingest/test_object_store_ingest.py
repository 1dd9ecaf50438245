"""The ingest from and into an object store: nothing is lost or doubled, whatever is interrupted."""

from __future__ import annotations

import contextlib
import json
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from sync.common.errors import FleetError, LeaseError
from sync.common.fleet_folder import segment_path
from sync.ingest.ingest import STEPS, IngestControl, IngestResult, ingest_waiting
from sync.ingest.quarantine import Quarantine
from sync.storage import object_store
from sync.storage.locations import FleetStorage, StorageOptions
from sync.tables.delta import FleetTables
from tests.helpers.committed import SimulatedCrash
from tests.helpers.faulty_landing import FaultyLanding
from tests.helpers.fleet_command import fleet_command
from tests.helpers.fleet_tables import Lane, as_version, fleet_folder, land, put, some_events
from tests.helpers.local_ingest import check, crash_at, no_spark
from tests.helpers.object_store import BUCKET, FaultyProxy, download, environment, upload

URIS = ("--landing", f"s3://{BUCKET}/gw/landing", "--tables", f"s3://{BUCKET}/gw/tables")


@pytest.fixture
def places(s3: str) -> FleetStorage:
    return StorageOptions(None, URIS[1], URIS[3]).open()


class Bucket:
    """A bucket that segments arrive in by faulty links, and an ingest of it."""

    def __init__(self, places: FleetStorage, folder: Path, dice: Random) -> None:
        self._folder = folder
        self._arriving = fleet_folder(folder / "arriving")
        self.landing = FaultyLanding(self._arriving, dice)
        self.places = places

    def fill(self, *, all_of_it: bool = False) -> None:
        self.landing.fill(all_of_it=all_of_it)
        upload(self._arriving, self.places.segments)

    def ingest(self, control: IngestControl | None = None) -> IngestResult:
        return ingest_waiting(no_spark, self.places, control, batch_files=4)

    def check(self) -> None:
        """Compare a copy of the bucket with the truth."""
        check(download(self.places.segments, self._folder / "copy"), self.landing)


@pytest.fixture
def bucket(places: FleetStorage, tmp_path: Path, seed: int) -> Bucket:
    return Bucket(places, tmp_path, Random(seed))


def test_interruptions_at_every_step_lose_and_double_nothing(bucket: Bucket) -> None:
    for step in STEPS:
        bucket.fill()
        with pytest.raises(SimulatedCrash):
            bucket.ingest(crash_at(step))
    bucket.fill(all_of_it=True)
    bucket.ingest()
    bucket.check()


def test_a_second_driver_is_refused_and_adds_nothing(bucket: Bucket) -> None:
    """There is no lease: each judges its first batch before the other one commits."""
    bucket.fill(all_of_it=True)

    def on_step(step: str) -> None:
        if step == "written":
            bucket.ingest()

    with pytest.raises(LeaseError):
        bucket.ingest(IngestControl(on_step))
    assert bucket.ingest().batches == 0
    bucket.check()


def test_a_store_that_fails_at_random_loses_and_doubles_nothing(
    bucket: Bucket, s3: str, seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(object_store, "TIMEOUT", timedelta(seconds=2))
    direct = bucket.places
    with FaultyProxy(s3, Random(seed)).running() as proxy:
        proxy.share = 0.05
        proxy.kinds = ("500", "503", "lost", "503 after")
        for name, value in environment(proxy.url).items():
            monkeypatch.setenv(name, value)
        faulty = StorageOptions(None, URIS[1], URIS[3]).open()
        for _ in range(2):
            bucket.places = direct
            bucket.fill()
            bucket.places = faulty
            with contextlib.suppress(FleetError, OSError):
                bucket.ingest()
        assert proxy.faults
    for name, value in environment(s3).items():
        monkeypatch.setenv(name, value)
    bucket.places = direct
    bucket.fill(all_of_it=True)
    bucket.ingest()
    bucket.check()


def test_the_commands_take_uris(places: FleetStorage, tmp_path: Path) -> None:
    arriving, lane = fleet_folder(tmp_path / "arriving"), Lane()
    for _ in range(3):
        land(arriving, lane.seal(some_events(2)))
        upload(arriving, places.segments)
        assert "ingested 1 segments with 2 events" in fleet_command("ingest", *URIS).stdout
    put(arriving.landing / "x.seg", b"spoiled")
    upload(arriving, places.segments)
    assert "1 quarantined" in fleet_command("ingest", *URIS).stdout
    assert (
        "merged 7 files of 1 days into 2" in fleet_command("compact", *URIS, "--before", "0").stdout
    )
    tables = FleetTables(places.tables, places.segments)
    assert tables.snapshot().rows == 6
    kept = fleet_command("retain", *URIS, "--quarantine", "1", "--archive", "1", "--json")
    assert (kept.returncode, kept.stderr) == (0, "")


def test_the_quarantine_is_in_the_bucket(places: FleetStorage, tmp_path: Path) -> None:
    arriving, lane = fleet_folder(tmp_path / "arriving"), Lane()
    land(arriving, lane.seal(some_events(2)))
    identity, data = lane.seal(some_events(3))
    put(arriving.landing / segment_path(identity), as_version(data, (2, 0), {}, {}))
    put(arriving.landing / "gw" / "x\\.seg", b"spoiled")
    upload(arriving, places.segments)
    assert "2 quarantined" in fleet_command("ingest", *URIS).stdout

    lines = fleet_command("quarantine", "list", *URIS, "--json").stdout.splitlines()
    listed = {row["reason"]: row["path"] for row in map(json.loads, lines)}
    assert listed.keys() == {"version", "short"}
    for name in (listed["short"], f"s3://{BUCKET}/gw/quarantine/{listed['short']}"):
        shown = fleet_command("quarantine", "show", name, *URIS)
        assert (shown.returncode, b"spoiled".hex(" ") in shown.stdout) == (0, True)
    none = fleet_command("quarantine", "show", "none.seg", *URIS)
    assert "'none.seg' is not a file in the quarantine" in none.stderr

    admitted = fleet_command("quarantine", "readmit", "--reason", "version", *URIS)
    assert (admitted.returncode, admitted.stdout.count("re-admitted landing/")) == (0, 1)
    dropped = fleet_command("quarantine", "drop", listed["short"], "--yes", *URIS)
    assert dropped.returncode == 0
    assert not [*places.segments.files("quarantine")]
    assert "1 quarantined" in fleet_command("ingest", *URIS).stdout


def test_nothing_is_readmitted_after_an_interrupted_ingest(
    bucket: Bucket, places: FleetStorage
) -> None:
    places.segments.create("quarantine/x.seg", b"spoiled")
    bucket.fill(all_of_it=True)
    with pytest.raises(SimulatedCrash):
        bucket.ingest(crash_at("committed"))
    refused = fleet_command("quarantine", "readmit", "x.seg", *URIS)
    assert (refused.returncode, "was interrupted" in refused.stderr) == (1, True)


def test_a_failing_store_loses_no_file_of_the_quarantine(proxy: FaultyProxy) -> None:
    places = StorageOptions(None, URIS[1], URIS[3]).open()
    contents = {f"{at}.seg": b"spoiled %d" % at for at in range(20)}
    for name, content in contents.items():
        places.segments.create(f"quarantine/{name}", content)
    quarantine = Quarantine(places)
    proxy.share, proxy.kinds = 0.2, ("500", "503", "lost", "503 after")
    moved, refused = quarantine.readmit(quarantine.find(contents))
    assert proxy.faults
    assert len(moved) + len(refused) == len(contents)
    proxy.share = 0.0
    found = [file for folder in ("landing", "quarantine") for file in places.segments.files(folder)]
    assert {places.segments.read(file.path) for file in found} == {*contents.values()}
    assert {*moved} <= {file.path for file in found}


def test_lost_tables_are_noticed(places: FleetStorage, tmp_path: Path) -> None:
    arriving = fleet_folder(tmp_path / "arriving")
    land(arriving, Lane().seal(some_events(2)))
    upload(arriving, places.segments)
    assert ingest_waiting(no_spark, places).batches == 1
    places.tables.remove_folder("events")
    places.tables.remove_folder("segments")
    with pytest.raises(FleetError, match="are lost: the archive has segments"):
        ingest_waiting(no_spark, places)
