from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from edge.config.limits import Limits
from edge.config.options import Pubsub, Xmpp
from edge.engine.dispatch.hooks import new_context
from edge.engine.log.refusals import with_details
from edge.engine.store.events import NewEvent
from edge.engine.store.group_commit import Store
from edge.routing.xmpp.router import Router
from edge.server import refusal_counters
from edge.server.refusal_counters import Refusal, RefusalCounters, RefusalLog
from tests.helpers.store import DOMAIN, new_database, opened

LIMITS = Limits(refusal_window=60.0)
ADDRESS = "192.0.2.7"


class Log:
    """A log of refusals, its counters, and the events that the store has reported."""

    def __init__(self, store: Store) -> None:
        router = Router(new_context(DOMAIN, LIMITS, Xmpp(), Pubsub(), accounts=True))
        self.counters = RefusalCounters()
        self._log = RefusalLog(store, router.context, self.counters)
        self._store = store
        self.reported: list[NewEvent] = []
        store.on_logged = self.reported.extend

    def fail(self, account: str, now: float = 0.0, source: str = ADDRESS, **protocol: str) -> None:
        tags = {"account": account, "mechanism": "PLAIN", **protocol}
        self._log.log_failed_login(source, "authentication", "wrong password", tags, now)

    async def events(self) -> list[NewEvent]:
        """Return the events that were logged or reported, after the waiting units."""
        await self._store.run(lambda _tx: None)
        return self.reported


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[Log]:
    async with opened(new_database(tmp_path)) as store:
        yield Log(store)


async def test_the_first_refusal_of_a_kind_is_logged_at_once(log: Log) -> None:
    for account in ("pump1", "pump1", "pump2"):
        log.fail(account)
    log.fail("pump1", source="192.0.2.8")
    first, *others = await log.events()
    assert first == NewEvent(
        "limit", ADDRESS, name="authentication", value=1.0, level="Warning", text="wrong password",
        tags={"account": "pump1", "mechanism": "PLAIN"},
    )  # fmt: skip
    logged = [(event.source, (event.tags or {})["account"]) for event in others]
    assert logged == [(ADDRESS, "pump2"), ("192.0.2.8", "pump1")]
    ((refusal, count),) = log.counters.take_sources().items()
    assert (refusal.source, count) == (ADDRESS, 1)
    assert "pump1" in refusal.rule


async def test_a_new_window_logs_its_first_refusal_at_once(log: Log) -> None:
    for now in (0.0, 59.0, 60.0):
        log.fail("pump1", now)
    assert log.counters.take_sources().total() == 1


async def test_few_refusals_per_address_are_logged_at_once_and_further_names_are_dropped(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusal_counters, "LOGINS_AT_ONCE", (2, 100))
    monkeypatch.setattr(refusal_counters, "LOGIN_KINDS", 4)
    for number in range(10):
        log.fail(f"pump{number}")
    log.fail("pump3")
    for number in range(2):
        log.fail(f"cam{number}", protocol="mqtt", version="5.0")
    assert [(event.tags or {})["account"] for event in await log.events()] == ["pump0", "pump1"]
    counted = log.counters.take_sources()
    assert counted.pop(Refusal(ADDRESS, "authentication")) == 6
    mqtt = with_details("authentication", None, {"protocol": "mqtt", "version": "5.0"})
    assert counted.pop(Refusal(ADDRESS, mqtt)) == 2
    assert sorted(counted.values()) == [1, 2], "pump2 and pump3"


async def test_few_refusals_of_all_addresses_are_logged_at_once(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusal_counters, "LOGINS_AT_ONCE", (2, 5))
    for number in range(10):
        log.fail("pump1", source=f"192.0.2.{number}")
    assert len(await log.events()) == 5
    assert log.counters.take_sources().total() == 5


async def test_names_of_further_sources_are_dropped(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusal_counters, "LOGINS_AT_ONCE", (0, 0))
    monkeypatch.setattr(refusal_counters, "SOURCES", 2)
    for number in range(5):
        log.fail("pump1", source=f"192.0.2.{number}")
    assert log.counters.take_sources()[Refusal("other", "authentication")] == 3


async def test_a_refusal_that_cannot_be_logged_is_reported_and_counted(tmp_path: Path) -> None:
    async with opened(new_database(tmp_path)) as store:
        log = Log(store)
    log.fail("pump1")
    await asyncio.sleep(0)
    (event,) = log.reported
    assert (event.text, event.source) == ("wrong password", ADDRESS)
    assert log.counters.take_sources().total() == 1
