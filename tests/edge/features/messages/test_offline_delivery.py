"""Offline messages: storing, limits, delivery in pages, and expiry."""

from __future__ import annotations

from typing import Any

import pytest

from edge.config.limits import Limits
from edge.config.options import Xmpp
from edge.engine.dispatch.hooks import new_context
from edge.routing.xmpp import XmppHooks
from edge.xmpp import serialize
from tests.helpers.people import (
    DELAY,
    PUMP,
    UNTRUSTED,
    VALVE,
    VALVE_BARE,
    bodies,
    received,
)
from tests.helpers.store import DOMAIN, Gateway, MakeGateway, Reply

SECOND = "valve@gw.example/second"
STATE = "<composing xmlns='http://jabber.org/protocol/chatstates'/>"


def message(body: str, type_: str = "normal") -> str:
    return f"<message id='m' type='{type_}' to='{VALVE_BARE}'><body>{body}</body></message>"


def send_message(gateway: Gateway, body: str, type_: str = "normal") -> Reply | None:
    return gateway.send(PUMP, message(body, type_))


def send_messages(gateway: Gateway, count: int) -> list[str]:
    texts = [str(number) for number in range(count)]
    for text in texts:
        assert send_message(gateway, text) is None
    return texts


def make_valve_available(gateway: Gateway, full: str = VALVE) -> None:
    gateway.bind(full)
    gateway.send(full, "<presence/>")


def stored(gateway: Gateway) -> int:
    count: int = gateway.count("SELECT count(*) FROM offline")
    assert gateway.count("SELECT messages FROM offline_total") == count
    return count


FULL = ("wait", "service-unavailable")


def error(reply: Reply | None) -> tuple[str, str] | None:
    return None if reply is None else reply.error


@pytest.mark.parametrize("type_", ["normal", "chat"])
def test_message_waits_for_an_absent_device(gateway: Gateway, type_: str) -> None:
    assert send_message(gateway, "hello", type_) is None
    assert stored(gateway) == 1
    sent_at = gateway.clock().wall
    gateway.clock.service += 60
    make_valve_available(gateway)
    (stanza,) = received(gateway, VALVE)
    assert (stanza.get("from"), stanza.get("to"), stanza.get("type")) == (PUMP, VALVE_BARE, type_)
    delay = stanza.find(DELAY)
    assert delay is not None
    assert delay.attrib == {"from": DOMAIN, "stamp": serialize.timestamp(sent_at)}
    assert bodies([stanza]) == ["hello"]
    assert stored(gateway) == 0
    assert gateway.events() == []


@pytest.mark.parametrize(
    ("content", "is_stored"),
    [
        (STATE, False),
        (f"<thread>t</thread>{STATE}", False),
        (f"<body>x</body>{STATE}", True),
        ("<thread>t</thread>", True),
        ("<x xmlns='urn:x'/>", True),
        ("", True),
    ],
)
def test_chat_state_is_not_stored(gateway: Gateway, content: str, is_stored: bool) -> None:
    assert gateway.send(PUMP, f"<message type='chat' to='{VALVE_BARE}'>{content}</message>") is None
    assert stored(gateway) == int(is_stored)
    assert gateway.events() == []


def test_chat_to_an_ended_session_is_stored_for_its_account(gateway: Gateway) -> None:
    assert gateway.send(PUMP, f"<message type='chat' to='{VALVE}'><body>x</body></message>") is None
    make_valve_available(gateway, SECOND)
    assert bodies(received(gateway, SECOND)) == ["x"]


def test_messages_of_an_account_are_limited(make: MakeGateway) -> None:
    gateway = make(Limits(offline_messages=3))
    send_messages(gateway, 3)
    reply = gateway.ask(PUMP, message("x"))
    assert reply.error == FULL
    assert reply.text == "the limit offline_messages = 3 is reached"
    (event,) = gateway.events("system")
    assert (event.name, event.source) == ("offline_messages", "pump1@gw.example")
    assert event.tags == {"limit": "3"}
    assert stored(gateway) == 3


def test_bytes_of_an_account_are_limited(make: MakeGateway) -> None:
    gateway = make(Limits(offline_bytes=10_000))
    assert send_message(gateway, "x" * 9_000) is None
    assert error(send_message(gateway, "x" * 9_000)) == FULL
    assert gateway.count("SELECT bytes FROM offline_total") <= 10_000


TO_APART = "<message to='apart@gw.example'><body>x</body></message>"


@pytest.mark.parametrize(
    ("limits", "accepted", "limit"),
    [
        (Limits(offline_messages_per_source=3), 3, "offline_messages_per_source"),
        # an eighth is reserved for sources with few messages
        (Limits(offline_total_messages=8), 7, "offline_total_messages"),
    ],
    ids=["of a sender", "in total"],
)
def test_messages_to_different_accounts_are_limited(
    make: MakeGateway, limits: Limits, accepted: int, limit: str
) -> None:
    gateway = make(limits)
    gateway.end(UNTRUSTED)
    send_messages(gateway, accepted - 1)
    assert error(gateway.send(PUMP, TO_APART)) is None
    for xml in (message("x"), TO_APART):
        assert error(gateway.send(PUMP, xml)) == FULL
    (refusal,) = gateway.events("system")
    assert (refusal.name, refusal.source) == (limit, "pump1@gw.example")
    assert gateway.send(VALVE, TO_APART) is None
    assert stored(gateway) == accepted + 1


def test_expired_message_is_logged(make: MakeGateway) -> None:
    gateway = make(Limits(offline_ttl=100))
    send_message(gateway, "x")
    assert gateway.due == 1100.0
    gateway.clock.service = 1050.0
    send_message(gateway, "y")
    gateway.clock.service = 1099.0
    gateway.run_timers()
    assert (stored(gateway), gateway.due) == (2, 1100.0)
    gateway.clock.service = 1100.0
    gateway.run_timers()
    assert (stored(gateway), gateway.due) == (1, 1150.0)
    (event,) = gateway.events("system")
    assert (event.kind, event.name, event.source, event.qos) == ("message", "expired", PUMP, 0)
    assert event.tags == {"account": "valve"}


def test_messages_are_sent_in_order_and_in_pages(gateway: Gateway) -> None:
    texts = send_messages(gateway, 70)
    make_valve_available(gateway)
    pages = []
    while page := received(gateway, VALVE):
        pages.append(bodies(page))
    assert [len(page) for page in pages] == [32, 32, 6]
    assert [text for page in pages for text in page] == texts
    assert stored(gateway) == 0


def test_page_leaves_capacity_for_other_stanzas(make: MakeGateway) -> None:
    gateway = make(Limits(unacknowledged_stanzas=16, unacknowledged_bytes=64 * 1024))
    send_messages(gateway, 10)
    make_valve_available(gateway)
    assert len(received(gateway, VALVE)) == 8
    gateway.end(VALVE)
    for _ in range(3):
        send_message(gateway, "x" * 20_000)
    make_valve_available(gateway)
    assert len(received(gateway, VALVE)) == 3, "two short messages and a long one"
    assert len(received(gateway, VALVE)) == 1
    assert len(received(gateway, VALVE)) == 1


def test_new_messages_wait_behind_stored_ones(gateway: Gateway) -> None:
    texts = send_messages(gateway, 33)
    make_valve_available(gateway)
    assert send_message(gateway, "late") is None
    texts_received = bodies(received(gateway, VALVE))
    assert "late" not in texts_received
    texts_received += bodies(received(gateway, VALVE))
    assert texts_received == [*texts, "late"]
    assert send_message(gateway, "direct") is None
    (direct,) = received(gateway, VALVE)
    assert direct.find(DELAY) is None


def test_chat_state_does_not_wait(gateway: Gateway) -> None:
    send_message(gateway, "x")
    make_valve_available(gateway)
    gateway.send(PUMP, f"<message type='chat' to='{VALVE_BARE}'>{STATE}</message>")
    assert len(received(gateway, VALVE)) == 2


def test_lost_messages_go_to_another_session(gateway: Gateway) -> None:
    texts = send_messages(gateway, 3)
    make_valve_available(gateway)
    make_valve_available(gateway, SECOND)
    assert received(gateway, SECOND) == []
    gateway.end(VALVE)
    assert bodies(received(gateway, SECOND)) == texts


def test_remaining_messages_of_an_unavailable_session_go_to_another(gateway: Gateway) -> None:
    texts = send_messages(gateway, 40)
    make_valve_available(gateway)
    receipts = [send.receipt for send in gateway.sends(VALVE) if send.receipt is not None]
    make_valve_available(gateway, SECOND)
    assert received(gateway, SECOND) == []
    gateway.send(VALVE, "<presence type='unavailable'/>")
    gateway.acknowledge(VALVE, *receipts)
    assert bodies(received(gateway, SECOND)) == texts[32:]


def test_late_acknowledgement_changes_nothing(gateway: Gateway) -> None:
    send_message(gateway, "x")
    make_valve_available(gateway)
    generation = gateway.generation(VALVE)
    (receipt,) = (send.receipt for send in gateway.sends(VALVE) if send.receipt is not None)
    gateway.end(VALVE)
    gateway.tx(lambda tx: gateway.lifecycle.acknowledge(tx, generation, [receipt]))
    assert stored(gateway) == 1


@pytest.mark.parametrize(
    ("options", "advertised"),
    [({}, True), ({"xmpp": Xmpp(offline="refuse")}, False), ({"accounts": False}, False)],
    ids=["default", "disabled", "component"],
)
def test_store_is_advertised_when_enabled(options: dict[str, Any], advertised: bool) -> None:
    hooks = new_context(DOMAIN, Limits(), **options).hooks.of(XmppHooks)
    assert ("msgoffline" in hooks.advertised) is advertised
