"""The messages that clients are sent at QoS 1 and 2, and their answers to them: PUBACK, PUBREC and
PUBCOMP (MQTT 5.0, sections 3.4, 3.5, 3.7 and 4.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from edge.engine.dispatch.encoding import unpack
from edge.engine.dispatch.hooks import Context, Hooks, Work
from edge.engine.rules.access import Sender
from edge.engine.store.database import Transaction
from edge.features.outbox import rules, service
from edge.features.outbox.service import (
    MAX_ERROR_TEXT,
    DeliveryFailure,
    DeviceError,
    FailureReason,
    OutboxError,
    QosRequest,
    RequestKind,
)
from edge.mqtt import PROTOCOL
from edge.mqtt.codec import encode
from edge.mqtt.packets import (
    MAX_ID,
    V5,
    Property,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
)
from edge.mqtt.reasons import FAILURE, Reason
from edge.routing.mqtt import MqttHooks, Peer

REQUESTS: Final[dict[type, RequestKind]] = {
    PubAck: RequestKind.ACKNOWLEDGED,
    PubRec: RequestKind.ASSURED,
    PubComp: RequestKind.DELIVER,
}
"""The request that a packet answers."""


def answered(context: Context, packet: PubAck | PubRec | PubComp, peer: Peer) -> Work:
    """Record a client's answer. A PUBREC for no message that was sent is answered nevertheless: the
    client keeps its identifier in use until it is released."""
    request, id, reason = REQUESTS[type(packet)], packet.id, packet.reason

    def work(tx: Transaction, sender: Sender) -> bytes:
        failure = _failure(packet) if reason >= FAILURE else None
        is_known = service.handle_answer_by_id(context, tx, sender, request, id, failure)
        if is_known or request is not RequestKind.ASSURED or failure is not None:
            return b""
        if service.is_released_by_id(tx, sender, id):
            return encode(PubRel(id), peer.version)
        missing = Reason.PACKET_IDENTIFIER_NOT_FOUND if peer.version == V5 else 0
        return encode(PubRel(id, missing), peer.version)

    return work


def _failure(packet: PubAck | PubRec | PubComp) -> DeliveryFailure:
    text = str(packet.properties.get(Property.REASON_STRING, ""))[:MAX_ERROR_TEXT]
    condition = Reason(packet.reason).name.lower().replace("_", "-")
    error = DeviceError(condition, "cancel", text)
    return DeliveryFailure(FailureReason.DEVICE_ERROR, text or condition, error, is_final=True)


def request(
    context: Context, request: QosRequest, now: Callable[[], float]
) -> Publish | PubRel | None:
    """Return the packet of a request; `None` if MQTT has none for the message."""
    id = rules.message_id(request.row, MAX_ID)
    if request.content is None:
        return PubRel(id)
    if not request.content.kind:
        return None  # a message from one session to another
    message = unpack(context, request.content)
    make = context.hooks.of(MqttHooks).packets.get(type(message))
    publication = None if make is None else make(context, message, now)
    if not isinstance(publication, Publish):
        return None
    qos = 2 if request.request is RequestKind.ASSURED else 1
    return replace(publication, qos=qos, dup=request.is_repeated, id=id)


def discard(context: Context, request: QosRequest, tx: Transaction, sender: Sender) -> bytes:
    """Finish a message that its session cannot be sent."""
    service.discard(context, tx, sender, request.row)
    return b""


def register_for_accounts(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    mqtt = hooks.of(MqttHooks)
    for packet in REQUESTS:
        mqtt.add(mqtt.handlers, packet, answered)
    mqtt.add(mqtt.packets, QosRequest, request)
    mqtt.add(mqtt.discards, QosRequest, discard)
    hooks.error_mapping(PROTOCOL, OutboxError, lambda _error: Reason.NOT_AUTHORIZED)
