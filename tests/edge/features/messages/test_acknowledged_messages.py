"""Messages whose senders have stream management: a crash of the gateway loses none (XEP-0198)."""

from __future__ import annotations

import pytest

from edge.config.limits import Limits
from edge.config.options import Xmpp
from tests.helpers.people import (
    DELAY,
    PUMP,
    VALVE,
    VALVE_BARE,
    bodies,
    make_available,
    provision,
    received,
)
from tests.helpers.store import Gateway, MakeGateway, Reply

SECOND = "valve@gw.example/second"
LAMP = "lamp@gw.example/fw"
FULL = ("wait", "service-unavailable")
CROWDED = ("wait", "resource-constraint")

ADDRESSES = pytest.mark.parametrize("to", [VALVE_BARE, VALVE])


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Gateway:
    return prepared(make_gateway())


def prepared(gateway: Gateway) -> Gateway:
    """Add the devices; the pump has stream management, and the valve is available."""
    provision(gateway)
    gateway.add("lamp")
    gateway.managed.add(PUMP)
    make_available(gateway, VALVE)
    return gateway


def send(
    gateway: Gateway, body: str, to: str = VALVE_BARE, type_: str = "chat", sender: str = PUMP
) -> Reply | None:
    xml = f"<message id='m' type='{type_}' to='{to}'><body>{body}</body></message>"
    return gateway.send(sender, xml)


def stored(gateway: Gateway) -> int:
    count: int = gateway.count("SELECT count(*) FROM offline")
    return count


def crash(gateway: Gateway) -> None:
    gateway.crash()
    gateway.sent.clear()


def come_back(gateway: Gateway, full: str) -> None:
    gateway.bind(full)
    gateway.send(full, "<presence/>")


@pytest.mark.parametrize("type_", ["chat", "normal"])
@ADDRESSES
def test_message_survives_a_crash_until_it_is_acknowledged(
    gateway: Gateway, to: str, type_: str
) -> None:
    assert send(gateway, "1", to, type_) is None
    (sent,) = gateway.sends(VALVE)
    assert DELAY.encode() not in sent.stanza, "it is not late"
    assert stored(gateway) == 1
    crash(gateway)
    come_back(gateway, SECOND)
    (again,) = received(gateway, SECOND)
    assert bodies([again]) == ["1"]
    assert again.get("to") == to
    assert again.find(DELAY) is not None
    assert stored(gateway) == 0


@ADDRESSES
def test_acknowledged_message_is_forgotten(gateway: Gateway, to: str) -> None:
    send(gateway, "1", to)
    (one,) = received(gateway, VALVE)
    assert one.find(DELAY) is None
    assert stored(gateway) == 0
    assert gateway.events() == []


@ADDRESSES
def test_message_to_a_detached_session_is_stored(gateway: Gateway, to: str) -> None:
    gateway.detach(VALVE)
    for number in range(4):
        assert send(gateway, str(number), to) is None
    assert stored(gateway) == 4
    crash(gateway)
    come_back(gateway, VALVE)
    assert bodies(received(gateway, VALVE)) == ["0", "1", "2", "3"]


def test_acknowledged_messages_to_both_addresses_are_not_sent_again(gateway: Gateway) -> None:
    send(gateway, "0")
    send(gateway, "1", VALVE)
    assert bodies(received(gateway, VALVE)) == ["0", "1"]
    assert gateway.sends(VALVE) == []
    assert stored(gateway) == 0


@pytest.mark.parametrize(
    ("type_", "content"),
    [
        ("headline", "<body>x</body>"),
        ("groupchat", "<body>x</body>"),
        ("error", "<body>x</body>"),
        ("chat", "<composing xmlns='http://jabber.org/protocol/chatstates'/>"),
    ],
)
def test_message_that_is_never_stored_is_only_sent(
    gateway: Gateway, type_: str, content: str
) -> None:
    gateway.send(PUMP, f"<message type='{type_}' to='{VALVE}'>{content}</message>")
    assert len(gateway.sends(VALVE)) == 1
    assert stored(gateway) == 0


@ADDRESSES
def test_message_without_stream_management_is_not_stored(gateway: Gateway, to: str) -> None:
    send(gateway, "1", to, sender=LAMP)
    assert len(gateway.sends(VALVE)) == 1
    assert stored(gateway) == 0


def test_unacknowledged_messages_go_to_another_session_in_order(gateway: Gateway) -> None:
    send(gateway, "0", VALVE)
    send(gateway, "1")
    send(gateway, "2", VALVE)
    gateway.sends(VALVE)
    make_available(gateway, SECOND)
    gateway.end(VALVE)
    assert bodies(received(gateway, SECOND)) == ["0", "1", "2"]


def test_messages_beyond_the_window_wait_and_follow_in_order(gateway: Gateway) -> None:
    texts = [str(number) for number in range(40)]
    for text in texts:
        assert send(gateway, text) is None
    sends = gateway.sends(VALVE)
    assert len(sends) == 32
    receipts = [one.receipt for one in sends if one.receipt is not None]
    gateway.acknowledge(VALVE, *receipts[:3])
    assert send(gateway, "late") is None
    assert len(gateway.sends(VALVE)) == 3, "as many as were acknowledged"
    gateway.acknowledge(VALVE, *receipts[3:])
    assert bodies(received(gateway, VALVE)) == [*texts[35:], "late"]


def test_no_message_overtakes_a_waiting_one(gateway: Gateway) -> None:
    """The second message has no room in the window; the third would have."""
    texts = ["a" * 40_000, "b" * 40_000, "c"]
    for text in texts:
        assert send(gateway, text) is None
    assert bodies(received(gateway, VALVE)) == texts[:1]
    assert bodies(received(gateway, VALVE)) == texts[1:]


def test_messages_wait_while_another_session_has_older_ones(gateway: Gateway) -> None:
    send(gateway, "0")
    gateway.detach(VALVE)
    make_available(gateway, SECOND)
    send(gateway, "1")
    assert gateway.sends(SECOND) == []
    gateway.end(VALVE)
    assert bodies(received(gateway, SECOND)) == ["0", "1"]


def test_other_messages_wait_behind_unacknowledged_ones(gateway: Gateway) -> None:
    """A sender may enable stream management after its first messages, and end it by a new log-in.

    Its messages to the account stay in order.
    """
    gateway.managed.clear()
    send(gateway, "0")
    gateway.managed.add(PUMP)
    send(gateway, "1")
    gateway.managed.clear()
    send(gateway, "2")
    assert bodies(received(gateway, VALVE)) == ["0", "1", "2"]
    assert stored(gateway) == 0


def test_messages_to_one_session_do_not_hold_back_the_others_of_its_account(
    gateway: Gateway,
) -> None:
    gateway.detach(VALVE)
    send(gateway, "for this session", VALVE)
    make_available(gateway, SECOND)
    send(gateway, "for any")
    send(gateway, "of the lamp", sender=LAMP)
    assert bodies(received(gateway, SECOND)) == ["for any", "of the lamp"]
    gateway.resume(VALVE)
    assert bodies(received(gateway, VALVE)) == ["for this session"]


def test_a_session_without_room_refuses_messages_to_its_full_address(
    make_gateway: MakeGateway,
) -> None:
    gateway = prepared(make_gateway(Limits(unacknowledged_stanzas=16)))
    for number in range(4):
        assert send(gateway, str(number), VALVE) is None
    reply = send(gateway, "x", VALVE)
    assert reply is not None
    assert (reply.error, reply.text) == (CROWDED, "the session cannot accept more stanzas now")
    assert stored(gateway) == 4
    (event,) = gateway.events("system")
    assert (event.name, event.source) == ("crowded", "pump1@gw.example")
    gateway.managed.add(LAMP)
    assert send(gateway, "y", VALVE, sender=LAMP) is None, "each sender has a share"
    assert bodies(received(gateway, VALVE)) == ["0", "1", "2", "3", "y"]
    assert send(gateway, "z", VALVE) is None


@ADDRESSES
def test_limits_of_stored_messages_apply(make_gateway: MakeGateway, to: str) -> None:
    gateway = prepared(make_gateway(Limits(offline_messages_per_source=2)))
    assert [send(gateway, text, to) for text in "01"] == [None, None]
    reply = send(gateway, "2", to)
    assert reply is not None
    assert reply.error == FULL
    assert bodies(received(gateway, VALVE)) == ["0", "1"]
    assert send(gateway, "3", to) is None


@ADDRESSES
def test_without_offline_messages_those_to_a_session_survive_too(
    make_gateway: MakeGateway, to: str
) -> None:
    gateway = prepared(make_gateway(xmpp=Xmpp(offline="refuse")))
    assert send(gateway, "1", to) is None
    crash(gateway)
    gateway.bind(PUMP)
    reply = send(gateway, "2", VALVE_BARE)
    assert reply is not None
    assert reply.error == ("cancel", "service-unavailable")
    come_back(gateway, VALVE)
    assert bodies(received(gateway, VALVE)) == ["1"]


def test_rows_of_a_removed_recipient_hold_back_no_messages_of_others(gateway: Gateway) -> None:
    """Its rows are gone, and their numbers are used again, while its session has them in flight."""
    gateway.add("first")
    gateway.add("second")
    for body in ("1", "2"):
        assert send(gateway, body) is None
    gateway.tx(lambda tx: tx.run("DELETE FROM accounts WHERE name = 'valve'"))
    assert stored(gateway) == 0
    devices = ("first@gw.example/fw", "second@gw.example/fw")
    for full in devices:
        assert send(gateway, "x", full.partition("/")[0]) is None
    for full in devices:
        come_back(gateway, full)
    gateway.end(VALVE)
    for full in devices:
        assert bodies(received(gateway, full)) == ["x"]
