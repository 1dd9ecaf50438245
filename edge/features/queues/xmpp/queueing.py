"""XMPP encoding of queues (XEP-0254): the unlock request, messages to members, registration."""

from __future__ import annotations

from typing import Final

from edge.engine.dispatch.addresses import pubsub_service
from edge.engine.dispatch.hooks import Context, Hooks, Work
from edge.engine.rules.access import Sender
from edge.engine.store.database import Transaction
from edge.features.pubsub.service import access
from edge.features.queues.service import operations
from edge.features.queues.service.errors import QueueError, RefusalReason
from edge.features.queues.service.messages import ItemDelivery, LockEnded
from edge.routing.xmpp import XmppHooks, answers
from edge.xmpp import PROTOCOL, pubsub, serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import QUEUEING, QUEUEING_SHORT, REDELIVERED, clark
from edge.xmpp.stanza import Stanza

_CONDITIONS: Final = {
    RefusalReason.NO_SUCH_ITEM: "item-not-found",
    RefusalReason.LOCKED_BY_ANOTHER: "conflict",
    RefusalReason.LOCK_ENDED: "unexpected-request",
    RefusalReason.NOT_ALLOWED: "forbidden",
    RefusalReason.NOT_A_QUEUE: "feature-not-implemented",
    RefusalReason.WRONG_STATE: "conflict",
}
"""Condition of the stanza error for each refusal; RFC 6120 gives the error type."""


def _stanza_error(error: QueueError) -> StanzaError:
    return pubsub.refusal(_CONDITIONS[error.reason], text=str(error))


# Requests


def unlock(context: Context, stanza: Stanza) -> Work:
    """Unlock an item of a queue node; raises `StanzaError`."""
    element = stanza.children[0].children[0]
    name = element.attrs.get("node")
    if not name:
        raise pubsub.refusal("bad-request", "nodeid-required")
    found = element.tree()
    ids = [child.get("id", "") for child in found if child.tag.endswith("}item")]
    if len(found) != 1 or not ids or not ids[0]:
        text = "one <item/> with an ItemID is required"
        raise pubsub.refusal("bad-request", "item-required", text)

    def act(tx: Transaction, sender: Sender) -> None:
        operations.unlock_item(context, tx, sender, access.get_node(tx, name), ids[0])

    return answers.service_work(context, stanza, act)


# Messages to members


def encode_delivery(context: Context, message: ItemDelivery) -> bytes:
    """Encode the message that delivers an item; without addresses if the outbox adds them."""
    item = pubsub.item(message.item, message.body, message.publisher, message.content_type)
    content = pubsub.items_event(message.node, item)
    if message.redeliveries:
        times = {"times": str(message.redeliveries)}
        content += serialize.tag("redelivered", times, xmlns=REDELIVERED)
    if message.subid is not None:
        content += pubsub.subid_header(message.subid)
    service = None if message.to is None else pubsub_service(context.domain)
    return serialize.message(None, service, message.to, content, message.id)


def encode_lock_ended(context: Context, message: LockEnded) -> bytes:
    """Encode the notification that an item was deleted or unlocked."""
    name, namespace = ("retract", None) if message.is_deleted else ("unlock", QUEUEING)
    content = serialize.tag(name, {"id": message.item}, xmlns=namespace)
    event = pubsub.items_event(message.node, content)
    return serialize.message(None, pubsub_service(context.domain), message.to, event, message.id)


def register_for_accounts(hooks: Hooks) -> None:
    """Register the requests, features and messages of queues with the engine."""
    xmpp = hooks.of(XmppHooks)
    for type_ in ("get", "set"):
        for namespace in (QUEUEING, QUEUEING_SHORT):
            xmpp.add(xmpp.pubsub_requests, (type_, clark(namespace, "unlock")), unlock)
    xmpp.advertise_pubsub(QUEUEING)
    hooks.error_mapping(PROTOCOL, QueueError, _stanza_error)
    hooks.encode(PROTOCOL, ItemDelivery, encode_delivery)
    hooks.encode(PROTOCOL, LockEnded, encode_lock_ended)
