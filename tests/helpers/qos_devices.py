"""Devices to which a test gateway delivers messages: their sessions, requests and answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from edge.engine.sessions import sessions
from edge.engine.store.database import Transaction
from tests.helpers.people import PUMP, UNTRUSTED, VALVE_BARE
from tests.helpers.store import QOS, Gateway, assured, deliver, read_element

CLIENT: Final = "{jabber:client}"
TEXT: Final = "{urn:x-fieldpost:content}text"
"""The element of a message that is no XML but text."""
CAM: Final = "cam@gw.example/fw"

Build = Callable[..., Gateway]
"""Makes a gateway with these limits."""


def provision(gateway: Gateway) -> Gateway:
    """Add pump1, cam and the untrusted apart, which are bound, and valve, which is not."""
    for name in ("pump1", "valve", "cam"):
        gateway.add(name)
    gateway.add("apart", trusted=False)
    for full in (PUMP, CAM, UNTRUSTED):
        gateway.bind(full)
    return gateway


def states(gateway: Gateway) -> list[str]:
    """Return the states of the messages in all outboxes, the oldest first."""
    rows = gateway.connection.execute("SELECT state FROM outbox ORDER BY id").fetchall()
    return [state for (state,) in rows]


class DeviceRequest(NamedTuple):
    """A parsed request that delivers a message; `step` is the local name of its payload."""

    id: str
    sender: str
    to: str
    step: str
    namespace: str
    msg_id: str | None
    text: str | None
    message: Element | None


def message_xml(text: str) -> str:
    return f"<message xmlns='jabber:client'><body>{text}</body></message>"


def make_eligible(gateway: Gateway, full: str, qos: str | None = QOS, priority: int = 0) -> None:
    """Make a bound session eligible for messages, with QoS support in a namespace."""
    generation = gateway.generation(full)

    def unit(tx: Transaction) -> None:
        sessions.set_qos(tx, generation, qos)
        sender = sessions.sender(tx, generation)
        assert sender is not None
        accepts, context = priority >= 0, gateway.router.context
        sessions.set_available(context, tx, sender, accepts=accepts, rank=priority, renewed=True)

    gateway.tx(unit)


def bind_eligible(gateway: Gateway, full: str, qos: str | None = QOS, priority: int = 0) -> None:
    gateway.bind(full)
    make_eligible(gateway, full, qos, priority)


def parse_request(stanza: bytes) -> DeviceRequest:
    iq = read_element(stanza)
    assert (iq.tag, iq.get("type"), len(iq)) == (f"{CLIENT}iq", "set", 1)
    namespace, _, step = iq[0].tag[1:].partition("}")
    message = iq[0][0] if len(iq[0]) else None
    text = None if message is None else message.findtext(f"{CLIENT}body") or message.findtext(TEXT)
    addresses = iq.attrib["id"], iq.attrib["from"], iq.attrib["to"]
    return DeviceRequest(*addresses, step, namespace, iq[0].get("msgId"), text, message)


def take_requests(gateway: Gateway, full: str) -> list[DeviceRequest]:
    """Return the requests sent to a session since the last call."""
    stanzas = [send.stanza for send in gateway.sends(full)]
    return [parse_request(stanza) for stanza in stanzas if stanza.startswith(b"<iq type='set'")]


def received_result(one: DeviceRequest, namespace: str = QOS) -> str:
    return (
        f"<iq type='result' id='{one.id}' to='{one.sender}'>"
        f"<received xmlns='{namespace}' msgId='{one.msg_id}'/></iq>"
    )


def empty_result(one: DeviceRequest) -> str:
    return f"<iq type='result' id='{one.id}' to='{one.sender}'/>"


def error_result(one: DeviceRequest, type_: str, condition: str) -> str:
    return (
        f"<iq type='error' id='{one.id}' to='{one.sender}'><error type='{type_}'>"
        f"<{condition} xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
    )


def send_assured(gateway: Gateway, sender: str, msg_id: str, text: str, to: str) -> None:
    """Send an assured message by both of its steps, so that it is in the outbox."""
    for xml in (assured(msg_id, message_xml(text), to), deliver(msg_id, to)):
        reply = gateway.ask(sender, xml)
        assert reply.error is None, reply


def send_to_valve(gateway: Gateway, text: str, msg_id: str = "m1", sender: str = PUMP) -> None:
    """Send an assured message to the valve's account by both of its steps."""
    send_assured(gateway, sender, msg_id, text, VALVE_BARE)
