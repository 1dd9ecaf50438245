"""Stanzas for which a bound session has no room: stored, answered or dropped."""

from __future__ import annotations

import pytest

from edge.config.limits import Limits
from edge.config.options import Xmpp
from edge.engine import sessions
from edge.engine.database import Transaction
from edge.features.messages import rules as routing
from edge.features.messages.rules import MessageType, Outcome
from edge.features.messages.service import AccountMessage, deliver
from tests.helpers.people import (
    PUMP,
    VALVE,
    VALVE_BARE,
    bodies,
    make_available,
    provision,
    received,
)
from tests.helpers.store import Gateway, MakeGateway


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Gateway:
    made = make_gateway(Limits(offline_messages=3))
    provision(made)
    make_available(made, VALVE)
    return made


def message(body: str = "x", to: str = VALVE_BARE, type_: str = "chat") -> bytes:
    return (
        f"<message from='{PUMP}' id='m{body}' type='{type_}' to='{to}'><body>{body}</body>"
        "</message>"
    ).encode()


def overflow(gateway: Gateway, *stanzas: bytes) -> None:
    generation = gateway.generation(VALVE)
    assert gateway.tx(
        lambda tx: gateway.lifecycle.reroute_overflow(tx, generation, stanzas)
    ) == len(stanzas)


def rules(gateway: Gateway) -> list[tuple[str | None, str | None]]:
    return [(event.source, event.name) for event in gateway.events("system")]


def errors_sent(gateway: Gateway) -> list[tuple[str | None, str]]:
    """Return the ids and conditions of the errors that the sender got."""
    return [
        (stanza.get("id"), stanza.find("{jabber:client}error")[0].tag.partition("}")[2])  # type: ignore[index]
        for stanza in received(gateway, PUMP)
    ]


@pytest.mark.parametrize("type_", ["chat", "normal"])
def test_account_message_is_stored_and_sent_later(gateway: Gateway, type_: str) -> None:
    overflow(gateway, message("a", type_=type_), message("b", type_=type_))
    assert gateway.count("SELECT count(*) FROM offline") == 2
    sends = gateway.sends(VALVE)
    assert all(send.receipt is not None for send in sends), "rows always fit"
    assert [b">a<" in sends[0].stanza, b">b<" in sends[1].stanza] == [True, True]
    assert errors_sent(gateway) == rules(gateway) == []


def test_later_messages_wait_behind(gateway: Gateway) -> None:
    overflow(gateway, message("a"))
    letter = AccountMessage(message("b"), PUMP, "valve", MessageType.CHAT, storable=True)

    def send(tx: Transaction) -> None:
        route = routing.route(
            MessageType.CHAT, sessions.of_account(tx, VALVE_BARE), None, exists=True
        )
        assert route.outcome is Outcome.BEST
        assert deliver(gateway.router.context, tx, letter, route) is None

    gateway.tx(send)
    assert bodies(received(gateway, VALVE)) == ["a"], "one page at a time"
    assert bodies(received(gateway, VALVE)) == ["b"]


def test_messages_of_the_same_transaction_wait_behind(gateway: Gateway) -> None:
    """Other stanzas of the transaction are sent to the session."""
    generation = gateway.generation(VALVE)
    passed = b"<iq type='result' id='i' from='pump1@gw.example/fw' to='valve@gw.example/fw'/>"
    private = message("p", to=VALVE)

    def unit(tx: Transaction) -> None:
        for stanza in (message("b"), passed, private):
            tx.send(generation, stanza)
        tx.take_sends()
        gateway.lifecycle.reroute_overflow(tx, generation, [message("a")])

    gateway.tx(unit)
    rows = gateway.connection.execute("SELECT stanza FROM offline ORDER BY id").fetchall()
    assert [b">a<" in rows[0][0], b">b<" in rows[1][0]] == [True, True]
    assert [send.stanza for send in gateway.sends(VALVE) if send.receipt is None] == [
        passed,
        private,
    ]


@pytest.mark.parametrize(
    "stanza",
    [
        message("x", to=VALVE),
        message("x", type_="headline"),
        message("x", to=VALVE, type_="groupchat"),
        f"<iq from='{PUMP}' id='mx' type='get' to='{VALVE}'><x xmlns='urn:x'/></iq>".encode(),
        f"<iq from='{PUMP}' id='mx' type='set' to='{VALVE}'><x xmlns='urn:x'/></iq>".encode(),
    ],
    ids=["to a session", "headline", "groupchat", "get", "set"],
)
def test_sender_of_an_unstorable_stanza_gets_an_error(gateway: Gateway, stanza: bytes) -> None:
    overflow(gateway, stanza)
    assert errors_sent(gateway) == [("mx", "resource-constraint")]
    assert rules(gateway) == [("pump1@gw.example", "crowded")]
    assert gateway.count("SELECT count(*) FROM offline") == 0


@pytest.mark.parametrize(
    "stanza",
    [
        message("x", type_="error"),
        f"<iq from='{PUMP}' id='mx' type='result' to='{VALVE}'/>".encode(),
        f"<presence from='{PUMP}' to='{VALVE}'/>".encode(),
    ],
    ids=["error", "result", "presence"],
)
def test_unanswerable_stanza_is_logged(gateway: Gateway, stanza: bytes) -> None:
    overflow(gateway, stanza)
    assert errors_sent(gateway) == []
    assert rules(gateway) == [("pump1@gw.example", "crowded")]


def test_store_refusal_is_answered(gateway: Gateway) -> None:
    overflow(gateway, *(message(str(number)) for number in range(5)))
    assert errors_sent(gateway) == [("m3", "service-unavailable"), ("m4", "service-unavailable")]
    assert rules(gateway) == [("pump1@gw.example", "offline_messages")]


def test_disabled_store_is_answered(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(xmpp=Xmpp(offline="refuse"))
    provision(gateway)
    make_available(gateway, VALVE)
    overflow(gateway, message("a"))
    assert errors_sent(gateway) == [("ma", "resource-constraint")]


def test_ended_session_returns_the_stanzas(gateway: Gateway) -> None:
    generation = gateway.generation(VALVE)
    gateway.end(VALVE)
    gateway.tx(
        lambda tx: gateway.lifecycle.reroute_overflow(tx, generation, [message("a", to=VALVE)])
    )
    assert gateway.count("SELECT count(*) FROM offline") == 1


def test_stanzas_sent_first_stay_first_when_the_session_ends(gateway: Gateway) -> None:
    """Buffered stanzas come before those that did not fit, for other sessions too."""
    overflow(gateway, message("b"), message("c"))
    gateway.sends(VALVE)
    second = "valve@gw.example/second"
    make_available(gateway, second)
    gateway.end(VALVE, message("a"))
    assert bodies(received(gateway, second)) == ["a", "b", "c"]


def test_messages_at_another_session_are_not_moved(gateway: Gateway) -> None:
    second = "valve@gw.example/second"
    overflow(gateway, message("b"))
    make_available(gateway, second)
    (row,) = (send.receipt.row for send in gateway.sends(VALVE) if send.receipt is not None)
    gateway.end(second, message("a", to=second))
    rows = gateway.connection.execute("SELECT id, stanza FROM offline ORDER BY id").fetchall()
    assert rows[0][0] == row
    assert [b">b<" in rows[0][1], b">a<" in rows[1][1]] == [True, True]
