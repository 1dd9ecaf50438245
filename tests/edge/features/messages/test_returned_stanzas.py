"""Stanzas that a session ended without acknowledging: stored, re-routed, answered or dropped."""

from __future__ import annotations

import pytest

from edge.config.limits import Limits
from edge.features.accounts.store import accounts
from edge.xmpp import serialize
from tests.helpers.people import (
    CLIENT,
    DELAY,
    PUMP,
    VALVE,
    VALVE_BARE,
    bodies,
    make_available,
    provision,
    received,
)
from tests.helpers.store import DOMAIN, WALL, Gateway, MakeGateway

SECOND = "valve@gw.example/second"


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Gateway:
    made = make_gateway(Limits(offline_messages=4))
    provision(made)
    make_available(made, VALVE)
    return made


def message(body: str = "x", to: str = VALVE, type_: str = "normal", extra: str = "") -> bytes:
    return (
        f"<message from='{PUMP}' id='m' type='{type_}' to='{to}'><body>{body}</body>"
        f"{extra}</message>"
    ).encode()


def rules(gateway: Gateway) -> list[tuple[str | None, str | None]]:
    return [(event.source, event.name) for event in gateway.events("system")]


@pytest.mark.parametrize("type_", ["normal", "chat"])
@pytest.mark.parametrize("to", [VALVE, VALVE_BARE])
def test_messages_are_stored_in_order_with_a_delay(gateway: Gateway, to: str, type_: str) -> None:
    gateway.end(VALVE, *(message(body, to, type_) for body in "abc"))
    rows = gateway.connection.execute("SELECT stanza, sender FROM offline ORDER BY id").fetchall()
    assert [sender for _stanza, sender in rows] == [PUMP] * 3
    for text, row in zip((b"a", b"b", b"c"), rows, strict=True):
        assert b"<body>%b</body>" % text in row[0]
    assert all(row[0].count(b"urn:xmpp:delay") == 1 for row in rows)
    assert rules(gateway) == []


def test_messages_go_to_another_session(gateway: Gateway) -> None:
    make_available(gateway, SECOND)
    gateway.end(VALVE, message("a"), message("b", VALVE_BARE))
    got = received(gateway, SECOND)
    assert bodies(got) == ["a", "b"]
    assert [stanza.find(DELAY) for stanza in got] == [None, None]
    assert gateway.count("SELECT count(*) FROM offline") == 0


def test_existing_delay_is_kept(gateway: Gateway) -> None:
    stamp = serialize.timestamp(WALL)
    ours = f"<delay xmlns='urn:xmpp:delay' from='{DOMAIN}' stamp='{stamp}'/>"
    another = ours.replace(DOMAIN, "room.example")
    gateway.end(VALVE, message("a", extra=ours), message("b", extra=another))
    first, second = gateway.connection.execute("SELECT stanza FROM offline ORDER BY id").fetchall()
    assert first[0] == message("a", extra=ours)
    assert second[0].count(b"<delay") == 2


def test_other_message_types_are_answered_or_dropped(gateway: Gateway) -> None:
    make_available(gateway, SECOND)
    gateway.end(
        VALVE,
        message(type_="headline"),
        message(type_="error"),
        b"<presence from='pump1@gw.example/fw' to='valve@gw.example/fw'/>",
        b"<iq type='result' id='i' from='pump1@gw.example/fw' to='valve@gw.example/fw'/>",
        b"<iq type='error' id='i' from='pump1@gw.example/fw' to='valve@gw.example/fw'/>",
        b"<iq type='set' id='push' to='valve@gw.example/fw'><query xmlns='jabber:iq:roster'/></iq>",
        b"<message type='headline'><body>x</body></message>",
    )
    assert received(gateway, SECOND) == received(gateway, PUMP) == []
    assert gateway.count("SELECT count(*) FROM offline") == 0
    assert rules(gateway) == [("pump1@gw.example", "nobody_there")], "a lost headline is logged"


@pytest.mark.parametrize("type_", ["get", "set"])
def test_requests_and_groupchat_messages_get_an_error(gateway: Gateway, type_: str) -> None:
    asked = f"<iq from='{PUMP}' id='i' type='{type_}' to='{VALVE}'><x xmlns='urn:x'/></iq>"
    gateway.end(VALVE, asked.encode(), message(type_="groupchat"))
    errors, of_message = received(gateway, PUMP)
    found = of_message.get("type"), of_message.get("id"), of_message.get("from")
    assert found == ("error", "m", VALVE)
    assert errors.tag == f"{CLIENT}iq"
    assert errors.attrib == {"type": "error", "id": "i", "to": PUMP, "from": VALVE}
    (error,) = errors
    assert error.get("type") == "wait"
    assert error[0].tag == "{urn:ietf:params:xml:ns:xmpp-stanzas}recipient-unavailable"


def test_absent_senders_get_no_error(gateway: Gateway) -> None:
    gateway.end(PUMP)
    asked = f"<iq from='{PUMP}' id='i' type='get' to='{VALVE}'><x xmlns='urn:x'/></iq>"
    gateway.end(VALVE, asked.encode())
    assert gateway.sent == []


def test_message_without_room_is_refused_and_logged(gateway: Gateway) -> None:
    """They were admitted before, so twice the quota is available, minus the reserved eighth."""
    gateway.end(VALVE, *(message(str(number)) for number in range(10)))
    assert gateway.count("SELECT count(*) FROM offline") == 7
    errors = received(gateway, PUMP)
    assert [stanza.get("type") for stanza in errors] == ["error"] * 3
    assert rules(gateway) == [("pump1@gw.example", "offline_messages")]


def test_removed_account_stores_nothing(gateway: Gateway) -> None:
    gateway.tx(lambda tx: accounts.remove(tx, "valve"))
    gateway.end(VALVE, message())
    (errors,) = received(gateway, PUMP)
    assert errors.get("type") == "error"
    assert rules(gateway) == [("pump1@gw.example", "nobody_there")]
