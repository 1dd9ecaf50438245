"""Iqs between devices: relaying, refusals and trust."""

from __future__ import annotations

import pytest

from edge.config.options import Xmpp
from tests.helpers.people import CLIENT, PUMP, UNTRUSTED, VALVE, VALVE_BARE, add_contact, received
from tests.helpers.store import DOMAIN, Gateway, MakeGateway, Reply, acknowledged, assured, refused


def query(to: str, type_: str = "get") -> str:
    return f"<iq id='i' type='{type_}' to='{to}' from='pump1@gw.example'><x xmlns='urn:x'/></iq>"


def error(reply: Reply) -> str:
    assert reply.attrs["id"] == "i"
    return refused(reply)


@pytest.mark.parametrize("type_", ["get", "set"])
def test_request_and_answer_are_relayed_between_sessions(gateway: Gateway, type_: str) -> None:
    gateway.bind(VALVE)
    assert gateway.send(PUMP, query("Valve@gw.example/fw", type_)) is None
    (request,) = received(gateway, VALVE)
    assert request.attrib == {"from": PUMP, "to": VALVE, "id": "i", "type": type_}
    assert [child.tag for child in request] == ["{urn:x}x"]
    assert gateway.send(VALVE, f"<iq id='i' type='result' to='{PUMP}'/>") is None
    (answer,) = received(gateway, PUMP)
    assert answer.attrib == {"from": VALVE, "to": PUMP, "id": "i", "type": "result"}
    xml = f"<iq id='i' type='error' to='{PUMP}'><error type='cancel'/></iq>"
    assert gateway.send(VALVE, xml) is None
    (answer,) = received(gateway, PUMP)
    assert answer.find(f"{CLIENT}error") is not None
    gateway.detach(VALVE)
    assert gateway.send(PUMP, query(VALVE)) is None
    assert len(received(gateway, VALVE)) == 1


def test_qos_between_two_sessions_is_relayed(gateway: Gateway) -> None:
    gateway.bind(VALVE)
    assert gateway.send(PUMP, assured("1", "<message/>", VALVE)) is None
    assert gateway.send(PUMP, acknowledged("<message/>", VALVE)) is None
    assert [iq.get("id") for iq in received(gateway, VALVE)] == ["a-1", "k"]
    assert gateway.count("SELECT count(*) FROM held") == 0
    to_bare = gateway.ask(PUMP, acknowledged("<message/>", VALVE_BARE))
    assert to_bare.type == "result", "the gateway delivers messages to bare JIDs itself"


@pytest.mark.parametrize("to", [VALVE, "no@gw.example/x", "pump1@gw.example/other"])
def test_request_without_a_recipient_is_service_unavailable(gateway: Gateway, to: str) -> None:
    reply = gateway.ask(PUMP, query(to))
    assert error(reply) == "cancel/service-unavailable"
    assert (reply.attrs["from"], reply.attrs["to"]) == (to, PUMP)
    assert gateway.events() == []


def test_untrusted_sender_cannot_discover_sessions(gateway: Gateway) -> None:
    gateway.bind(VALVE)
    existing = gateway.ask(UNTRUSTED, query(VALVE))
    missing = gateway.ask(UNTRUSTED, query("no@gw.example/fw"))
    assert error(existing) == error(missing) == "cancel/service-unavailable"
    assert existing.text == missing.text
    assert received(gateway, VALVE) == []
    refusals = [(event.source, event.name) for event in gateway.events()]
    assert refusals == [("apart@gw.example", "untrusted")]
    add_contact(gateway, "valve", "apart@gw.example")
    assert gateway.send(UNTRUSTED, query(VALVE)) is None
    assert len(received(gateway, VALVE)) == 1


def test_untrusted_session_cannot_answer(make: MakeGateway) -> None:
    gateway = make(xmpp=Xmpp(trust="roster"))
    gateway.bind(VALVE)
    answer = f"<iq id='i' type='result' to='{PUMP}'/>"
    assert gateway.send(VALVE, answer) is None
    assert received(gateway, PUMP) == []
    add_contact(gateway, "valve", "pump1@gw.example")
    assert gateway.send(VALVE, answer) is None
    assert len(received(gateway, PUMP)) == 1


@pytest.mark.parametrize(
    "to", ["", f" to='{DOMAIN}'", f" to='{VALVE_BARE}'", f" to='{VALVE}'", " to='@gw.example'"]
)
@pytest.mark.parametrize("type_", ["result", "error"])
def test_answer_without_a_recipient_is_ignored(gateway: Gateway, to: str, type_: str) -> None:
    assert gateway.send(PUMP, f"<iq id='i' type='{type_}'{to}/>") is None
    assert gateway.events() == []
