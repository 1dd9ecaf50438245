from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from edge import health_monitor
from edge.config import load
from edge.config.load import Config
from edge.engine.rules.space_rules import SpaceUsage
from edge.engine.store import space
from edge.engine.store.events import NewEvent
from edge.engine.store.group_commit import Store
from edge.errors import StoreBusy, StoreFull
from edge.health_monitor import HealthMonitor
from edge.ops import setup
from edge.ops.checks.health import FAILING, HEALTHY
from edge.ops.gateway.control import ProcessStatus
from sync.common import sd_notify
from tests.helpers.store import opened

MIB = 2**20
FULL = SpaceUsage(MIB, 0, 0, 12 * MIB)
ROOMY = SpaceUsage(MIB, 0, 0, 2**40)


class Monitored(NamedTuple):
    store: Store
    monitor: HealthMonitor
    journal: list[str]
    events: list[NewEvent]
    statuses: list[str]


@pytest.fixture
async def monitored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Monitored]:
    folder = tmp_path / "gateway"
    setup.init(folder, "gw.example")
    settings = load.load(folder)
    statuses: list[str] = []
    monkeypatch.setattr(sd_notify, "notify", statuses.append)
    monkeypatch.setattr(space, "measure", lambda _tx: ROOMY)
    async with opened(folder / "fieldpost.db") as store:
        journal: list[str] = []
        logged: list[NewEvent] = []
        store.on_logged = logged.extend
        monitor = HealthMonitor(
            folder, settings, store, lambda: state(settings, monitor), journal.append
        )
        yield Monitored(store, monitor, journal, logged, statuses)


def state(settings: Config, monitor: HealthMonitor) -> ProcessStatus:
    return ProcessStatus(
        version="1", boot="b", service=1.0, uptime=1.0, synchronised=True, used={},
        limits=msgspec.to_builtins(settings.limits), store_error=monitor.store_error,
    )  # fmt: skip


async def test_a_full_disk_is_logged_once_with_cause_and_remedy(
    monitored: Monitored, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await monitored.monitor.check()).state == HEALTHY
    assert (monitored.journal, monitored.events) == ([], [])
    monkeypatch.setattr(space, "measure", lambda _tx: FULL)
    for _ in range(2):
        assert (await monitored.monitor.check()).state == FAILING
    (event,) = monitored.events
    assert (event.kind, event.name) == ("store", "full")
    text = event.text or ""
    assert text.startswith("12.0 MiB are free on the disk")
    assert "; free disk space" in text
    assert monitored.journal == [], "the event is in the journal"
    monkeypatch.setattr(space, "measure", lambda _tx: ROOMY)
    await monitored.monitor.check()
    (line,) = monitored.journal
    assert line.startswith("disk: resolved: 12.0 MiB are free on the disk")
    failing, healthy = monitored.statuses
    assert failing.startswith("STATUS=failing: 12.0 MiB are free on the disk")
    assert healthy == "STATUS=ok"


async def test_a_disk_without_room_for_the_event_is_written_to_the_journal(
    monitored: Monitored, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(_unit: object) -> None:
        raise StoreFull("the database: the disk is full")

    monkeypatch.setattr(monitored.store, "run", run)
    monkeypatch.setattr(space, "measure", lambda _tx: FULL)
    await monitored.monitor.check()
    found = await monitored.monitor.check()
    assert [each.name for each in found.failures] == ["disk"]
    (line,) = monitored.journal
    assert line.startswith("disk: 12.0 MiB are free on the disk")
    assert "; free disk space" in line


async def test_a_database_that_fails_or_hangs_is_reported(
    monitored: Monitored, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_unit: object) -> None:
        raise StoreBusy("another process holds it")

    async def hang(_unit: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(health_monitor, "STORE_TIMEOUT", 0.01)
    with monkeypatch.context() as patch:
        for work, text in ((fail, "another process holds it"), (hang, "has not answered for")):
            patch.setattr(monitored.store, "run", work)
            found = await monitored.monitor.check()
            assert found.state == FAILING
            assert text in found.failures[0].text
    assert len(monitored.journal) == 1, "it is the same problem"
    assert (await monitored.monitor.check()).state == HEALTHY
    assert len(monitored.journal) == 2
