"""The error message that follows the answer to a message whose content cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from xml.etree.ElementTree import Element

import pytest

from edge.config.limits import Limits
from edge.config.options import Xmpp
from tests.helpers.people import make_available
from tests.helpers.store import (
    DOMAIN,
    QOS,
    STANZAS,
    Gateway,
    MakeGateway,
    acknowledged,
    assured,
    deliver,
)

PUMP = "pump1@gw.example/fw"
OTHER = "pump1@gw.example/other"
CLIENT = "{jabber:client}"
ODD = (
    "<message xmlns='jabber:client' id='e7'><log xmlns='urn:xmpp:eventlog' type='Event'>"
    "<message>started</message></log></message>"
)
REASON = (
    "log type 'Event' is not one of XEP-0337: Debug, Informational, Notice, Warning, Error,"
    " Critical, Alert, Emergency"
)


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Gateway:
    return make_gateway(accounts_of=("pump1", "valve1"))


def release(gateway: Gateway, full: str = PUMP, to: str = DOMAIN) -> None:
    """Send an assured message with unreadable content; each request is answered with a result."""
    assert gateway.ask(full, assured("m1", ODD, to)).type == "result"
    assert gateway.ask(full, deliver("m1", to)).type == "result"


def send_acknowledged(gateway: Gateway, full: str = PUMP, to: str = DOMAIN) -> None:
    assert gateway.ask(full, acknowledged(ODD, to)).type == "result"


SENDS = pytest.mark.parametrize(
    ("send", "mark"),
    [(send_acknowledged, ("acknowledged", None)), (release, ("assured", "m1"))],
    ids=["acknowledged", "assured"],
)
Send = Callable[[Gateway], None]


def reports(gateway: Gateway, full: str = PUMP) -> list[Element]:
    """Return the error messages that a session was sent, which it then acknowledges."""
    return [one for one in gateway.elements(full) if one.tag == f"{CLIENT}message"]


def text_of(report: Element) -> str:
    return report.findtext(f"{CLIENT}error/{{{STANZAS}}}text", "")


@SENDS
def test_the_sender_gets_the_error_of_level_0(
    gateway: Gateway, send: Send, mark: tuple[str, str | None]
) -> None:
    send(gateway)
    (report,) = reports(gateway)
    assert report.attrib == {"type": "error", "from": DOMAIN, "to": PUMP, "id": "e7"}
    reply = gateway.ask(PUMP, ODD.replace(" xmlns='jabber:client'", f" to='{DOMAIN}'", 1))
    assert reply.attrs == report.attrib
    error = report.find(f"{CLIENT}error")
    assert error is not None
    assert (error.get("type", ""), error[0].tag.partition("}")[2]) == reply.error
    assert text_of(report) == reply.text == REASON
    name, msg_id = mark
    found = report.find(f"{{{QOS}}}{name}")
    assert found is not None
    assert found.get("msgId") == msg_id
    assert gateway.count("SELECT count(*) FROM dead") == 1


def test_a_repeated_deliver_is_not_reported_again(gateway: Gateway) -> None:
    release(gateway)
    assert gateway.ask(PUMP, deliver("m1")).type == "result"
    assert len(reports(gateway)) == 1


@SENDS
def test_the_report_waits_for_a_sender_that_is_away(
    gateway: Gateway, send: Send, mark: tuple[str, str | None]
) -> None:
    make_available(gateway, PUMP)
    send(gateway)
    assert gateway.count("SELECT count(*) FROM offline") == 1, "until it is acknowledged"
    gateway.sends(PUMP)
    gateway.end(PUMP)
    gateway.bind(OTHER)
    gateway.send(OTHER, "<presence/>")
    (report,) = reports(gateway, OTHER)
    assert text_of(report) == REASON
    assert report.find("{urn:xmpp:delay}delay") is not None
    assert gateway.count("SELECT count(*) FROM offline") == 0


def test_the_report_follows_a_repeated_deliver_of_a_device_that_only_sends(
    gateway: Gateway,
) -> None:
    make_available(gateway, PUMP)
    release(gateway)
    gateway.sends(PUMP)
    gateway.end(PUMP)
    gateway.bind(PUMP)
    gateway.send(
        PUMP, f"<message to='{PUMP.partition('/')[0]}' type='chat'><body>x</body></message>"
    )
    for expected in (1, 0):
        assert gateway.ask(PUMP, deliver("m1")).type == "result"
        assert len(reports(gateway)) == expected
    assert gateway.count("SELECT count(*) FROM offline") == 1, "the chat message still waits"


def test_reports_are_bounded(make_gateway: MakeGateway) -> None:
    """A report that exceeds the limits of stored messages is only sent."""
    gateway = make_gateway(Limits(offline_messages_per_source=1), accounts_of=("pump1",))
    make_available(gateway, PUMP)
    for _ in range(3):
        send_acknowledged(gateway)
    assert gateway.count("SELECT count(*) FROM offline") == 1
    assert len(reports(gateway)) == 3
    assert gateway.count("SELECT count(*) FROM offline") == 0


def test_a_forged_delay_to_an_account_is_reported(gateway: Gateway) -> None:
    forged = ODD.replace("<log", f"<delay xmlns='urn:xmpp:delay' from='{DOMAIN}'/><log", 1)
    to = "valve1@gw.example"
    assert gateway.ask(PUMP, acknowledged(forged, to)).type == "result"
    assert gateway.ask(PUMP, assured("m1", forged, to)).type == "result"
    assert gateway.ask(PUMP, deliver("m1", to)).type == "result"
    found = reports(gateway)
    assert [one.get("from") for one in found] == [to, to]
    assert {text_of(one) for one in found} == {"a <delay/> from the gateway is not allowed"}


@SENDS
def test_a_component_sends_the_report_to_the_session(
    make_gateway: MakeGateway, send: Callable[[Gateway, str], None], mark: tuple[str, str | None]
) -> None:
    user = "pump1@plant.example/fw"
    gateway = make_gateway(xmpp=Xmpp(trusted_domains=["plant.example"]), accounts=False)
    send(gateway, user)
    (report,) = reports(gateway, user)
    assert (report.get("to"), text_of(report)) == (user, REASON)
