"""Answer packets with reason codes.

Only the features' `mqtt` modules and sessions use this module.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from edge.engine.dispatch.hooks import Context
from edge.errors import ServiceError
from edge.jid import AddressError, AddressReason
from edge.mqtt import PROTOCOL
from edge.mqtt.codec import encode, encode_within
from edge.mqtt.packets import (
    V5,
    Disconnect,
    Property,
    PubAck,
    PubComp,
    PubRec,
    SubAck,
)
from edge.mqtt.reasons import Reason
from edge.routing.mqtt.hooks import Peer

Answer: TypeAlias = type[PubAck] | type[PubRec]

_ADDRESS_REASONS: Final = {
    AddressReason.MALFORMED: Reason.TOPIC_NAME_INVALID,
    AddressReason.REMOTE_DOMAIN: Reason.TOPIC_NAME_INVALID,
    AddressReason.NOBODY: Reason.NOT_AUTHORIZED,
    AddressReason.NO_NODE: Reason.NOT_AUTHORIZED,
    AddressReason.NO_MESSAGES: Reason.NOT_AUTHORIZED,
}


def reason(context: Context, error: ServiceError[Any]) -> Reason:
    """Return the reason code for a service's error."""
    if isinstance(error, AddressError):
        return _ADDRESS_REASONS[error.reason]
    found: Reason = context.hooks.error_mappings[PROTOCOL, type(error)](error)
    return found


def explained(peer: Peer, packet: PubAck | PubRec | SubAck, text: str) -> bytes:
    """Encode an answer with a text that says why a request is refused, as far as the client accepts
    it; return b"" if the answer is larger than the client accepts."""
    if text and peer.explains:
        packet = replace(packet, properties={Property.REASON_STRING: text})
    return encode_within(packet, peer.version, peer.max_packet)


def end(reason: Reason) -> bytes:
    """Return the answer that ends the connection: a DISCONNECT of 5.0. The session of a client of
    3.1.1, which has no such packet, closes the connection without it."""
    return encode(Disconnect(reason), V5)


def refuse(peer: Peer, answer: Answer, id: int, reason: Reason, text: str = "") -> bytes:
    """Return the packet that refuses a message of a client.

    PUBACK and PUBREC of 3.1.1 cannot refuse one. If there is no room now, the client is
    disconnected: it keeps the message and sends it again. For other reasons it is answered as if
    the message was accepted, because it would send it again forever (MQTT 3.1.1, section 3.3.5).
    """
    if peer.version == V5:
        return explained(peer, answer(id, reason), text)
    if reason is Reason.QUOTA_EXCEEDED:
        return end(reason)
    return encode(answer(id), peer.version)


def refuse_release(context: Context, peer: Peer, id: int, error: ServiceError[Any]) -> bytes:
    """Return the packet that answers the release of a message which cannot be delivered.

    PUBCOMP can only say that no message has the identifier. If there is no room now, the client is
    disconnected, and releases the message again later. A message that can never be delivered is a
    dead letter now, and is answered as if it was delivered.
    """
    found = reason(context, error)
    if found is Reason.QUOTA_EXCEEDED:
        return end(found)
    missing = found is Reason.PACKET_IDENTIFIER_NOT_FOUND and peer.version == V5
    return encode(PubComp(id, found) if missing else PubComp(id), peer.version)
