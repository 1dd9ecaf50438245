"""Devices that are handed messages, on `store.Gateway`: who comes, what they get and answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from edge.config.limits import Limits
from edge.engine import sessions
from edge.engine.database import Transaction
from tests.helpers.people import APART, PUMP
from tests.helpers.store import QOS, Gateway, Reply, assured, deliver, new_database, read_element

_APPEAR: Final = "UPDATE temp.sessions SET available = 1, priority = ? WHERE full = ?"

CLIENT: Final = "{jabber:client}"
CAM: Final = "cam@gw.example/fw"

Build = Callable[..., Gateway]
"""Makes a gateway with these limits: pump1, cam and apart, untrusted, are there; valve is not."""


@contextmanager
def building(folder: Path) -> Iterator[Build]:
    """Make gateways, and close them at the end."""
    made: list[Gateway] = []

    def build(**limits: float) -> Gateway:
        gateway = Gateway(new_database(folder), Limits(**limits))  # type: ignore[arg-type]
        made.append(gateway)
        for name in ("pump1", "valve", "cam"):
            gateway.add(name)
        gateway.add("apart", trusted=False)
        for full in (PUMP, CAM, APART):
            gateway.bind(full)
        return gateway

    yield build
    for gateway in made:
        gateway.close()


def states(gateway: Gateway) -> list[str]:
    """How far the messages in all outboxes have come, the oldest first."""
    rows = gateway.connection.execute("SELECT state FROM outbox ORDER BY id").fetchall()
    return [state for (state,) in rows]


class Handed(NamedTuple):
    """An iq by which a device is handed a message, read: `step` is the payload's local name."""

    id: str
    sender: str
    to: str
    step: str
    namespace: str
    msg_id: str | None
    text: str | None
    message: Element | None


def body(text: str) -> str:
    """Write a message with a text."""
    return f"<message xmlns='jabber:client'><body>{text}</body></message>"


def able(gateway: Gateway, full: str, qos: str | None = QOS, priority: int = 0) -> None:
    """Let a session that is bound take messages, with quality of service in a namespace."""
    generation = gateway.generation(full)

    def unit(tx: Transaction) -> None:
        tx.run(_APPEAR, (priority, full))
        sessions.set_qos(tx, generation, qos)
        sender = sessions.sender(tx, generation)
        assert sender is not None
        for turn in gateway.router.context.hooks.available:
            turn(gateway.router.context, tx, sender)

    gateway.tx(unit)


def come(gateway: Gateway, full: str, qos: str | None = QOS, priority: int = 0) -> None:
    """Begin a session that takes messages."""
    gateway.bind(full)
    able(gateway, full, qos, priority)


def read(stanza: bytes) -> Handed:
    """Read the iq by which a message is handed over."""
    iq = read_element(stanza)
    assert (iq.tag, iq.get("type"), len(iq)) == (f"{CLIENT}iq", "set", 1)
    namespace, _, step = iq[0].tag[1:].partition("}")
    message = iq[0][0] if len(iq[0]) else None
    text = None if message is None else message.findtext(f"{CLIENT}body")
    where = iq.attrib["id"], iq.attrib["from"], iq.attrib["to"]
    return Handed(*where, step, namespace, iq[0].get("msgId"), text, message)


def handed(gateway: Gateway, full: str) -> list[Handed]:
    """Return what a session was handed since this was last asked."""
    stanzas = [send.stanza for send in gateway.sends(full)]
    return [read(stanza) for stanza in stanzas if stanza.startswith(b"<iq type='set'")]


def received(one: Handed, namespace: str = QOS) -> str:
    """Write the result that says that a message was received."""
    return (
        f"<iq type='result' id='{one.id}' to='{one.sender}'>"
        f"<received xmlns='{namespace}' msgId='{one.msg_id}'/></iq>"
    )


def done(one: Handed) -> str:
    """Write the empty result."""
    return f"<iq type='result' id='{one.id}' to='{one.sender}'/>"


def refusal(one: Handed, type_: str, condition: str) -> str:
    """Write an error in answer."""
    return (
        f"<iq type='error' id='{one.id}' to='{one.sender}'><error type='{type_}'>"
        f"<{condition} xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
    )


def hand_over(gateway: Gateway, sender: str, msg_id: str, text: str, to: str) -> None:
    """Send an assured message by both of its steps; it is in the outbox then."""
    for xml in (assured(msg_id, body(text), to), deliver(msg_id, to)):
        reply: Reply | None = gateway.send(sender, xml)
        assert reply is not None
        assert reply.error is None, reply
