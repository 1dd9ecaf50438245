"""Messages between devices: routing, the stamped sender, and refusals."""

from __future__ import annotations

import pytest

from edge.config.options import Xmpp
from tests.helpers.people import (
    CLIENT,
    PUMP,
    UNTRUSTED,
    VALVE,
    VALVE_BARE,
    add_contact,
    bodies,
    make_available,
    received,
)
from tests.helpers.store import DOMAIN, Gateway, MakeGateway, Reply, log, refused

SECOND = "valve@gw.example/second"


@pytest.fixture
def roster_trust(make: MakeGateway) -> Gateway:
    return make(xmpp=Xmpp(trust="roster", offline="refuse"))


def message(to: str | None, body: str = "hello", type_: str | None = None) -> str:
    address = "" if to is None else f" to='{to}'"
    kind = "" if type_ is None else f" type='{type_}'"
    return f"<message id='m'{kind}{address}><body>{body}</body></message>"


def error(reply: Reply | None) -> str:
    assert reply is not None
    assert reply.attrs["id"] == "m"
    return refused(reply)


def rules(gateway: Gateway) -> list[tuple[str | None, str | None]]:
    return [(event.source, event.name) for event in gateway.events("system")]


@pytest.mark.parametrize("to", [VALVE, VALVE_BARE, "VALVE@gw.example", "Valve@GW.example/fw"])
def test_message_reaches_the_session_unchanged_with_its_sender(gateway: Gateway, to: str) -> None:
    make_available(gateway, VALVE)
    content = "<body xml:lang='de'>&lt;warm&gt;</body><x xmlns='urn:x' xmlns:p='urn:p' p:a='1'/>"
    attrs = f"id='m' to='{to}' from='pump1@gw.example' xml:lang='de'"
    assert gateway.send(PUMP, f"<message {attrs}>{content}</message>") is None
    (stanza,) = received(gateway, VALVE)
    address, lang = VALVE if "/" in to else VALVE_BARE, "{http://www.w3.org/XML/1998/namespace}lang"
    assert stanza.tag == f"{CLIENT}message"
    assert stanza.attrib == {"from": PUMP, "to": address, "id": "m", lang: "de"}
    assert (stanza[0].get(lang), bodies([stanza])) == ("de", ["<warm>"])
    assert (stanza[1].tag, stanza[1].get("{urn:p}a"), len(stanza)) == ("{urn:x}x", "1", 2)
    assert gateway.events() == []


def test_message_without_an_address_goes_to_the_own_account(gateway: Gateway) -> None:
    make_available(gateway, VALVE)
    make_available(gateway, SECOND, 1)
    assert gateway.send(VALVE, message(None)) is None
    (stanza,) = received(gateway, SECOND)
    assert (stanza.get("from"), stanza.get("to")) == (VALVE, VALVE_BARE)
    assert received(gateway, VALVE) == []


def test_log_event_to_another_device_is_not_logged(gateway: Gateway) -> None:
    make_available(gateway, VALVE)
    gateway.send(PUMP, log("x").replace("<message ", f"<message to='{VALVE}' ", 1))
    assert len(received(gateway, VALVE)) == 1
    assert gateway.events() == []


UNAVAILABLE = "cancel/service-unavailable"


@pytest.mark.parametrize(
    ("to", "type_", "answer", "rule"),
    [
        ("nobody@gw.example", None, UNAVAILABLE, "no_destination"),
        ("nobody@gw.example/x", "chat", UNAVAILABLE, "no_destination"),
        ("nobody@gw.example", "headline", UNAVAILABLE, "no_destination"),
        ("gw.example/resource", None, UNAVAILABLE, "no_destination"),
        ("valve@other.example", None, "cancel/remote-server-not-found", "no_destination"),
        ("@gw.example", None, "modify/jid-malformed", "no_destination"),
        (VALVE, None, UNAVAILABLE, "nobody_there"),
        (VALVE, "groupchat", UNAVAILABLE, "nobody_there"),
        (VALVE_BARE, "groupchat", UNAVAILABLE, "nobody_there"),
        (VALVE, "headline", UNAVAILABLE, "nobody_there"),
        (VALVE_BARE, "headline", None, "nobody_there"),
    ],
)
def test_message_without_a_recipient_is_logged_and_mostly_answered(
    gateway: Gateway, to: str, type_: str | None, answer: str | None, rule: str
) -> None:
    reply = gateway.send(PUMP, message(to, type_=type_))
    assert (reply and error(reply)) == answer
    assert reply is None or (reply.attrs["from"], reply.attrs["to"]) == (to, PUMP)
    assert rules(gateway) == [("pump1@gw.example", rule)]
    assert gateway.count("SELECT count(*) FROM offline") == 0


def test_forged_delay_is_refused(gateway: Gateway) -> None:
    make_available(gateway, VALVE)
    for from_, is_refused in ((DOMAIN, True), ("GW.example", True), ("pump1@gw.example", False)):
        delay = f"<delay xmlns='urn:xmpp:delay' from='{from_}' stamp='2002-09-10T23:08:25Z'/>"
        reply = gateway.send(PUMP, f"<message id='m' to='{VALVE}'>{delay}</message>")
        assert (reply is not None) is is_refused
        assert reply is None or error(reply) == "modify/not-acceptable"
        error_xml = f"<message type='error' to='{VALVE}'>{delay}</message>"
        assert gateway.send(PUMP, error_xml) is None
    assert rules(gateway) == [("pump1@gw.example", "malformed")]
    assert [stanza.get("type") for stanza in received(gateway, VALVE)] == [None, "error"]


@pytest.mark.parametrize("type_", [None, "normal", "chat", "groupchat", "headline"])
@pytest.mark.parametrize("available", [True, False])
def test_unreachable_device_seems_not_to_exist(
    gateway: Gateway, type_: str | None, available: bool
) -> None:
    if available:
        make_available(gateway, VALVE)
    for known, unknown in ((VALVE_BARE, "no@gw.example"), (VALVE, "no@gw.example/fw")):
        existing = gateway.ask(UNTRUSTED, message(known, type_=type_))
        missing = gateway.ask(UNTRUSTED, message(unknown, type_=type_))
        assert error(existing) == error(missing) == "cancel/service-unavailable"
        assert existing.text == missing.text
    names = ["untrusted", "no_destination"]
    assert rules(gateway) == [("apart@gw.example", name) for name in names]
    assert gateway.count("SELECT count(*) FROM offline") == 0
    assert not available or received(gateway, VALVE) == []


def test_roster_trust_excludes_all_others(roster_trust: Gateway) -> None:
    make_available(roster_trust, VALVE)
    assert error(roster_trust.send(PUMP, message(VALVE))) == "cancel/service-unavailable"
    add_contact(roster_trust, "valve", "pump1@gw.example", "from")
    assert roster_trust.send(PUMP, message(VALVE)) is None
    assert len(received(roster_trust, VALVE)) == 1


def test_message_is_refused_without_an_offline_store(roster_trust: Gateway) -> None:
    add_contact(roster_trust, "valve", "pump1@gw.example", "from")
    assert error(roster_trust.send(PUMP, message(VALVE_BARE))) == "cancel/service-unavailable"
    assert rules(roster_trust) == [("pump1@gw.example", "nobody_there")]
    assert roster_trust.count("SELECT count(*) FROM offline") == 0


def test_error_reaches_the_session_that_may_have_caused_it(gateway: Gateway) -> None:
    make_available(gateway, VALVE)
    xml = f"<message type='error' id='m' to='{PUMP}'><error type='cancel'/></message>"
    assert gateway.send(VALVE, xml) is None
    (stanza,) = received(gateway, PUMP)
    assert (stanza.get("from"), stanza.get("type")) == (VALVE, "error")


def test_error_of_an_untrusted_device_reaches_only_possible_senders(gateway: Gateway) -> None:
    xml = f"<message type='error' id='m' to='{PUMP}'><error type='cancel'/></message>"
    assert gateway.send(UNTRUSTED, xml) is None
    assert len(received(gateway, PUMP)) == 1, "the pump may reach the device"
    assert gateway.send(PUMP, xml.replace(PUMP, UNTRUSTED)) is None
    assert received(gateway, UNTRUSTED) == [], "the pump cannot have got a message"


MISSING = ["no@gw.example", "a@other.example", "@gw.example"]


@pytest.mark.parametrize("to", [None, DOMAIN, VALVE, VALVE_BARE, "pump1@gw.example", *MISSING])
def test_undeliverable_error_is_never_answered(gateway: Gateway, to: str | None) -> None:
    assert gateway.send(PUMP, message(to, type_="error")) is None
    assert received(gateway, PUMP) == []
    assert gateway.count("SELECT count(*) FROM offline") == 0
    assert rules(gateway) == []


def test_component_has_no_accounts(make_gateway: MakeGateway) -> None:
    component = make_gateway(accounts=False)
    assert error(component.send(PUMP, message(VALVE_BARE))) == "cancel/service-unavailable"
