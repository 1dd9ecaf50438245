"""The messages that clients publish, at each level: PUBLISH and PUBREL (MQTT 5.0, sections 3.3, 3.6
and 4.3)."""

from __future__ import annotations

from typing import Final

from edge.engine.dispatch import destinations, item_attributes
from edge.engine.dispatch.addresses import AddressKind, pubsub_service
from edge.engine.dispatch.hooks import Context, Destination, Hooks, Message, Work
from edge.engine.dispatch.item_attributes import ItemAttributes
from edge.engine.log import refusals
from edge.engine.rules.access import Sender
from edge.engine.store.database import Transaction
from edge.errors import ServiceError
from edge.features.custody import service
from edge.features.custody.rules import Reason as CustodyReason
from edge.features.custody.service import CustodyError
from edge.jid import Jid
from edge.mqtt import PROTOCOL
from edge.mqtt.codec import encode_success
from edge.mqtt.packets import PubAck, PubComp, Publish, PubRec, PubRel
from edge.mqtt.reasons import Reason
from edge.routing.mqtt import MqttHooks, Peer, answers, publications

REASONS: Final = {
    CustodyReason.CONFLICT: Reason.PACKET_IDENTIFIER_IN_USE,
    CustodyReason.NOT_ALLOWED: Reason.NOT_AUTHORIZED,
    CustodyReason.NO_ROOM: Reason.QUOTA_EXCEEDED,
    CustodyReason.NOT_HELD: Reason.PACKET_IDENTIFIER_NOT_FOUND,
    CustodyReason.ELSEWHERE: Reason.PACKET_IDENTIFIER_NOT_FOUND,
}
"""The reason code for each reason of `CustodyError`."""


def publish(context: Context, packet: Publish, peer: Peer) -> Work:
    """Publish a message: at QoS 0 at once and without an answer, at QoS 1 before the PUBACK; at QoS
    2 the PUBREC says that it is in custody."""
    payload, qos, id, properties = packet.payload, packet.qos, packet.id, packet.properties
    attributes = publications.attributes(qos, packet.retain, properties)
    target = (
        context.hooks.destinations[AddressKind.NODE],
        Jid("", pubsub_service(context.domain), packet.topic),
    )
    if qos == 0:
        return _publish_once(context, *target, payload, attributes)
    act, answer = (service.offer, PubRec) if qos == 2 else (service.acknowledge, PubAck)
    msg_id = str(id) if qos == 2 else ""
    fault = item_attributes.find_fault(attributes) if properties else ""
    request = service.request(target, payload, None, msg_id, b"", attributes)

    def work(tx: Transaction, sender: Sender) -> bytes:
        if fault:
            refusals.log(context, tx, sender, destinations.UNFIT, text=fault)
            failure = Reason.IMPLEMENTATION_SPECIFIC_ERROR
            return answers.refuse(peer, answer, id, failure, fault)
        try:
            act(context, tx, sender, request)
        except ServiceError as error:
            reason = answers.reason(context, error)
            return answers.refuse(peer, answer, id, reason, error.text)
        return encode_success(answer, id)

    return work


def _publish_once(
    context: Context,
    destination: Destination,
    to: Jid,
    payload: bytes,
    attributes: ItemAttributes,
) -> Work:
    def work(tx: Transaction, sender: Sender) -> bytes:
        message = Message(sender, to, payload, len(payload), 0, attributes=attributes)
        refused = destinations.hand_over(context, tx, destination, message)
        if refused is not None:
            refusals.log(context, tx, sender, refused.rule, refused.figure)
        return b""

    return work


def release(context: Context, packet: PubRel, peer: Peer) -> Work:
    """Deliver a message that is in custody. One that is released already, because the answer was
    lost, is answered in the same way."""
    id = packet.id

    def work(tx: Transaction, sender: Sender) -> bytes:
        try:
            service.deliver(context, tx, sender, str(id))
        except ServiceError as error:
            return answers.refuse_release(context, peer, id, error)
        return encode_success(PubComp, id)

    return work


def register_for_accounts(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    mqtt = hooks.of(MqttHooks)
    mqtt.add(mqtt.handlers, Publish, publish)
    mqtt.add(mqtt.handlers, PubRel, release)
    hooks.error_mapping(PROTOCOL, CustodyError, lambda error: REASONS[error.reason])
