"""Tests of custody's iqs on a real database: every decision with its answer and effect."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any
from xml.sax.saxutils import unescape

import pytest

from edge.config.limits import Limits
from edge.engine.rules import quota
from edge.engine.rules.quota import Usage
from edge.engine.store.events import LOGS
from edge.features.accounts.store import accounts
from edge.features.custody import store as custody
from edge.features.eventlog.rules.levels import LEVELS
from edge.xmpp.namespaces import QOS_ALL
from tests.helpers.store import (
    DOMAIN,
    QOS,
    Gateway,
    MakeGateway,
    Reply,
    acknowledged,
    assured,
    delete_unsealed,
    deliver,
    log,
    refused,
)

PUMP = "pump1@gw.example/fw"
VALVE = "valve1@gw.example/fw"
UNTRUSTED = "untrusted@gw.example/fw"

Build = Callable[..., Gateway]


@pytest.fixture
def build(make_gateway: MakeGateway) -> Build:
    """A function that makes a gateway with limits, two trusted devices and an untrusted one."""

    def build(**limits: Any) -> Gateway:
        gateway = make_gateway(Limits(**limits), accounts_of=("pump1", "valve1"))
        gateway.add("untrusted", trusted=False)
        return gateway

    return build


@pytest.fixture
def gateway(build: Build) -> Gateway:
    return build()


def is_received(reply: Reply | None, msg_id: str, ns: str = QOS) -> bool:
    """Return whether this is a result with `<received/>` for the message."""
    assert reply is not None
    found = reply.payload
    return found is not None and (found.tag, found.get("msgId")) == (f"{{{ns}}}received", msg_id)


def is_empty_result(reply: Reply | None) -> bool:
    assert reply is not None
    return reply.type == "result" and reply.payload is None


def held(gateway: Gateway) -> int:
    return int(gateway.count("SELECT count(*) FROM held"))


def refusals(gateway: Gateway) -> list[tuple[str | None, str | None, float | None]]:
    return [(e.name, e.source, e.value) for e in gateway.events("system") if e.kind == "limit"]


def log_texts(gateway: Gateway) -> list[str | None]:
    return [event.text for event in gateway.events("logs")]


NAMESPACES = pytest.mark.parametrize("ns", QOS_ALL)
DECLARED = " xmlns='jabber:client'"
DECLARATIONS = pytest.mark.parametrize("declared", [DECLARED, ""], ids=["client", "inherited"])


@NAMESPACES
@DECLARATIONS
def test_an_assured_message_is_held_and_delivered_in_its_namespace(
    gateway: Gateway, ns: str, declared: str
) -> None:
    message = log("hello", id="e1").replace(DECLARED, declared)
    offer = gateway.ask(PUMP, assured("m1", message, ns=ns))
    assert is_received(offer, "m1", ns)
    assert offer.attrs == {"type": "result", "id": "a-m1", "to": PUMP, "from": DOMAIN}
    assert held(gateway) == 1
    assert log_texts(gateway) == []
    gateway.clock.service += 2.5
    reply = gateway.ask(PUMP, deliver("m1", ns=ns))
    assert is_empty_result(reply)
    assert reply.attrs == {"type": "result", "id": "d-m1", "to": PUMP, "from": DOMAIN}
    assert held(gateway) == 0
    (event,) = gateway.events("logs")
    assert (event.source, event.name, event.text) == (PUMP, "e1", "hello")
    assert (event.qos, event.latency_ms) == (2, 2500)
    assert refusals(gateway) == []


@NAMESPACES
@DECLARATIONS
def test_an_acknowledged_message_is_delivered_before_its_result(
    gateway: Gateway, ns: str, declared: str
) -> None:
    reply = gateway.ask(PUMP, acknowledged(log("hello").replace(DECLARED, declared), ns=ns))
    assert is_empty_result(reply)
    assert reply.attrs == {"type": "result", "id": "k", "to": PUMP, "from": DOMAIN}
    (event,) = gateway.events("logs")
    assert (event.source, event.text, event.qos, event.latency_ms) == (PUMP, "hello", 1, 0)


def test_repeated_requests_are_answered_again_and_have_one_effect(gateway: Gateway) -> None:
    for _ in range(3):
        assert is_received(gateway.send(PUMP, assured("m1", log("hello"))), "m1")
    usage, total = gateway.tx(lambda tx: custody.usage(tx, "pump1@gw.example"))
    assert usage == total == Usage(held(gateway), quota.charge("m1", log("hello").encode()))
    assert usage[0] == 1
    for _ in range(3):
        assert is_empty_result(gateway.send(PUMP, deliver("m1")))
    assert log_texts(gateway) == ["hello"]
    assert refusals(gateway) == []
    (first,) = gateway.events("system", "repeated")
    assert (first.kind, first.source, first.value) == ("message", "pump1@gw.example", 1.0)
    assert (first.level, first.tags) == ("Informational", {})
    gateway.clock.service += gateway.router.context.limits.refusal_window
    gateway.run_timers()
    _, rest = gateway.events("system", "repeated")
    assert rest.value == 3.0


def test_another_body_under_a_held_key_is_a_conflict(gateway: Gateway) -> None:
    gateway.send(PUMP, assured("m1", log("first")))
    assert refused(gateway.send(PUMP, assured("m1", log("second")))) == "cancel/conflict"
    assert refusals(gateway) == [("msgid_conflict", "pump1@gw.example", 1.0)]
    assert is_empty_result(gateway.send(PUMP, deliver("m1")))
    assert log_texts(gateway) == ["first"]


def test_the_key_is_the_senders_full_jid_and_the_message_id(gateway: Gateway) -> None:
    other_session = "pump1@gw.example/other"
    for sender in (PUMP, other_session, VALVE):
        assert is_received(gateway.send(sender, assured("m1", log(sender))), "m1")
    assert held(gateway) == 3
    assert is_empty_result(gateway.send(other_session, deliver("m1")))
    assert log_texts(gateway) == [other_session]
    assert held(gateway) == 2
    gateway.send(PUMP, assured("m2", log("x")))
    for _ in range(2):
        assert refused(gateway.send(VALVE, deliver("m2"))) == "cancel/item-not-found"
        gateway.send(PUMP, deliver("m2"))


def test_an_untrusted_sender_is_refused(gateway: Gateway) -> None:
    for sender in (UNTRUSTED, "nobody@gw.example/x"):
        for xml in (assured("m1", log("hello")), acknowledged(log("x"))):
            assert refused(gateway.send(sender, xml)) == "cancel/not-allowed"
    assert held(gateway) == 0
    assert log_texts(gateway) == []
    assert [name for name, *_ in refusals(gateway)] == ["untrusted", "untrusted"]


@pytest.mark.parametrize(
    ("to", "error"),
    [
        ("pump9@gw.example", "cancel/service-unavailable"),
        ("gw.example/resource", "cancel/service-unavailable"),
        ("other.example", "cancel/remote-server-not-found"),
        ("sub.gw.example", "cancel/remote-server-not-found"),
        ("@gw.example", "modify/jid-malformed"),
        ("", "modify/jid-malformed"),
    ],
)
def test_a_missing_destination_is_refused_with_its_error(
    gateway: Gateway, to: str, error: str
) -> None:
    assert refused(gateway.send(PUMP, assured("m1", log("hello"), to))) == error
    assert refused(gateway.send(PUMP, acknowledged(log("hello"), to))) == error
    assert held(gateway) == 0
    assert refusals(gateway) == [("no_destination", "pump1@gw.example", 1.0)]


@pytest.mark.parametrize("to", [None, DOMAIN, "GW.Example"])
def test_the_gateway_is_addressed_by_its_domain_or_by_no_address(
    gateway: Gateway, to: str | None
) -> None:
    assert is_received(gateway.send(PUMP, assured("m1", log("hello"), to)), "m1")
    reply = gateway.ask(PUMP, deliver("m1", to))
    assert is_empty_result(reply)
    assert reply.attrs.get("from") == to
    assert log_texts(gateway) == ["hello"]


def test_addresses_of_the_embedded_message_are_ignored(gateway: Gateway) -> None:
    message = log("hello").replace(DECLARED, f"{DECLARED} from='x@y/z' to='a@b'")
    gateway.send(PUMP, assured("m1", message))
    gateway.send(PUMP, deliver("m1"))
    gateway.send(PUMP, acknowledged(message))
    assert [event.source for event in gateway.events("logs")] == [PUMP, PUMP]


def test_a_deliver_without_offer_is_refused(gateway: Gateway) -> None:
    assert refused(gateway.send(PUMP, deliver("m1"))) == "cancel/item-not-found"
    assert refusals(gateway) == [("unknown_msgid", "pump1@gw.example", 1.0)]


def test_a_message_id_may_be_reused_after_its_release(gateway: Gateway) -> None:
    for text in ("first", "second"):
        assert is_received(gateway.send(PUMP, assured("m1", log(text))), "m1")
        assert is_empty_result(gateway.send(PUMP, deliver("m1")))
    assert log_texts(gateway) == ["first", "second"]


def test_a_full_log_refuses_messages_and_a_deliver_succeeds_later(build: Build) -> None:
    gateway = build(unsealed_events=100)
    gateway.send(PUMP, assured("m1", log("waits")))
    for _ in range(100):
        assert is_empty_result(gateway.send(PUMP, acknowledged(log("fill"))))
    for xml in (deliver("m1"), assured("m2", log("x")), acknowledged(log("x"))):
        assert refused(gateway.send(PUMP, xml)) == "wait/resource-constraint"
    assert held(gateway) == 1
    assert refusals(gateway) == [("unsealed_events", "pump1@gw.example", 1.0)]
    gateway.tx(lambda tx: delete_unsealed(tx, LOGS))
    assert is_empty_result(gateway.send(PUMP, deliver("m1")))
    assert log_texts(gateway) == ["waits"]


def test_a_deliver_of_an_untrusted_sender_is_refused_and_dead_lettered(gateway: Gateway) -> None:
    gateway.send(PUMP, assured("m0", log("before")))
    gateway.send(PUMP, deliver("m0"))
    gateway.send(PUMP, assured("m0", log("hello")))
    gateway.tx(lambda tx: tx.run("UPDATE accounts SET trusted = 0 WHERE name = 'pump1'"))
    assert refused(gateway.send(PUMP, deliver("m0"))) == "cancel/not-allowed"
    assert held(gateway) == 0
    # If the answer was lost, a result now would claim that the message was delivered.
    assert refused(gateway.send(PUMP, deliver("m0"))) == "cancel/item-not-found"
    row = gateway.connection.execute("SELECT sender, msg_id, destination, qos, body FROM dead")
    assert row.fetchall() == [(PUMP, "m0", DOMAIN, 2, log("hello").encode())]
    (event,) = gateway.events("system", "dead")
    assert (event.kind, event.source, event.qos) == ("message", PUMP, 2)
    assert event.tags == {"msgId": "m0"}
    assert log_texts(gateway) == ["before"]


def test_unreadable_content_becomes_a_dead_letter(gateway: Gateway) -> None:
    unreadable = "<message xmlns='jabber:client'><body>a  &lt;b&gt; 'c'</body></message>"
    assert is_received(gateway.send(PUMP, assured("m1", unreadable)), "m1")
    for _ in range(2):
        assert is_empty_result(gateway.send(PUMP, deliver("m1")))
    bodies = gateway.connection.execute("SELECT body FROM dead").fetchall()
    assert bodies == [(unreadable.encode(),)], "unchanged"
    (event,) = gateway.events("system", "dead")
    assert event.text == "the message has no log event, no sensor data and no JSON container"
    assert refusals(gateway) == [("unreadable", "pump1@gw.example", 1.0)]


@pytest.mark.parametrize(
    "payload",
    [
        "<assured xmlns='urn:xmpp:qos' msgId='m1'/>",
        f"<assured xmlns='urn:xmpp:qos' msgId='m1'>{log('a')}{log('b')}</assured>",
        "<assured xmlns='urn:xmpp:qos' msgId='m1'><presence xmlns='jabber:client'/></assured>",
        f"<assured xmlns='urn:xmpp:qos'>{log('a')}</assured>",
        f"<assured xmlns='urn:xmpp:qos' msgId=''>{log('a')}</assured>",
        f"<assured xmlns='urn:xmpp:qos' msgId='{'x' * 257}'>{log('a')}</assured>",
        "<deliver xmlns='urn:xmpp:qos'/>",
        f"<deliver xmlns='urn:xmpp:qos' msgId='{'é' * 129}'/>",
        "<acknowledged xmlns='urn:xmpp:qos'/>",
        f"<acknowledged xmlns='urn:xmpp:qos'>{log('a')}{log('b')}</acknowledged>",
        f"<acknowledged xmlns='urn:xmpp:qos'>21.5{log('a')}</acknowledged>",
        f"<assured xmlns='urn:xmpp:qos' msgId='m'>{log('a')}21.5</assured>",
        f"<deliver xmlns='urn:xmpp:qos' msgId='m'>{log('a')}</deliver>",
        "<deliver xmlns='urn:xmpp:qos' msgId='m'>21.5</deliver>",
    ],
)
def test_a_malformed_request_is_a_bad_request(gateway: Gateway, payload: str) -> None:
    reply = gateway.send(PUMP, f"<iq type='set' id='i' to='{DOMAIN}'>{payload}</iq>")
    assert refused(reply) == "modify/bad-request"
    assert held(gateway) == 0
    assert refusals(gateway) == [("malformed", "pump1@gw.example", 1.0)]


@pytest.mark.parametrize("msg_id", ["x" * 256, "é" * 128, "&lt;&amp;"])
def test_a_message_id_may_have_256_bytes(gateway: Gateway, msg_id: str) -> None:
    assert is_received(gateway.send(PUMP, assured(msg_id, log("hello"))), unescape(msg_id))
    assert is_empty_result(gateway.send(PUMP, deliver(msg_id)))


@pytest.mark.parametrize("ns", QOS_ALL)
@pytest.mark.parametrize("name", ["assured", "acknowledged", "deliver"])
def test_a_get_is_not_implemented(gateway: Gateway, ns: str, name: str) -> None:
    xml = f"<iq type='get' id='i'><{name} xmlns='{ns}' msgId='m'>{log('a')}</{name}></iq>"
    assert refused(gateway.send(PUMP, xml)) == "cancel/feature-not-implemented"
    assert held(gateway) == 0


def test_the_messages_of_a_source_are_limited(build: Build) -> None:
    gateway = build(held_messages_per_source=3)
    for number in range(3):
        assert is_received(gateway.send(PUMP, assured(f"m{number}", log("x"))), f"m{number}")
    reply = gateway.ask("pump1@gw.example/other", assured("m3", log("x")))
    assert refused(reply) == "wait/resource-constraint"
    assert reply.text == "the limit held_messages_per_source = 3 is reached"
    (event,) = gateway.events("system")
    assert (event.name, event.source) == ("held_messages_per_source", "pump1@gw.example")
    assert event.tags == {"limit": "3"}
    assert is_received(gateway.send(PUMP, assured("m2", log("x"))), "m2"), "held already"
    assert is_received(gateway.send(VALVE, assured("m0", log("x"))), "m0"), "another source"
    gateway.send(PUMP, deliver("m0"))
    assert is_received(gateway.send(PUMP, assured("m3", log("x"))), "m3")


def test_the_bytes_of_a_source_are_limited_including_keys(build: Build) -> None:
    body = log("x" * 200)
    gateway = build(held_bytes_per_source=4 * quota.charge("m0", body.encode()))
    for number in range(4):
        assert is_received(gateway.send(PUMP, assured(f"m{number}", body)), f"m{number}")
    assert refused(gateway.send(PUMP, assured("m4", body))) == "wait/resource-constraint"
    gateway.send(PUMP, deliver("m0"))
    longer_key = "m4-and-a-longer-key"
    assert refused(gateway.send(PUMP, assured(longer_key, body))) == "wait/resource-constraint"
    assert is_received(gateway.send(PUMP, assured("m4", body)), "m4")
    assert gateway.events("system")[0].name == "held_bytes_per_source"


def test_a_large_message_evicts_as_many_old_ones_as_needed(build: Build) -> None:
    gateway = build(held_messages_per_source=1000, held_bytes_per_source=64 * 1024, held_grace=100)
    for number in range(300):
        gateway.send(PUMP, assured(f"s{number:03}", log("x")))
    gateway.clock.service += 100
    large = assured("large", log("y" * 60_000))
    assert refused(gateway.send(PUMP, large)) == "wait/resource-constraint"
    gateway.clock.service += 0.5
    assert is_received(gateway.send(PUMP, large), "large")
    evicted = gateway.events("system", "evicted")
    assert 32 < len(evicted) < 300
    first = evicted[0]
    assert (first.kind, first.source, first.qos) == ("message", PUMP, 2)
    assert first.tags == {"msgId": "s000", "destination": DOMAIN}
    assert refused(gateway.send(PUMP, deliver("s000"))) == "cancel/item-not-found"
    assert is_empty_result(gateway.send(PUMP, deliver("s299")))
    (_, used), _ = gateway.tx(lambda tx: custody.usage(tx, "pump1@gw.example"))
    assert used <= 64 * 1024


def test_a_held_message_expires(gateway: Gateway) -> None:
    gateway.send(PUMP, assured("m1", log("x")))
    assert gateway.due == gateway.clock.service + gateway.limits.held_ttl
    gateway.clock.service = gateway.due
    gateway.run_timers()
    assert held(gateway) == 0
    (event,) = gateway.events("system", "expired")
    assert event.tags == {"msgId": "m1", "destination": DOMAIN}
    assert refused(gateway.send(PUMP, deliver("m1"))) == "cancel/item-not-found"
    assert log_texts(gateway) == []


def test_an_unreadable_acknowledged_message_becomes_a_dead_letter(gateway: Gateway) -> None:
    broken = log("x", type="Loud")
    assert is_empty_result(gateway.send(PUMP, acknowledged(broken)))
    row = gateway.connection.execute(
        "SELECT sender, msg_id, destination, qos, body, reason FROM dead"
    )
    reason = f"log type 'Loud' is not one of XEP-0337: {', '.join(LEVELS)}"
    assert row.fetchall() == [(PUMP, None, DOMAIN, 1, broken.encode(), reason)]
    assert [event.name for event in gateway.events("system")] == ["dead", "unreadable"]
    assert log_texts(gateway) == []


def test_a_replaced_session_does_nothing(gateway: Gateway) -> None:
    gateway.bind(PUMP)
    late = gateway.work(PUMP, assured("m1", log("late")))
    gateway.bind(PUMP)
    assert gateway.tx(late) == b""
    assert held(gateway) == 0
    assert is_received(gateway.send(PUMP, assured("m1", log("new"))), "m1")


def test_a_removed_device_is_no_longer_trusted(gateway: Gateway) -> None:
    gateway.bind(PUMP)
    gateway.tx(lambda tx: tx.run("DELETE FROM accounts WHERE name = 'pump1'"))
    assert refused(gateway.send(PUMP, assured("m1", log("x")))) == "cancel/not-allowed"
    gateway.tx(lambda tx: accounts.add(tx, "pump1", (), trusted=True))
    assert is_received(gateway.send(PUMP, assured("m1", log("x"))), "m1")


def test_a_latency_is_never_negative(gateway: Gateway) -> None:
    """After a crash, service time continues from its saved value, which may precede `since`."""
    gateway.send(PUMP, assured("m1", log("x")))
    gateway.clock.service -= 30
    gateway.send(PUMP, deliver("m1"))
    (event,) = gateway.events("logs")
    assert event.latency_ms == 0


def readings(count: int) -> str:
    fields = "".join(f"<numeric name='n{number}' value='1'/>" for number in range(count))
    return (
        "<message xmlns='jabber:client'><fields xmlns='urn:xmpp:iot:sensordata'><node nodeId='n'>"
        f"<timestamp value='2026-07-01T12:00:00Z'>{fields}</timestamp></node></fields></message>"
    )


def test_messages_with_many_events_leave_capacity_for_small_ones(build: Build) -> None:
    gateway = build(unsealed_events=100)
    replies = [gateway.ask(PUMP, acknowledged(readings(10))) for _ in range(10)]
    full = ("wait", "resource-constraint")
    assert [reply.error for reply in replies] == [None] * 5 + [full] * 5
    assert is_empty_result(gateway.send(PUMP, acknowledged(readings(1))))


def test_refusing_a_malformed_request_creates_no_reference_cycles(gateway: Gateway) -> None:
    malformed = f"<iq type='set' id='1' to='{DOMAIN}'><assured xmlns='{QOS}'/></iq>"
    gateway.send(PUMP, malformed)
    gc.collect()
    gc.disable()
    try:
        for _ in range(20):
            gateway.send(PUMP, malformed)
        unreachable = gc.collect()
    finally:
        gc.enable()
    assert unreachable < 20, "an error and its frames refer to each other"
