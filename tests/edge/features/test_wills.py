"""Wills of sessions, without sockets and with a clock that the test sets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from edge.config.limits import Limits
from edge.config.options import Pubsub
from edge.engine.dispatch.item_attributes import ItemAttributes
from edge.engine.rules.access import Sender
from edge.engine.sessions import sessions
from edge.engine.sessions.sessions import Declaration
from edge.engine.store.database import Transaction
from edge.features.pubsub.store import items, nodes
from edge.features.wills import service
from edge.features.wills.service import Will, WillError
from tests.helpers.store import Gateway, new_database

FULL: Final = "pump1@gw.example/fw"
KEPT: Final = Declaration(durable=1000.0)
RETAINED: Final = ItemAttributes("text/plain", 1, True)
WILL: Final = Will("pump1/state", b"lost", RETAINED)
LATER: Final = WILL._replace(delay=60.0)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    gateway = Gateway(
        new_database(tmp_path), Limits(will_bytes=64 * 1024), pubsub=Pubsub(auto_create=["#"])
    )
    gateway.add("pump1")
    with closing(gateway):
        yield gateway


def begin(gateway: Gateway, will: Will | None, *, clean: bool = False) -> None:
    """Begin a session with a will."""
    gateway.bind(FULL, KEPT._replace(clean=clean))
    context = gateway.router.context
    gateway.tx(lambda tx: service.begin(context, tx, sender(gateway, tx), will, clean=clean))


def sender(gateway: Gateway, tx: Transaction) -> Sender:
    found = sessions.sender(tx, gateway.generation(FULL))
    assert found is not None
    return found


def published(gateway: Gateway, seconds: float = 0.0) -> bool:
    """Return whether the will is published some seconds later."""
    gateway.clock.service += seconds
    gateway.run_timers()

    def find(tx: Transaction) -> bool:
        node = nodes.get(tx, WILL.topic)
        item = None if node is None else items.last(tx, node.id)
        return item is not None and item.payload == WILL.payload and item.publisher == FULL

    return gateway.tx(find)


def test_a_will_is_published_when_its_session_is_lost(gateway: Gateway) -> None:
    begin(gateway, WILL)
    assert not published(gateway, 100.0)
    gateway.end(FULL)
    assert published(gateway)


def test_a_will_of_a_device_that_left_in_order_is_not_published(gateway: Gateway) -> None:
    begin(gateway, WILL)
    gateway.tx(lambda tx: service.discard(tx, sender(gateway, tx)))
    gateway.end(FULL)
    assert not published(gateway, 1000.0)


def test_a_will_waits_for_its_delay(gateway: Gateway) -> None:
    begin(gateway, LATER)
    gateway.end(FULL)
    assert not published(gateway, 59.0)
    assert published(gateway, 1.0)


@pytest.mark.parametrize(("clean", "is_published"), [(False, False), (True, True)])
def test_a_new_session_within_the_delay(gateway: Gateway, clean: bool, is_published: bool) -> None:
    begin(gateway, LATER)
    gateway.end(FULL)
    begin(gateway, None, clean=clean)
    assert published(gateway, 1000.0) is is_published


@pytest.mark.parametrize(
    ("will", "clean", "is_published"),
    [(WILL, False, True), (LATER, False, False), (LATER, True, True)],
)
def test_a_session_that_replaces_another(
    gateway: Gateway, will: Will, clean: bool, is_published: bool
) -> None:
    begin(gateway, will)
    begin(gateway, None, clean=clean)
    assert published(gateway, 1000.0) is is_published


@pytest.mark.parametrize("will", [WILL, LATER])
def test_a_will_survives_a_crash_of_the_gateway(gateway: Gateway, will: Will) -> None:
    begin(gateway, will)
    gateway.crash()
    assert published(gateway) is (will is WILL)
    assert published(gateway, 60.0)


def test_a_session_that_returns_after_a_crash_keeps_its_delayed_will(gateway: Gateway) -> None:
    begin(gateway, LATER)
    gateway.crash()
    gateway.run_timers()
    begin(gateway, LATER)
    assert not published(gateway, 1000.0)


def test_wills_of_one_gateway_have_a_limit(gateway: Gateway) -> None:
    gateway.bind(FULL, KEPT)
    large = WILL._replace(payload=bytes(64 * 1024))

    def begin_in_vain(tx: Transaction) -> None:
        with pytest.raises(WillError):
            service.begin(gateway.router.context, tx, sender(gateway, tx), large, clean=False)

    gateway.tx(begin_in_vain)
    assert gateway.events(name="will_bytes")
    gateway.end(FULL)
    assert not published(gateway, 1000.0)


@pytest.mark.parametrize("properties", [(("user:a", ""),) * 65, (("user:a", "b" * 8192),)])
def test_a_will_that_could_not_be_published_is_refused(
    gateway: Gateway, properties: tuple[tuple[str, str], ...]
) -> None:
    begin(gateway, WILL)
    gateway.end(FULL)
    gateway.bind(FULL, KEPT)
    unfit = WILL._replace(attributes=RETAINED._replace(properties=properties))

    def begin_in_vain(tx: Transaction) -> None:
        with pytest.raises(WillError):
            service.begin(gateway.router.context, tx, sender(gateway, tx), unfit, clean=False)

    gateway.tx(begin_in_vain)
    assert gateway.events(name="unfit")
    assert published(gateway), "the earlier will"
    assert gateway.count("SELECT count(*) FROM wills") == 0


def test_a_session_with_a_will_begins_in_a_full_database(tmp_path: Path) -> None:
    full = Limits(database_bytes=8 << 20, database_reserve=4 << 20)
    gateway = Gateway(new_database(tmp_path), full, pubsub=Pubsub(auto_create=["#"]))
    gateway.add("pump1")
    with closing(gateway):
        begin(gateway, WILL._replace(payload=b""))  # a publication that needs no room
        gateway.end(FULL)
        gateway.run_timers()
        assert gateway.count("SELECT count(*) FROM wills") == 0


def test_a_refused_will_is_logged(gateway: Gateway) -> None:
    begin(gateway, WILL._replace(topic="pump1/#"))
    gateway.end(FULL)
    gateway.run_timers()
    assert [event.source for event in gateway.events(name="no_destination")] == ["pump1@gw.example"]
