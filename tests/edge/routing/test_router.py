from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.config.limits import Limits
from edge.engine.dispatch.hooks import new_context
from edge.routing.xmpp import XmppHooks, router
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import PING
from tests.helpers.store import (
    DOMAIN,
    Gateway,
    Reply,
    acknowledged,
    assured,
    deliver,
    log,
    new_database,
    read_reply,
    refused,
    stanza,
)

OWN_PING = f"<ping xmlns='{PING}'/>"
PUMP = "pump1@gw.example/fw"
UNTRUSTED = "untrusted@gw.example/fw"
READING = (
    "<message to='gw.example' id='7'><fields xmlns='urn:xmpp:iot:sensordata'><node nodeId='n'>"
    "<timestamp value='2026-07-01T12:00:00Z'><numeric name='{name}' value='{value}' unit='C'/>"
    "</timestamp></node></fields></message>"
)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    gateway = Gateway(new_database(tmp_path), Limits(unsealed_events=100))
    gateway.add("pump1")
    gateway.add("untrusted", trusted=False)
    yield gateway
    gateway.close()


def ask(gateway: Gateway, payload: str, type_: str, to: str) -> Reply:
    reply = gateway.ask(PUMP, f"<iq type='{type_}' id='i' to='{to}'>{payload}</iq>")
    assert (reply.attrs["id"], reply.attrs["to"], reply.attrs.get("from")) == ("i", PUMP, to)
    return reply


# Requests


def test_ping_and_legacy_session(gateway: Gateway) -> None:
    assert ask(gateway, OWN_PING, "get", DOMAIN).type == "result"
    xml = "<iq type='set' id='s'><session xmlns='urn:ietf:params:xml:ns:xmpp-session'/></iq>"
    reply = gateway.ask(PUMP, xml)
    assert (reply.type, reply.attrs["id"], reply.payload) == ("result", "s", None)


# Refused and ignored stanzas


@pytest.mark.parametrize(
    ("type_", "payload", "to", "error"),
    [
        ("get", "<x xmlns='urn:x'/>", DOMAIN, "cancel/service-unavailable"),
        ("set", "<x xmlns='urn:x'/>", DOMAIN, "cancel/service-unavailable"),
        ("set", OWN_PING, DOMAIN, "cancel/service-unavailable"),
        ("get", OWN_PING, "pump9@gw.example/x", "cancel/service-unavailable"),
        ("get", OWN_PING, "gw.example/nowhere", "cancel/service-unavailable"),
        ("get", OWN_PING, "untrusted@gw.example", "cancel/service-unavailable"),
        ("get", OWN_PING, "other.example", "cancel/remote-server-not-found"),
        ("get", OWN_PING, "@gw.example", "modify/jid-malformed"),
        ("get", OWN_PING, "", "modify/jid-malformed"),
    ],
)
def test_an_iq_without_a_handler_is_refused(
    gateway: Gateway, type_: str, payload: str, to: str, error: str
) -> None:
    assert refused(ask(gateway, payload, type_, to)) == error


@pytest.mark.parametrize(
    "xml",
    [
        "<iq type='get'><ping xmlns='urn:xmpp:ping'/></iq>",
        "<iq id='i'><ping xmlns='urn:xmpp:ping'/></iq>",
        "<iq id='i' type='put'><ping xmlns='urn:xmpp:ping'/></iq>",
        "<iq id='i' type='get'/>",
        "<iq id='i' type='get'><ping xmlns='urn:xmpp:ping'/><ping xmlns='urn:xmpp:ping'/></iq>",
    ],
)
def test_a_malformed_iq_is_a_bad_request(gateway: Gateway, xml: str) -> None:
    reply = gateway.ask(PUMP, xml)
    assert refused(reply) == "modify/bad-request"
    assert reply.attrs.get("id") == stanza(xml).attrs.get("id")


@pytest.mark.parametrize(
    "xml",
    [
        "<iq type='result' id='i'/>",
        "<iq type='error' id='i'><error/></iq>",
        "<presence/>",
        "<presence type='error'/>",
        "<message type='error'><body>x</body></message>",
    ],
)
def test_stanzas_that_need_no_answer_get_none(gateway: Gateway, xml: str) -> None:
    assert gateway.send(PUMP, xml) is None
    assert gateway.events() == []


def test_errors_are_not_answered() -> None:
    error = StanzaError("bad-request")
    for xml in ("<message type='error'/>", "<iq type='error' id='i'/>", "<iq type='result'/>"):
        assert router.refusal(stanza(xml), error, PUMP) == b""
    for xml in ("<message id='m'/>", "<iq type='get' id='m'/>"):
        assert refused(read_reply(router.refusal(stanza(xml), error, PUMP))) == "modify/bad-request"


def test_a_component_has_no_account_features() -> None:
    handlers = new_context(DOMAIN, Limits(), accounts=False).hooks.of(XmppHooks).stanza_handlers
    assert "presence" not in handlers
    assert "message" in handlers


# Plain messages (quality of service 0)


def test_a_log_message_becomes_an_event(gateway: Gateway) -> None:
    message = log("hello", id="e1", type="Notice").replace("<message ", "<message to='gw.example' ")
    assert gateway.send(PUMP, message) is None
    (event,) = gateway.events()
    assert (event.kind, event.source, event.name, event.text) == ("log", PUMP, "e1", "hello")
    assert (event.level, event.qos, event.latency_ms) == ("Notice", 0, 0)


def test_a_sensor_data_message_becomes_readings(gateway: Gateway) -> None:
    assert gateway.send(PUMP, READING.format(name="temperature", value="21.5")) is None
    (event,) = gateway.events("readings")
    assert (event.kind, event.source, event.name) == ("reading", PUMP, "temperature")
    assert (event.value, event.unit, event.qos) == (21.5, "C", 0)
    assert event.tags == {"node": "n", "timestamp": "2026-07-01T12:00:00Z"}
    assert (event.time, event.clock) == (gateway.clock().wall, True)


def test_a_message_may_have_several_payloads(gateway: Gateway) -> None:
    both = "<log xmlns='urn:xmpp:eventlog'><message>x</message></log><body>to people</body>"
    message = READING.format(name="a", value="1").replace("</message>", f"{both}</message>")
    assert gateway.send(PUMP, message) is None
    assert [(event.kind, event.seq) for event in gateway.events()] == [("reading", 1), ("log", 1)]


@pytest.mark.parametrize(
    ("sender", "message", "error", "rule"),
    [
        (UNTRUSTED, READING.format(name="a", value="1"), "cancel/not-allowed", "untrusted"),
        (PUMP, "<message id='7' to='gw.example'><body>x</body></message>", "modify/not-acceptable",
         "unreadable"),
        (PUMP, READING.format(name="a", value="inf"), "modify/not-acceptable", "unreadable"),
        (PUMP, "<message id='7' to='pump9@gw.example'><body>x</body></message>",
         "cancel/service-unavailable", "no_destination"),
        (PUMP, "<message id='7' to='other.example'><body>x</body></message>",
         "cancel/remote-server-not-found", "no_destination"),
    ],
)  # fmt: skip
def test_a_refused_message_is_answered_and_logged(
    gateway: Gateway, sender: str, message: str, error: str, rule: str
) -> None:
    reply = gateway.ask(sender, message)
    assert refused(reply) == error
    assert (reply.attrs["id"], reply.attrs["to"]) == ("7", sender)
    assert reply.attrs.get("from") == stanza(message).attrs.get("to")
    (event,) = gateway.events()
    assert (event.kind, event.name, event.source) == ("limit", rule, sender.partition("/")[0])


def test_a_message_is_refused_if_its_lane_is_full(gateway: Gateway) -> None:
    reading = READING.format(name="a", value="1")
    for _ in range(100):
        assert gateway.send(PUMP, reading) is None
    assert refused(gateway.send(PUMP, reading)) == "wait/resource-constraint"
    (event,) = gateway.events("system")
    assert (event.name, event.tags) == ("unsealed_events", {"limit": "100"})
    assert gateway.send(PUMP, log("another lane has its own")) is None


def test_the_error_text_of_an_unreadable_message_is_limited(gateway: Gateway) -> None:
    reply = gateway.ask(PUMP, READING.format(name="a", value="x" * 50_000))
    assert refused(reply) == "modify/not-acceptable"
    assert 20 < len(reply.text) <= 200


@pytest.mark.parametrize("name", ["\u0440ump1", "pump\u0661", "pump1."])
def test_a_lookalike_is_another_account_without_its_rights(gateway: Gateway, name: str) -> None:
    gateway.add(name, trusted=False)
    gateway.add("valve")
    alike = f"{name}@{DOMAIN}/fw"
    assert gateway.ask(PUMP, assured("1", log("Hi"))).type == "result"
    assert refused(gateway.send(alike, acknowledged(log("Hi")))) == "cancel/not-allowed"
    assert refused(gateway.send(alike, deliver("1"))) == "cancel/item-not-found"
    assert gateway.ask(PUMP, deliver("1")).error is None
    for full in (PUMP, alike):
        gateway.send(full, "<presence/>")
    gateway.sent.clear()
    for to in ("pump1", "PU\u00adMP\u00b9"):
        gateway.send(f"valve@{DOMAIN}/x", f"<message to='{to}@{DOMAIN}'><body>Hi</body></message>")
    assert (len(gateway.sends(PUMP)), len(gateway.sends(alike))) == (2, 0)
