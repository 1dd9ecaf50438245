"""The alert monitor over a fleet folder: landing and tables in, alerts out."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from sync.alerts import monitor, sources
from sync.alerts.incidents import Incident
from sync.alerts.json_lines import JsonLinesOutput
from sync.alerts.monitor import AlertMonitor
from sync.alerts.persistence import (
    MAX_OUTPUT_QUEUE,
    MAX_WEBHOOK_QUEUE,
    AlertJournal,
    StateStore,
)
from sync.alerts.rules import NEW_GATEWAY_TIMEOUT_S
from sync.alerts.sources import HISTORY_DAYS, read_batches
from sync.alerts.state import FleetState, GatewayState
from sync.alerts.webhook import Webhook
from sync.cli.commands.alerts import check_once
from sync.cli.main import cli
from sync.common.errors import FleetError
from sync.common.fleet_folder import FleetFolder
from sync.receiver.gateways import GatewayRegistry
from sync.segment import Event
from sync.storage.local import LocalStorage
from sync.storage.locations import FleetStorage
from sync.tables.delta import EVENTS, SEGMENTS, local_tables
from sync.tables.maintenance import compact
from tests.helpers.fleet_tables import EPOCH, Lane, fleet_folder, land, put
from tests.helpers.local_ingest import ingest
from tests.sync.alerts.test_alert_output import message

NOON_S = 1_763_726_400
"""2025-11-21 12:00:00 UTC, in seconds."""

YEAR_S = 365 * 86_400

ONE, TWO = "gw-001.example", "gw-002.example"


def event(at: float, **what: Any) -> Event:
    fields = {"kind": "system", "name": "heartbeat", "value": 60.0, "tags": {}, **what}
    return Event(seq=1, time=round(at * 1000), clock=True, **fields)


def state_store(folder: FleetFolder) -> StateStore:
    return StateStore(LocalStorage(folder.tables / "alerts"))


@dataclass
class Fleet:
    """A fleet folder with an ingest, and an alert monitor with a manual clock."""

    folder: FleetFolder
    now: float = NOON_S
    lanes: dict[str, Lane] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.out = self.folder.root / "alerts.jsonl"
        self.watch = self.start()

    def start(self) -> AlertMonitor:
        """Start a monitor that continues from the saved state."""
        return AlertMonitor(
            FleetStorage.of(self.folder),
            state_store(self.folder),
            JsonLinesOutput(self.out),
            gateways=GatewayRegistry(self.folder),
            clock=lambda: self.now,
        )

    def arrive(self, gateway: str, *events: Event, at: float | None = None) -> None:
        lane = self.lanes.setdefault(gateway, Lane(gateway, "system"))
        land(self.folder, lane.seal(events or [event(self.now)]), self.now if at is None else at)

    def ingest(self) -> None:
        ingest(self.folder)

    def new_files(self, table: str) -> list[Path]:
        """Ingest what waits; return the files of a table that are new."""
        before = {*(self.folder.tables / table).rglob("*.parquet")}
        self.ingest()
        return sorted({*(self.folder.tables / table).rglob("*.parquet")} - before)

    def state(self) -> FleetState:
        state = self.watch.store.load_state()
        assert state is not None
        return state

    def check(self) -> list[tuple[str, str, str]]:
        """Check once; return state, kind and gateway of each alert."""
        return [(alert.state, alert.kind, alert.gateway) for alert in self.watch.check()]

    def written(self) -> list[tuple[str, str, str]]:
        """Return state, kind and gateway of all alerts in the file."""
        lines = self.out.read_text("utf-8").splitlines() if self.out.exists() else []
        return [(row["state"], row["kind"], row["gateway"]) for row in map(json.loads, lines)]


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(fleet_folder(tmp_path / "fleet"))


def two_gateways(fleet: Fleet) -> None:
    """Let both gateways arrive, and one become silent."""
    for _ in range(3):
        fleet.arrive(ONE)
        fleet.arrive(TWO)
        fleet.now += 300
    fleet.ingest()
    assert fleet.check() == []
    for _ in range(15):
        fleet.arrive(ONE)
        fleet.now += 300
    fleet.ingest()


def test_silent_gateway_is_raised_once_and_recovers_before_the_ingest_runs(fleet: Fleet) -> None:
    two_gateways(fleet)
    assert fleet.check() == [("raised", "silent", TWO)]
    fleet.watch = fleet.start()
    assert fleet.check() == []
    assert fleet.check() == []
    fleet.arrive(TWO)
    assert fleet.check() == [("recovered", "silent", TWO)]
    fleet.ingest()
    assert fleet.check() == []
    assert fleet.written() == [("raised", "silent", TWO), ("recovered", "silent", TWO)]


def test_clean_stop_in_the_landing_counts(fleet: Fleet) -> None:
    two_gateways(fleet)
    stopped = fleet.now - NEW_GATEWAY_TIMEOUT_S - 60
    fleet.arrive(TWO, event(stopped - 60), at=stopped - 60)
    fleet.arrive(TWO, event(stopped), event(stopped, name="stop", value=None), at=stopped)
    put(fleet.folder.landing / TWO / "odd.seg", b"odd", stopped)
    put(fleet.folder.landing / "odd.seg", b"odd", stopped)
    fleet.arrive(ONE)
    assert fleet.check() == [("raised", "ingest_behind", "")]
    fleet.ingest()
    assert fleet.check() == [("recovered", "ingest_behind", "")]


@pytest.mark.parametrize("name", [f"{EPOCH}/system/9-9.seg", f"{EPOCH}/logs/9-9.seg"])
def test_unreadable_file_in_the_landing_is_no_clean_stop(fleet: Fleet, name: str) -> None:
    two_gateways(fleet)
    fleet.arrive(ONE)
    put(fleet.folder.landing / TWO / name, b"no segment", fleet.now - NEW_GATEWAY_TIMEOUT_S - 60)
    assert ("raised", "silent", TWO) in fleet.check()


def test_revoked_gateway_may_be_silent(fleet: Fleet) -> None:
    gateways = GatewayRegistry(fleet.folder)
    for name in (ONE, TWO):
        gateways.enrol(name, "https://centre.example:8443", "token", 0, renew=False)
    two_gateways(fleet)
    assert fleet.check() == [("raised", "silent", TWO)]
    gateways.revoke(TWO, 1)
    assert fleet.check() == [("recovered", "silent", TWO)]
    (fleet.folder.gateways / f"{TWO}.json").write_text("{", "utf-8")
    assert fleet.check() == []  # a repeated incident is suppressed for an hour
    assert [each.suppressed for each in fleet.watch.store.load_journal().incidents] == [True]


def stuck(fleet: Fleet, items: int = 7) -> None:
    for _ in range(8):
        tags = {"delivered": "0", "delayed": "0"}
        row = event(fleet.now, kind="queue", name="depth", topic="jobs", value=items, tags=tags)
        fleet.arrive(ONE, row)
        fleet.now += 300


def test_maintenance_causes_no_alerts_and_replaced_files_are_read_again(fleet: Fleet) -> None:
    stuck(fleet)
    fleet.ingest()
    fleet.arrive(ONE)
    fleet.ingest()
    fleet.watch = fleet.start()
    assert fleet.check() == [("raised", "queue_stuck", ONE)]
    before = fleet.state()
    tables = local_tables(fleet.folder.tables)
    old = tables.snapshot().event_files
    assert compact(tables, ("<=", "2026-01-01")).replaced == 4
    assert fleet.check() == []
    after = fleet.state()
    assert (after.gateways, before.versions != after.versions) == (before.gateways, True)
    for path in old:
        (fleet.folder.tables / path).unlink()
    for rest in (fleet.folder.tables / "alerts").glob("seen.json"):
        rest.unlink()
    fleet.watch = fleet.start()
    assert fleet.check() == []
    assert fleet.state() == after


def test_batches_committed_while_stopped_are_read_once(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_gateways(fleet)
    assert fleet.check() == [("raised", "silent", TWO)]
    fleet.arrive(TWO)
    fleet.ingest()
    compact(local_tables(fleet.folder.tables), ("<=", "2026-01-01"))

    monkeypatch.setattr(sources, "_read_history", lambda *_: pytest.fail("history was re-read"))
    fleet.watch = fleet.start()
    assert fleet.check() == [("recovered", "silent", TWO)]
    assert fleet.check() == []
    monkeypatch.undo()
    read_state, _ = read_batches(local_tables(fleet.folder.tables), None, round(fleet.now * 1000))
    assert read_state.versions == fleet.state().versions


@pytest.mark.parametrize("missing", ["file", "commit"])
def test_missing_file_of_a_batch_reads_the_history_again(fleet: Fleet, missing: str) -> None:
    fleet.arrive(ONE)
    fleet.ingest()
    assert fleet.check() == []
    stuck(fleet)
    added = fleet.new_files(EVENTS)
    tables = local_tables(fleet.folder.tables)
    tables.existing(EVENTS).delete()  # as retention does after a long time
    if missing == "file":
        added[0].unlink()
    else:
        tables.existing(EVENTS).create_checkpoint()
        for version in range(3):
            (fleet.folder.tables / EVENTS / "_delta_log" / f"{version:020}.json").unlink()
    assert fleet.check() == []
    assert fleet.state().versions["events"] == tables.existing(EVENTS).version()
    assert fleet.state().gateways[ONE].queues == {}


def test_unreadable_batch_is_not_applied_partially(fleet: Fleet) -> None:
    fleet.arrive(ONE)
    fleet.ingest()
    fleet.check()
    for _ in range(2):
        fleet.arrive(ONE, event(fleet.now, kind="limit", name="rate", value=9.0))
        fleet.now += 86_400
    last = fleet.new_files(EVENTS)[-1]
    data = last.read_bytes()
    last.write_bytes(b"spoiled")
    for _ in range(2):
        with pytest.raises(OSError, match="not a valid file of the tables"):
            fleet.check()
    last.write_bytes(data)
    fleet.check()
    assert sorted(fleet.state().gateways[ONE].refusals["rate"].hours.values()) == [9, 9]


def test_backlog_raises_no_alert_for_a_past_problem(fleet: Fleet) -> None:
    fleet.arrive(ONE)
    fleet.ingest()
    fleet.check()
    began = int(fleet.now)
    fleet.now += 86_400
    for at in range(began, began + 6_000, 300):
        fleet.arrive(ONE, event(at, kind="queue", name="depth", topic="jobs", value=3.0))
    fleet.ingest()
    assert fleet.check() == []
    fleet.arrive(ONE, event(began + 6_000, kind="queue", name="depth", topic="jobs", value=0.0))
    fleet.ingest()
    fleet.now += 60
    assert fleet.check() == []


def test_only_the_last_days_are_read(fleet: Fleet) -> None:
    for days in (HISTORY_DAYS + 1, 1):
        row = event(fleet.now - 86_400 * days, kind="limit", name="rate", value=float(days))
        fleet.arrive(ONE, row)
    fleet.ingest()
    fleet.check()
    assert list(fleet.state().gateways[ONE].refusals["rate"].hours.values()) == [1]


def test_second_monitor_is_refused(fleet: Fleet) -> None:
    with (
        fleet.watch.store.locked(),
        pytest.raises(FleetError, match="already runs"),
        state_store(fleet.folder).locked(),
    ):
        raise AssertionError


@pytest.mark.parametrize("data", [b"{", b'{"version": 99, "seen": {}}'], ids=["spoiled", "newer"])
def test_state_of_another_version_is_read_again(fleet: Fleet, data: bytes) -> None:
    fleet.arrive(ONE)
    fleet.ingest()
    fleet.check()
    before = fleet.state()
    (fleet.folder.tables / "alerts" / "seen.json").write_bytes(data)
    fleet.watch = fleet.start()
    fleet.check()
    assert fleet.state() == before


@pytest.mark.parametrize("data", [b"{", b'{"version": 99}'], ids=["spoiled", "newer"])
def test_unreadable_journal_is_an_error(fleet: Fleet, data: bytes) -> None:
    put(fleet.folder.tables / "alerts" / "told.json", data)
    with pytest.raises(FleetError, match=r"told\.json cannot be read"):
        fleet.start()


def test_queues_drop_the_oldest_alerts() -> None:
    journal, each = AlertJournal(), message(0)
    first = [message(number) for number in range(MAX_WEBHOOK_QUEUE)]
    assert journal.enqueue(first, webhook=True) == 0
    assert journal.enqueue([each] * 5, webhook=True) == 5
    assert journal.webhook_queue[0].subject == "jobs-5\n"
    assert journal.enqueue([each] * MAX_OUTPUT_QUEUE, webhook=False) == MAX_WEBHOOK_QUEUE + 5
    assert (len(journal.output_queue), len(journal.webhook_queue), journal.dropped) == (
        MAX_OUTPUT_QUEUE,
        MAX_WEBHOOK_QUEUE,
        MAX_WEBHOOK_QUEUE + 10,
    )


def test_failed_output_is_repeated(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    two_gateways(fleet)
    monkeypatch.setattr(fleet.watch.output, "write", refuse)
    with pytest.raises(OSError, match="disk full"):
        fleet.watch.check()
    fleet.watch = fleet.start()
    assert fleet.check() == []
    assert fleet.written() == [("raised", "silent", TWO)]


def refuse(*_: object) -> None:
    raise OSError("disk full")


async def test_monitor_runs_until_stopped_or_repeated_failure(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping = asyncio.Event()
    rounds: list[int] = []
    loop = asyncio.get_running_loop()

    def check(_: object) -> None:
        rounds.append(len(rounds))
        if len(rounds) in (1, 2):
            raise OSError("not now")
        if len(rounds) == 5:
            loop.call_soon_threadsafe(stopping.set)

    monkeypatch.setattr(AlertMonitor, "check", check)
    await fleet.watch.run(stopping, 0.001)
    assert len(rounds) == 5
    monkeypatch.setattr(AlertMonitor, "check", refuse)
    monkeypatch.setattr(monitor, "MAX_FAILURES", 3)
    with pytest.raises(OSError, match="disk full"):
        await fleet.watch.run(asyncio.Event(), 0.001)


async def test_once_fails_while_alerts_wait_for_the_webhook(fleet: Fleet) -> None:
    two_gateways(fleet)
    fleet.watch.webhook = Webhook("http://127.0.0.1:1/", clock=lambda: 1.0)
    with pytest.raises(FleetError, match="1 alerts wait for the webhook"):
        await check_once(fleet.watch)
    fleet.watch = fleet.start()
    assert fleet.watch.undelivered == 1
    assert fleet.written() == [("raised", "silent", TWO)]


def test_the_file_is_checked_before_the_fleet(fleet: Fleet) -> None:
    fleet.arrive(ONE)
    fleet.ingest()
    out = fleet.folder.root / "missing" / "alerts.jsonl"
    words = ["alerts", "--dir", str(fleet.folder.root), "--once", "--out", str(out)]
    result = CliRunner().invoke(cli, words)
    assert (result.exit_code, str(out) in result.output) == (1, True)
    assert fleet.start()._state is None, "no check was made"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--webhook-token", "TOKEN"], "requires --webhook"),
        (["--webhook", "http://hooks.example/secret"], "the webhook's URL must be https://"),
        (
            ["--webhook", "https://hooks.example/x", "--webhook-token", "TOKEN"],
            "must be one line of",
        ),
    ],
)
def test_wrong_options_are_reported_without_secrets(
    fleet: Fleet, options: list[str], text: str
) -> None:
    token = put(fleet.folder.root / "token", b"sec\nret")
    args = [str(token) if word == "TOKEN" else word for word in options]
    result = CliRunner().invoke(cli, ["alerts", "--dir", str(fleet.folder.root), "--once", *args])
    assert result.exit_code in (1, 2)
    assert text in result.output
    assert "sec" not in result.output.replace("SECONDS", "")


def test_exceeded_limits_are_logged_once(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sync.alerts.state.MAX_QUEUES", 1)
    for _ in range(2):
        rows = [event(fleet.now, kind="queue", name="depth", topic=f"q{at}") for at in range(3)]
        fleet.arrive(ONE, *rows)
        fleet.ingest()
        fleet.check()
    assert [record.getMessage() for record in caplog.records] == ["limit"]


def test_only_files_of_new_batches_are_read(fleet: Fleet) -> None:
    known: dict[Path, bytes] = {}
    for _ in range(3):
        fleet.arrive(ONE)
        [added] = fleet.new_files(SEGMENTS)
        for path in known:
            path.write_bytes(b"spoiled")
        fleet.check()
        known[added] = added.read_bytes()
        for path, data in known.items():
            path.write_bytes(data)
    for path in known:
        path.write_bytes(b"spoiled")
    assert fleet.check() == []
    state_file = fleet.folder.tables / "alerts" / "seen.json"
    number = state_file.stat().st_ino
    fleet.check()
    assert state_file.stat().st_ino == number
    state_file.unlink()
    fleet.watch = fleet.start()
    with pytest.raises(OSError, match="not a valid file of the tables"):
        fleet.check()


def test_field_names_in_the_state_files() -> None:
    state = msgspec.json.decode(msgspec.json.encode(FleetState({"gw": GatewayState()})))
    added = {"max_gateways", "unmonitored_since", "unmonitored_until"}
    assert set(state) == {"gateways", "heard", "versions", "beyond", *added}
    assert set(state["gateways"]["gw"]) == {
        *("arrived", "sign", "told", "read", "reset", "late", "system", "readings", "days"),
        *("queues", "rules", "sensors", "beyond"),
    }
    incident = Incident("silent", "gw", "gw")
    journal = msgspec.json.decode(msgspec.json.encode(AlertJournal(incidents=[incident])))
    assert set(journal) == {"version", "stretches", "lines", "posts", "dropped"}
    assert set(journal["stretches"][0]) == {
        *("kind", "gateway", "subject", "since", "noticed", "pending", "damped", "raised"),
        *("pause", "ended", "held", "named"),
    }


def test_tables_may_be_empty_for_a_while(fleet: Fleet) -> None:
    for _ in range(3):
        assert fleet.check() == []
    stuck(fleet)
    fleet.ingest()
    assert fleet.check() == [("raised", "queue_stuck", ONE)]


@pytest.mark.parametrize(
    ("moment", "value"),
    [
        *((NOON_S, value) for value in (1.7e308, -1.7e308, 1e19)),
        *((first_or_last_year, 9.0) for first_or_last_year in (-62_135_596_800, 253_402_300_799)),
    ],
)
def test_extreme_numbers_and_years_do_not_stop_the_monitor(
    fleet: Fleet, moment: float, value: float
) -> None:
    for kind, name in (("limit", "rate"), ("queue", "depth")):
        row = event(moment, kind=kind, name=name, topic="jobs", value=value)
        fleet.arrive(ONE, row, at=fleet.now)
    fleet.ingest()
    fleet.check()
    assert fleet.state().gateways.keys() == {ONE}


@pytest.mark.parametrize(
    ("ahead_s", "arrives"),
    [
        (7_200, True),
        (20 * YEAR_S, False),
        *(pytest.param(*others, marks=pytest.mark.long)
          for others in ((1_800, True), (1_800, False), (7_200, False), (20 * YEAR_S, True))),
    ],
)  # fmt: skip
def test_alerts_continue_after_the_centre_clock_was_ahead(
    fleet: Fleet, ahead_s: int, arrives: bool
) -> None:
    two_gateways(fleet)
    assert fleet.check() == [("raised", "silent", TWO)]
    fleet.now += ahead_s
    fleet.arrive(ONE)
    if arrives:
        fleet.arrive(TWO)
    fleet.ingest()
    fleet.check()
    fleet.now -= ahead_s - 300
    for _ in range(5):
        fleet.check()
        for _ in range(3):
            fleet.arrive(ONE)
            fleet.now += 300
        fleet.ingest()
    fleet.check()
    assert fleet.written()[-1] == ("raised", "silent", TWO)
    fleet.arrive(TWO)
    assert ("recovered", "silent", TWO) in fleet.check()


def test_discarded_alerts_are_logged(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    two_gateways(fleet)
    waiting = fleet.watch.store.load_journal()
    waiting.enqueue([message(0)] * MAX_WEBHOOK_QUEUE, webhook=True)
    waiting.output_queue.clear()
    fleet.watch.store.save_journal(waiting)
    fleet.watch = fleet.start()
    fleet.watch.webhook = Webhook("http://127.0.0.1:1/")
    fleet.check()
    assert "discarded" in [each.getMessage() for each in caplog.records]
    assert fleet.watch.undelivered == MAX_WEBHOOK_QUEUE
