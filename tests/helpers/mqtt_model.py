"""Sessions of MQTT on a gateway without sockets, for the property tests that the toy protocol has.

The models of devices in these tests speak the lines of the toy (`tests.toy.requests`). Here, lines
become packets of a version of MQTT and their bytes on the way to the handlers, and the packets of
the gateway become lines. Packet identifiers are as few as the toy's, so that they are soon used
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final
from unittest.mock import patch

from edge.engine.dispatch.hooks import Context, Work
from edge.engine.rules.access import Sender
from edge.engine.sessions import sessions
from edge.engine.store.database import SentMessage, Transaction
from edge.features.custody.rules import Reason as CustodyReason
from edge.features.outbox import mqtt as outbox
from edge.mqtt.codec import PacketParser, encode
from edge.mqtt.packets import (
    V5,
    V311,
    Fault,
    Packet,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
)
from edge.mqtt.reasons import Reason
from edge.routing.mqtt import MqttHooks, Peer
from tests.helpers.store import DOMAIN, Gateway
from tests.toy import model
from tests.toy.requests import DECLARED, IDS

VERSIONS: Final = {"mqtt 3.1.1": V311, "mqtt 5.0": V5}
"""The versions by the names that the model gives their protocols."""

MAX_BYTES: Final = 1 << 20
SERVICE: Final = f"pubsub.{DOMAIN}"

_DISCONNECT: Final = b"\xe0"
"""The first byte of an answer that ends the connection."""

_ANSWERS: Final[Mapping[str, type[PubAck] | type[PubRec] | type[PubComp]]] = {
    "acknowledged": PubAck,
    "received": PubRec,
    "completed": PubComp,
}
_NAMES: Final[Mapping[type[Packet], str]] = {
    PubAck: "acknowledged",
    PubRec: "received",
    PubComp: "completed",
    PubRel: "release",
    SubAck: "subscribed",
    UnsubAck: "unsubscribed",
}


def add_mqtt(gateway: Gateway) -> None:
    """Add both versions to a gateway, whose sessions may then speak them."""
    context = gateway.router.context
    for name, version in VERSIONS.items():
        gateway.routes[name] = partial(_work, context, version)
        for message in context.hooks.of(MqttHooks).packets:
            context.hooks.encode(name, message, partial(_encode, gateway, version))


def bind(gateway: Gateway, full: str, seconds: float, protocol: str) -> None:
    """Bind a session of a version of MQTT, which gets items and no messages of its account."""
    declared = DECLARED._replace(qos="mqtt", durable=seconds)
    gateway.bind(full, declared, protocol)
    generation, context = gateway.generation(full), gateway.router.context

    def unit(tx: Transaction) -> None:
        sender = sessions.sender(tx, generation)
        assert sender is not None
        sessions.set_available(context, tx, sender, accepts=False)
        sessions.run_ready_hooks(context, tx, sender)

    gateway.tx(unit)


def _work(context: Context, version: int, line: str) -> Work:
    packet = _parse(encode(_packet(line), version), version, from_client=True)
    handler = context.hooks.of(MqttHooks).handlers[type(packet)]
    work = handler(context, packet, Peer(version))
    assert callable(work)

    def run(tx: Transaction, sender: Sender) -> bytes:
        answer = work(tx, sender)
        if answer[:1] == _DISCONNECT:  # which the session of 3.1.1 does not send
            return model.line("end", Reason(answer[2]).name).encode()
        return _line(_parse(answer, version)) if answer else b""

    return run


def _encode(gateway: Gateway, version: int, context: Context, message: SentMessage) -> bytes:
    hooks = context.hooks.of(MqttHooks)
    with patch.object(outbox, "MAX_ID", IDS):
        packet = hooks.packet(context, message, lambda: gateway.clock.service)
    assert packet is not None
    return _line(_parse(encode(packet, version), version))


def _parse(data: bytes, version: int, *, from_client: bool = False) -> Packet:
    (packet,) = PacketParser(MAX_BYTES, version, from_client=from_client).feed(data)
    assert not isinstance(packet, Fault), packet
    return packet


def _packet(line: str) -> Packet:
    """Return the packet of a line of a client."""
    name, *rest = model.words(line.encode())
    if name == "publish":
        id, qos, address, _content_type, payload = rest
        topic = address.removeprefix(f"{SERVICE}/")
        return Publish(topic, payload.encode(), int(qos), id=int(id) if qos != "0" else 0)
    if name == "release":
        return PubRel(int(rest[0]))
    if name == "subscribe":
        return Subscribe(1, (Subscription(rest[0], int(rest[1])),))
    if name == "unsubscribe":
        return Unsubscribe(1, (rest[0],))
    return _ANSWERS[name](int(rest[0]))


def _line(packet: Packet) -> bytes:
    """Return the line of a packet of the gateway."""
    if isinstance(packet, Publish):
        topic, payload = f"{SERVICE}/{packet.topic}", packet.payload.decode()
        return model.line("publish", packet.id, packet.qos, topic, "", payload).encode() + b"\n"
    name = _NAMES[type(packet)]
    if isinstance(packet, SubAck | UnsubAck):
        assert all(reason < Reason.UNSPECIFIED_ERROR for reason in packet.reasons)
        return model.line(name).encode()
    assert isinstance(packet, PubAck | PubRec | PubRel | PubComp)
    if packet.reason == Reason.QUOTA_EXCEEDED:
        return model.line("refused", "publish", packet.id, CustodyReason.NO_ROOM.name).encode()
    assert packet.reason < Reason.UNSPECIFIED_ERROR, packet
    return model.line(name, packet.id).encode()
