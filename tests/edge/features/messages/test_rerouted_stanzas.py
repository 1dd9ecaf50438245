"""Stanzas that are re-routed because their session ended or its send queue is full."""

from __future__ import annotations

import pytest

from edge.config.limits import Limits
from edge.config.options import Xmpp
from edge.engine.sessions import sessions
from edge.engine.store.database import MessageBytes, Transaction
from edge.features.accounts.store import accounts
from edge.features.messages import rules as routing
from edge.features.messages.rules import MessageType, Outcome
from edge.features.messages.service import deliver
from edge.features.presence.service.messages import RosterPush
from edge.features.presence.store.roster import RosterItem
from edge.xmpp import serialize
from tests.helpers.people import (
    CLIENT,
    DELAY,
    PUMP,
    VALVE,
    VALVE_BARE,
    bodies,
    make_available,
    received,
)
from tests.helpers.relayed import account_message, relayed
from tests.helpers.store import DOMAIN, STANZAS, WALL, Gateway, MakeGateway, read_element

SECOND = "valve@gw.example/second"


@pytest.fixture
def gateway(make: MakeGateway) -> Gateway:
    gateway = make(Limits(offline_messages=4))
    make_available(gateway, VALVE)
    return gateway


def message(body: str = "x", to: str = VALVE_BARE, type_: str = "normal", extra: str = "") -> bytes:
    attrs = f"from='{PUMP}' id='m{body}' type='{type_}' to='{to}'"
    return f"<message {attrs}><body>{body}</body>{extra}</message>".encode()


def iq(type_: str) -> bytes:
    content = "<x xmlns='urn:x'/>" if type_ in ("get", "set") else ""
    return f"<iq from='{PUMP}' id='mx' type='{type_}' to='{VALVE}'>{content}</iq>".encode()


PRESENCE = f"<presence from='{PUMP}' to='{VALVE}'/>".encode()


def overflow(gateway: Gateway, *stanzas: bytes) -> None:
    generation = gateway.generation(VALVE)
    messages = [relayed(stanza) for stanza in stanzas]
    count = gateway.tx(lambda tx: gateway.lifecycle.reroute_overflow(tx, generation, messages))
    assert count == len(stanzas)


def end(gateway: Gateway, *stanzas: bytes) -> None:
    """End the session that has not received these stanzas."""
    gateway.end(VALVE, *(relayed(stanza) for stanza in stanzas))


def rules(gateway: Gateway) -> list[tuple[str | None, str | None]]:
    return [(event.source, event.name) for event in gateway.events("system")]


def stored(gateway: Gateway) -> list[bytes]:
    return [stanza for *_, stanza in gateway.offline()]


def errors_sent(gateway: Gateway) -> list[tuple[str | None, str, str | None]]:
    """Return the ids, types and conditions of the errors that the sender got."""
    found = []
    for stanza in received(gateway, PUMP):
        assert stanza.get("type") == "error"
        (error,) = stanza.findall(f"{CLIENT}error")
        condition = error[0].tag.removeprefix(f"{{{STANZAS}}}")
        found.append((stanza.get("id"), condition, error.get("type")))
    return found


# After a session ended


@pytest.mark.parametrize("type_", ["normal", "chat"])
@pytest.mark.parametrize("to", [VALVE, VALVE_BARE])
def test_messages_are_stored_in_order_with_a_delay(gateway: Gateway, to: str, type_: str) -> None:
    end(gateway, *(message(body, to, type_) for body in "abc"))
    rows = gateway.offline()
    assert [sender for _, sender, _ in rows] == [PUMP] * 3
    for text, (*_, stanza) in zip("abc", rows, strict=True):
        assert f"<body>{text}</body>".encode() in stanza
        assert stanza.count(b"urn:xmpp:delay") == 1
    assert rules(gateway) == []


def test_messages_go_to_another_session(gateway: Gateway) -> None:
    make_available(gateway, SECOND)
    end(gateway, message("a", VALVE), message("b"))
    messages = received(gateway, SECOND)
    assert bodies(messages) == ["a", "b"]
    assert [stanza.find(DELAY) for stanza in messages] == [None, None]
    assert stored(gateway) == []


def test_existing_delay_is_kept(gateway: Gateway) -> None:
    stamp = serialize.timestamp(WALL)
    own_delay = f"<delay xmlns='urn:xmpp:delay' from='{DOMAIN}' stamp='{stamp}'/>"
    foreign_delay = own_delay.replace(DOMAIN, "room.example")
    end(gateway, message("a", extra=own_delay), message("b", extra=foreign_delay))
    first, second = stored(gateway)
    assert first == message("a", extra=own_delay)
    assert second.count(b"<delay") == 2


def test_other_stanzas_are_dropped(gateway: Gateway) -> None:
    make_available(gateway, SECOND)
    gateway.end(
        VALVE,
        relayed(message(type_="headline")),
        relayed(message(type_="error")),
        relayed(PRESENCE),
        relayed(iq("result")),
        relayed(iq("error")),
        RosterPush(VALVE, "push", "1", RosterItem(PUMP)),
        MessageBytes(b"\xff no stanza"),
    )
    assert received(gateway, SECOND) == received(gateway, PUMP) == []
    assert stored(gateway) == []
    assert rules(gateway) == [("pump1@gw.example", "nobody_there")], "a lost headline is logged"


@pytest.mark.parametrize("type_", ["get", "set"])
def test_requests_and_groupchat_messages_get_an_error(gateway: Gateway, type_: str) -> None:
    end(gateway, iq(type_), message("g", VALVE, "groupchat"))
    iq_error, message_error = received(gateway, PUMP)
    assert iq_error.tag == f"{CLIENT}iq"
    assert iq_error.attrib == {"type": "error", "id": "mx", "to": PUMP, "from": VALVE}
    assert iq_error[0].get("type") == "wait"
    assert iq_error[0][0].tag == f"{{{STANZAS}}}recipient-unavailable"
    found = message_error.get("type"), message_error.get("id"), message_error.get("from")
    assert found == ("error", "mg", VALVE)


def test_absent_senders_get_no_error(gateway: Gateway) -> None:
    gateway.end(PUMP)
    end(gateway, iq("get"))
    assert gateway.sent == []


def test_message_above_the_quota_is_refused_and_logged(gateway: Gateway) -> None:
    """Re-routed messages may use twice the quota, minus the reserved eighth."""
    end(gateway, *(message(str(number)) for number in range(10)))
    assert len(stored(gateway)) == 7
    assert [id for id, *_ in errors_sent(gateway)] == ["m7", "m8", "m9"]
    assert rules(gateway) == [("pump1@gw.example", "offline_messages")]


def test_removed_account_stores_nothing(gateway: Gateway) -> None:
    gateway.tx(lambda tx: accounts.remove(tx, "valve"))
    end(gateway, message())
    assert [id for id, *_ in errors_sent(gateway)] == ["mx"]
    assert rules(gateway) == [("pump1@gw.example", "nobody_there")]


# While a session's send queue is full


@pytest.mark.parametrize("type_", ["chat", "normal"])
def test_account_message_is_stored_and_sent_later(gateway: Gateway, type_: str) -> None:
    overflow(gateway, message("a", type_=type_), message("b", type_=type_))
    assert len(stored(gateway)) == 2
    sends = gateway.sends(VALVE)
    assert all(send.receipt is not None for send in sends), "rows always fit"
    assert [b">a<" in sends[0].stanza, b">b<" in sends[1].stanza] == [True, True]
    assert errors_sent(gateway) == []
    assert rules(gateway) == []


def test_later_messages_wait_behind_stored_ones(gateway: Gateway) -> None:
    overflow(gateway, message("a"))
    later = account_message(message("b", type_="chat"))

    def send(tx: Transaction) -> None:
        bound = sessions.of_account(tx, VALVE_BARE)
        route = routing.route(MessageType.CHAT, bound, None, exists=True)
        assert route.outcome is Outcome.BEST
        assert deliver(gateway.router.context, tx, later, route) is None

    gateway.tx(send)
    sends = gateway.sends(VALVE)
    assert bodies([read_element(send.stanza) for send in sends]) == ["a", "b"]
    assert all(send.receipt is not None for send in sends), "both are stored until then"


def test_messages_of_the_same_transaction_wait_behind_stored_ones(gateway: Gateway) -> None:
    """Other stanzas of the transaction are sent to the session."""
    generation = gateway.generation(VALVE)
    others = [iq("result"), message("p", VALVE)]

    def unit(tx: Transaction) -> None:
        for stanza in (message("b"), *others):
            tx.send(generation, relayed(stanza))
        tx.take_sends()
        gateway.lifecycle.reroute_overflow(tx, generation, [relayed(message("a"))])

    gateway.tx(unit)
    first, second = stored(gateway)
    assert [b">a<" in first, b">b<" in second] == [True, True]
    assert [one.stanza for one in gateway.sends(VALVE) if one.receipt is None] == others


UNSTORABLE = {
    "to a session": (message("x", VALVE, "chat"), True),
    "headline": (message("x", type_="headline"), True),
    "groupchat": (message("x", VALVE, "groupchat"), True),
    "get": (iq("get"), True),
    "set": (iq("set"), True),
    "error": (message("x", type_="error"), False),
    "result": (iq("result"), False),
    "presence": (PRESENCE, False),
}


@pytest.mark.parametrize(("stanza", "answered"), UNSTORABLE.values(), ids=UNSTORABLE)
def test_unstorable_stanza_is_logged_and_answered_if_possible(
    gateway: Gateway, stanza: bytes, answered: bool
) -> None:
    overflow(gateway, stanza)
    assert errors_sent(gateway) == ([("mx", "resource-constraint", "wait")] if answered else [])
    assert rules(gateway) == [("pump1@gw.example", "crowded")]
    assert stored(gateway) == []


def test_message_that_the_store_refuses_is_answered(gateway: Gateway) -> None:
    overflow(gateway, *(message(str(number)) for number in range(6)))
    refused = ("service-unavailable", "wait")
    assert errors_sent(gateway) == [("m4", *refused), ("m5", *refused)]
    assert rules(gateway) == [("pump1@gw.example", "offline_messages")]


def test_message_is_refused_while_the_store_is_disabled(make: MakeGateway) -> None:
    gateway = make(xmpp=Xmpp(offline="refuse"))
    make_available(gateway, VALVE)
    overflow(gateway, message("a"))
    assert errors_sent(gateway) == [("ma", "resource-constraint", "wait")]


def test_overflow_of_an_ended_session_is_stored(gateway: Gateway) -> None:
    generation, lost = gateway.generation(VALVE), relayed(message("a", VALVE))
    gateway.end(VALVE)
    gateway.tx(lambda tx: gateway.lifecycle.reroute_overflow(tx, generation, [lost]))
    assert len(stored(gateway)) == 1


def test_stanzas_sent_first_stay_first_when_the_session_ends(gateway: Gateway) -> None:
    """Buffered stanzas precede those that did not fit, for other sessions, too."""
    overflow(gateway, message("b"), message("c"))
    gateway.sends(VALVE)
    make_available(gateway, SECOND)
    end(gateway, message("a"))
    assert bodies(received(gateway, SECOND)) == ["a", "b", "c"]


def test_messages_at_another_session_are_not_moved(gateway: Gateway) -> None:
    overflow(gateway, message("b"))
    make_available(gateway, SECOND)
    (row,) = (send.receipt.row for send in gateway.sends(VALVE) if send.receipt is not None)
    gateway.end(SECOND, relayed(message("a", SECOND)))
    rows = gateway.connection.execute("SELECT id, stanza FROM offline ORDER BY id").fetchall()
    assert rows[0][0] == row
    assert [b">b<" in rows[0][1], b">a<" in rows[1][1]] == [True, True]
