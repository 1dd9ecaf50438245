"""A session of MQTT on its connection; the state that outlives the connection is in the store.

Requests of the client become units of work by the handlers of the features. Messages become packets
within what the client accepts: its version, its maximum packet size, and its topic aliases.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from edge.engine.dispatch.outputs import EndReason
from edge.engine.sessions import sessions
from edge.engine.store.database import SentMessage
from edge.errors import StoreError
from edge.mqtt import PROTOCOL
from edge.mqtt.codec import encode
from edge.mqtt.fields import read_varint
from edge.mqtt.packets import (
    MAX_PACKET,
    V5,
    VERSION_NAMES,
    Connect,
    Packet,
    Properties,
    Property,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Unsubscribe,
)
from edge.mqtt.reasons import Reason
from edge.routing.mqtt import MqttHooks, Peer, answers
from edge.server.mqtt import terms
from edge.server.mqtt.aliases import ReceivedAliases, SentAliases, UnknownAlias
from edge.server.mqtt.ends import end_reason, store_reason
from edge.server.mqtt.traffic import Traffic
from edge.server.server_context import ServerContext
from edge.server.session import Session, SessionConnection, SessionRegistry
from edge.server.write_tracker import Token

_DISCONNECT: Final = 0xE0
"""The first byte of a DISCONNECT."""

_PUBREC: Final = 0x50
_PUBCOMP: Final = 0x70

OVERHEAD: Final = 150
"""Bytes of memory of a filter or a user property beside its text; a packet may have thousands."""


class MqttSession(Session[Packet]):
    """A session of MQTT.

    Args:
        connect: the packet that has asked for it.
        traffic: counts the publications.
        fail: sends a DISCONNECT with a reason, and closes the connection.
    """

    protocol = PROTOCOL

    __slots__ = (
        "_aliases",
        "_early",
        "_end_connection",
        "_hooks",
        "_peer",
        "_receive_maximum",
        "_received",
        "_refused",
        "_traffic",
        "_unreleased",
    )

    def __init__(
        self,
        context: ServerContext,
        registry: SessionRegistry,
        generation: int,
        account: str,
        full: str,
        source: str,
        connect: Connect,
        traffic: Traffic,
        fail: Callable[[Reason], None],
    ) -> None:
        super().__init__(context, registry, generation, account, full, source)
        properties, limits = connect.properties, context.settings.limits
        self._end_connection = fail
        self._traffic = traffic
        self._hooks = context.engine.hooks.of(MqttHooks)
        explains = bool(properties.get(Property.REQUEST_PROBLEM_INFORMATION, 1))
        max_packet = properties.get(Property.MAXIMUM_PACKET_SIZE, MAX_PACKET)
        self._peer = Peer(connect.version, explains, max_packet)
        self._receive_maximum = terms.receive_maximum(limits)  # as in CONNACK
        self._received = ReceivedAliases(limits.node_bytes)
        most = properties.get(Property.TOPIC_ALIAS_MAXIMUM, 0)
        self._aliases = SentAliases(most) if most else None
        self._early: list[bytes] = []
        # identifiers of received messages at QoS 2
        self._unreleased: set[int] = set()
        self._refused: set[int] = set()

    # Receiving

    def handle(self, packet: Packet) -> None:
        """Submit the unit of work of a packet; end the connection if the packet violates the
        protocol."""
        if isinstance(packet, Publish):
            self._traffic.publications_received += 1
            try:
                packet = self._admit(packet)
            except UnknownAlias:
                self._fail(Reason.TOPIC_ALIAS_INVALID)
                return
        elif self._refused and isinstance(packet, PubRel) and packet.id in self._refused:
            self._refused.discard(packet.id)
            missing = PubComp(packet.id, Reason.PACKET_IDENTIFIER_NOT_FOUND)
            self.in_order(partial(self.answer, encode(missing, self._peer.version)))
            return
        handler = self._hooks.handlers.get(type(packet))
        if handler is None:
            self._fail(Reason.PROTOCOL_ERROR)
            return
        work = handler(self._context.engine, packet, self._peer)
        if isinstance(work, bytes):
            self.in_order(partial(self.answer, work))
        else:
            self.submit(packet, work, _size(packet))

    def _admit(self, packet: Publish) -> Publish:
        if packet.properties:
            packet = self._received.resolve(packet)
        if packet.qos == 2 and self._peer.version == V5:
            self._refused.discard(packet.id)
            self._unreleased.add(packet.id)
            if len(self._unreleased) > self._receive_maximum:
                self._fail(Reason.RECEIVE_MAXIMUM_EXCEEDED)
        return packet

    def refusal(self, packet: Packet, error: StoreError) -> bytes:
        """Return the answer to a packet whose unit of work has failed. What cannot be refused in
        the client's version ends the connection, so that the client repeats it."""
        peer, reason = self._peer, store_reason(error)
        if isinstance(packet, Publish) and packet.qos and reason is Reason.QUOTA_EXCEEDED:
            return answers.refuse(peer, PubRec if packet.qos == 2 else PubAck, packet.id, reason)
        if isinstance(packet, Subscribe):
            is_full = reason is Reason.QUOTA_EXCEEDED  # SUBACK has no reason for a busy server
            failed = reason if is_full else Reason.UNSPECIFIED_ERROR
            return encode(SubAck(packet.id, (failed,) * len(packet.subscriptions)), peer.version)
        if isinstance(packet, Publish) and not packet.qos:
            return b""
        return answers.end(reason)

    def answer(self, answer: bytes) -> None:
        """Send the answer to a packet; a DISCONNECT ends the connection."""
        if not answer or self.ended:
            return
        kind = answer[0]
        if kind == _DISCONNECT:
            self._fail(Reason(answer[2]))
            return
        is_refusal = kind == _PUBREC and answer[1] > 2
        if is_refusal or (self._unreleased and kind == _PUBCOMP):
            _length, at = read_varint(answer, 1, len(answer))
            id = int.from_bytes(answer[at : at + 2])
            self._unreleased.discard(id)
            if is_refusal:
                self._refuse_release(id)
        self._write(answer)

    def _refuse_release(self, id: int) -> None:
        """Remember a refused message, for clients that release it all the same, as paho-mqtt does:
        an earlier message with this identifier may have been released."""
        if len(self._refused) == terms.receive_maximum(self._context.settings.limits):
            self._refused.pop()
        self._refused.add(id)

    def _fail(self, reason: Reason) -> None:
        self.set_end_name(reason.name.lower())
        self._end_connection(reason)

    # Sending

    def encode(self, message: SentMessage) -> bytes:
        """Return the packet of a message, or empty bytes if MQTT has none for its type or cannot
        carry it, it has expired, or it is larger than the client accepts; a stored one is then
        finished."""
        engine, store = self._context.engine, self._context.store
        packet = self._hooks.packet(engine, message, store.service_time)
        if packet is not None:
            if self._aliases is not None:
                packet = self._aliases.shorten(packet)
            data = b""
            with suppress(ValueError):  # XMPP carries a content type of any length
                data = self._encode(packet)
            if data and len(data) <= self._peer.max_packet:
                if isinstance(packet, Publish):
                    self._traffic.publications_sent += 1
                return data
        if (discard := self._hooks.discards.get(type(message))) is not None:
            work = partial(discard, engine, message)
            store.submit(sessions.guarded(work, self.generation), lambda _outcome: None)
        return b""

    def _encode(self, packet: Packet) -> bytes:
        version = self._peer.version
        last = self._hooks.encoded.get(version)
        if last is not None and last[0] is packet:
            return last[1]
        data = encode(packet, version)
        if isinstance(packet, Publish):
            self._hooks.encoded[version] = packet, data
        return data

    def _send(self, data: bytes, token: Token) -> None:
        if self._aliases is not None:
            self._aliases.confirm()
        super()._send(data, token)

    def _write(self, data: bytes) -> None:
        """Write to the connection; before the CONNACK, which must be first, keep the data."""
        if self.connection is None and not self.ended:
            self._early.append(data)
        else:
            super()._write(data)

    def attach(self, connection: SessionConnection) -> None:
        """Begin on a connection, after the CONNACK."""
        super().attach(connection)
        for data in self._early:
            self._write(data)
        self._early.clear()

    @property
    def version(self) -> str:
        """The version of its protocol."""
        return VERSION_NAMES[self._peer.version]

    def end_name(self, reason: EndReason) -> str:
        """Return the name of a reason in the event log."""
        return end_reason(reason).name.lower()


def _size(packet: Any) -> int:
    """Return the bytes that a request holds, for the limits of requests in flight."""
    size = 0
    if isinstance(packet, Publish):
        size = len(packet.topic) + len(packet.payload)
    elif isinstance(packet, Subscribe):
        size = sum(OVERHEAD + len(one.filter) for one in packet.subscriptions)
    elif isinstance(packet, Unsubscribe):
        size = sum(OVERHEAD + len(filter) for filter in packet.filters)
    return size + _properties_size(packet.properties) if packet.properties else size


def _properties_size(properties: Properties) -> int:
    texts = sum(len(value) for value in properties.values() if isinstance(value, str | bytes))
    pairs = properties.get(Property.USER, ())
    return texts + sum(OVERHEAD + len(name) + len(value) for name, value in pairs)
