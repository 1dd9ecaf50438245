"""The alert monitor over an object store, which fails, and has no lock."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sync.alerts.incidents import Alert
from sync.alerts.json_lines import JsonLinesOutput
from sync.alerts.monitor import AlertMonitor
from sync.alerts.persistence import FOLDER, AlertJournal, StateStore
from sync.common.errors import FleetError, LeaseError
from sync.storage import object_store
from sync.storage.locations import FleetStorage, StorageOptions, open_storage
from tests.helpers.fleet_command import fleet_command
from tests.helpers.fleet_tables import Lane, fleet_folder, land, some_events
from tests.helpers.object_store import BUCKET, FaultyProxy, upload
from tests.sync.alerts.test_alert_monitor import TWO, Fleet, stuck, two_gateways
from tests.sync.alerts.test_alert_output import message

URIS = ("--landing", f"s3://{BUCKET}/landing", "--tables", f"s3://{BUCKET}/tables")


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(fleet_folder(tmp_path / "fleet"))


@pytest.fixture
def places(s3: str) -> FleetStorage:
    return StorageOptions(None, URIS[1], URIS[3]).open()


def mirror(fleet: Fleet, places: FleetStorage) -> None:
    """Copy the tables of a fleet folder, so that the times of arrival are those of the test."""
    tables = fleet.folder.tables
    for path in tables.rglob("*"):
        relative = path.relative_to(tables)
        if path.is_file() and relative.parts[0] != FOLDER:
            places.tables.replace(relative.as_posix(), path.read_bytes())


def start(fleet: Fleet, places: FleetStorage, out: Path | None = None) -> AlertMonitor:
    store = StateStore(open_storage(places.tables.uri(FOLDER)))
    return AlertMonitor(places, store, JsonLinesOutput(out), clock=lambda: fleet.now)


def check(monitor: AlertMonitor) -> list[Alert]:
    """Check once; repeat that while the store fails."""
    for _ in range(100):
        try:
            return monitor.check()
        except LeaseError:
            raise
        except (OSError, FleetError):
            pass
    raise AssertionError("the store failed 100 times")


def test_alerts_are_those_of_a_fleet_folder_in_spite_of_faults(
    fleet: Fleet, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    places = StorageOptions(None, URIS[1], URIS[3]).open()
    monkeypatch.setattr(object_store, "RETRIES", 1)
    faulty, out = StorageOptions(None, URIS[1], URIS[3]).open(), tmp_path / "out.jsonl"
    proxy.kinds = ("500", "503", "lost", "503 after")
    for step in (two_gateways, stuck, lambda fleet: fleet.arrive(TWO)):
        step(fleet)
        fleet.ingest()
        fleet.check()
        mirror(fleet, places)
        monitor = start(fleet, faulty, out)
        proxy.share = 0.1
        check(monitor)
        proxy.share = 0.0
    assert proxy.faults
    assert out.read_bytes() == fleet.out.read_bytes()
    assert {kind for _, kind, _ in fleet.written()} == {"silent", "queue_stuck"}


async def test_of_two_processes_one_sends_an_alert(
    fleet: Fleet, places: FleetStorage, tmp_path: Path
) -> None:
    first, second = (start(fleet, places, tmp_path / f"{name}.jsonl") for name in "ab")
    two_gateways(fleet)
    mirror(fleet, places)
    assert [alert.gateway for alert in first.check()] == [TWO]
    fleet.now += 1
    with pytest.raises(LeaseError, match=rf"already runs with the state in s3://{BUCKET}/tables"):
        second.check()
    with pytest.raises(LeaseError):
        await second.run(asyncio.Event(), 0.001)
    assert not (tmp_path / "b.jsonl").exists()
    assert start(fleet, places).check() == []


def test_a_journal_whose_answer_is_lost_is_known_again(
    proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, number in (("RETRIES", 0), ("ATTEMPTS", 1)):
        monkeypatch.setattr(object_store, name, number)
    store = StateStore(open_storage(f"s3://{BUCKET}/alerts"))
    assert store.load_journal() == AlertJournal()
    proxy.share, proxy.kinds, proxy.only, proxy.count = 1.0, ("503 after",), "PUT", 1
    with pytest.raises(OSError, match="503"):
        store.save_journal(AlertJournal(dropped=1))
    store.save_journal(AlertJournal(output_queue=[message(1)]))
    assert store.load_journal().output_queue == [message(1)]


def test_the_command_takes_uris(places: FleetStorage, tmp_path: Path) -> None:
    arriving = fleet_folder(tmp_path / "arriving")
    land(arriving, Lane().seal(some_events(2)))
    upload(arriving, places.segments)
    assert fleet_command("ingest", *URIS).returncode == 0
    for words in (URIS, (*URIS, "--dir", arriving.root)):
        done = fleet_command("alerts", *words, "--once")
        assert (done.returncode, done.stdout) == (0, "")
    assert places.tables.exists("alerts/seen.json")
    assert not [*arriving.tables.iterdir()]
