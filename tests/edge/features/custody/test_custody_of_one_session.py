"""Custody of sessions whose msgIds belong to their full address alone, as numbered ids do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from edge.config.limits import Limits
from edge.engine.sessions.sessions import Declaration
from edge.engine.store.database import Transaction
from edge.features.custody import store as custody
from tests.helpers.custody_image import image_equals_rows
from tests.helpers.store import DOMAIN, Gateway, MakeGateway, assured, deliver, log

ONE, TWO, XMPP_1, XMPP_2 = (f"pump1@{DOMAIN}/{name}" for name in ("one", "two", "x1", "x2"))
NUMBERED: Final = Declaration(adopts=False, durable=100.0)
CLEAN: Final = NUMBERED._replace(clean=True)


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Iterator[Gateway]:
    gateway = make_gateway(Limits(held_ttl=1000), accounts_of=("pump1",))
    for full in (ONE, TWO):
        gateway.bind(full, NUMBERED)
    yield gateway
    image_equals_rows(Transaction(gateway.connection, gateway.clock(), gateway.cache))


def offer(gateway: Gateway, full: str, text: str, msg_id: str = "1") -> bool:
    return gateway.ask(full, assured(msg_id, log(text))).error is None


def release(gateway: Gateway, full: str, msg_id: str = "1") -> str:
    reply = gateway.ask(full, deliver(msg_id))
    return "delivered" if reply.error is None else reply.error[1]


def delivered(gateway: Gateway) -> list[str | None]:
    return [event.text for event in gateway.events("logs")]


def held(gateway: Gateway) -> list[tuple[str, int]]:
    query = "SELECT sender, exclusive FROM custody WHERE released IS NULL ORDER BY id"
    return gateway.connection.execute(query).fetchall()


@pytest.mark.parametrize("ends", [False, True])
def test_two_clients_of_an_account_offer_different_messages_with_one_id(
    gateway: Gateway, ends: bool
) -> None:
    assert offer(gateway, ONE, "same")
    if ends:
        gateway.end(ONE)
        gateway.end(TWO)
        gateway.bind(TWO, NUMBERED)
    assert offer(gateway, TWO, "same")
    assert release(gateway, TWO) == "delivered"
    if ends:
        gateway.bind(ONE, NUMBERED)
    assert held(gateway) == [(ONE, 0)]
    assert release(gateway, ONE) == "delivered"
    assert delivered(gateway) == ["same", "same"]


def test_id_is_used_again_when_its_message_is_delivered(gateway: Gateway) -> None:
    for text in ("first", "second", "second"):
        assert offer(gateway, ONE, text)
        assert release(gateway, ONE) == "delivered"
        assert release(gateway, ONE) == "delivered"  # the answer was lost
    assert delivered(gateway) == ["first", "second", "second"]


def test_another_message_replaces_one_that_was_not_released(gateway: Gateway) -> None:
    """A device that has lost its state uses its ids again."""
    for text in ("first", "first", "second"):
        assert offer(gateway, ONE, text)
    assert release(gateway, ONE) == "delivered"
    assert delivered(gateway) == ["second"]
    (event,) = (event for event in gateway.events("system") if event.name == "discarded")
    assert event.text == "discarded: its sender used its msgId again"


def test_offer_and_release_survive_a_kill_between_them(gateway: Gateway) -> None:
    for text in ("first", "second"):
        assert offer(gateway, ONE, text)
        gateway.crash()
        gateway.bind(ONE, NUMBERED)
        assert gateway.is_resumed
        assert offer(gateway, ONE, text)
        assert release(gateway, ONE) == "delivered"
        gateway.crash()
        gateway.bind(ONE, NUMBERED)
        assert release(gateway, ONE) == "delivered"
    assert delivered(gateway) == ["first", "second"]


def test_sessions_that_adopt_custody_are_not_affected(gateway: Gateway) -> None:
    offer(gateway, ONE, "numbered")
    gateway.end(ONE)
    gateway.clock.service += 1
    gateway.bind(XMPP_1)
    assert release(gateway, XMPP_1) == "item-not-found"
    offer(gateway, XMPP_1, "of a resource")
    gateway.end(XMPP_1)
    assert release(gateway, TWO) == "item-not-found"
    gateway.bind(ONE, NUMBERED)
    assert release(gateway, ONE) == "delivered"
    assert held(gateway) == [(XMPP_1, 0)]  # a release by the other would make it exclusive
    gateway.clock.service += 1
    gateway.bind(XMPP_2)
    assert release(gateway, XMPP_2) == "delivered"
    gateway.end(ONE)
    gateway.bind(f"{XMPP_2}/3")
    offer(gateway, TWO, "expires")
    gateway.clock.service += 1000
    gateway.run_timers()
    assert release(gateway, XMPP_2) == "delivered"  # its release is not forgotten
    assert delivered(gateway) == ["numbered", "of a resource"]


@pytest.mark.parametrize("is_clean", [True, False])
def test_state_that_ends_takes_its_custody_along(gateway: Gateway, is_clean: bool) -> None:
    offer(gateway, ONE, "lost")
    offer(gateway, TWO, "kept")
    gateway.end(ONE)
    if is_clean:
        gateway.crash()
        gateway.bind(TWO, NUMBERED)
        gateway.bind(ONE, CLEAN)
    else:
        gateway.clock.service += 100
        gateway.run_timers()
        gateway.bind(ONE, NUMBERED)
    assert not gateway.is_resumed
    assert held(gateway) == [(TWO, 0)]
    assert release(gateway, ONE) == "item-not-found"
    (event,) = gateway.events("system", "discarded")
    assert (event.source, event.tags["msgId"]) == (ONE, "1")
    assert offer(gateway, ONE, "new")
    assert [release(gateway, full) for full in (ONE, TWO)] == ["delivered", "delivered"]
    assert delivered(gateway) == ["new", "kept"]


def test_state_that_ends_leaves_what_its_address_holds_for_all_sessions(gateway: Gateway) -> None:
    gateway.end(ONE)
    gateway.bind(ONE)  # by a protocol whose sessions adopt custody
    offer(gateway, ONE, "kept")
    gateway.end(ONE)
    gateway.clock.service += 1
    gateway.bind(ONE, CLEAN)
    gateway.end(ONE)
    gateway.bind(XMPP_1)
    assert release(gateway, XMPP_1) == "delivered"
    assert delivered(gateway) == ["kept"]


def test_messages_of_a_removed_account_have_the_ids_that_it_chose(gateway: Gateway) -> None:
    offer(gateway, ONE, "left")
    (found,) = gateway.tx(lambda tx: custody.take_messages(tx, f"pump1@{DOMAIN}"))
    assert (found.sender, found.msg_id) == (ONE, "1")
