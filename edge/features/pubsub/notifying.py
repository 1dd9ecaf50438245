"""Notifications: what happens to a node is told to its subscribers (XEP-0060, sections 7.1.2, 7.2,
8.2 to 8.5).

Each plain subscription is told once; where somebody has several, each says which it is by its SubID
(XEP-0131). What happens in queues is told by `handlers.queues`. Who is subscribed is known to
`matching`, and how a notification travels to `sending`.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum

from edge.engine.database import Transaction
from edge.engine.hooks import Context
from edge.features.pubsub import matching, sending
from edge.features.pubsub.rules.node_config import NodeConfig
from edge.features.pubsub.store import items, nodes
from edge.features.pubsub.store.nodes import Node
from edge.features.pubsub.store.subscriptions import Subscription
from edge.xmpp import pubsub, serialize
from edge.xmpp.namespaces import SHIM


class Kind(Enum):
    """What a notification tells."""

    ITEMS = "an item was published"
    RETRACT = "an item was deleted"
    PURGE = "all items were deleted"
    DELETE = "the node was deleted"
    CONFIGURATION = "the node is configured in another way"


def wanted(config: NodeConfig, kind: Kind) -> bool:
    """Tell whether subscribers of a node are told of this at all."""
    if kind is Kind.CONFIGURATION:
        return config.notify_config
    if kind is Kind.DELETE:
        return config.notify_delete
    if kind is Kind.ITEMS:
        return config.deliver_notifications
    return config.notify_retract


def announce(
    context: Context,
    tx: Transaction,
    node: Node,
    content: bytes,
    kind: Kind = Kind.ITEMS,
    *,
    always: bool = False,
) -> None:
    """Tell all plain subscriptions to a node, by its name or by a filter, what has happened.

    Args:
        context: what handlers know.
        tx: the transaction in which it happens.
        node: the node.
        content: what stands in the `<event/>`, complete.
        kind: what it tells: nobody is told what the node is not configured to tell,
        always: but for this.
    """
    if not (always or wanted(node.config, kind)):
        return
    subscriptions = matching.plain(context, tx, node)
    if not subscriptions:
        return
    event = pubsub.event(content)
    several = Counter(subscription.jid for subscription in subscriptions)
    type_ = _type(node.config)
    for subscription in subscriptions:
        ours = event + (subid(subscription) if several[subscription.jid] > 1 else b"")
        sending.notify(context, tx, subscription, ours, node=node.name, kind=type_)


def to_one(
    context: Context, tx: Transaction, subscription: Subscription, content: bytes, *, node: str = ""
) -> None:
    """Tell one subscription something; `content` is what stands in the `<event/>`."""
    name = node or _name(tx, subscription)
    sending.notify(context, tx, subscription, pubsub.event(content), node=name)


def last_item(context: Context, tx: Transaction, subscription: Subscription, node: Node) -> None:
    """Send a new subscription the item that was published last, if the node does that.

    Source: XEP-0060, section 6.1.7.
    """
    config = node.config
    if config.send_last_published_item == "never" or not config.persist_items or config.queueing:
        return
    item = items.last(tx, node.id)
    if item is None:
        return
    event = pubsub.event(published(node, item.item, item.body))
    content = event + serialize.delay(context.domain, item.wall)
    sending.notify(context, tx, subscription, content, node=node.name, kind=_type(config))


def published(node: Node, item: str | None, body: bytes) -> bytes:
    """Make the `<items/>` that tells of an item; of none, where the node takes none."""
    content = b""
    if item is not None:
        payload = body if node.config.deliver_payloads else b""
        content = serialize.tag("item", {"id": item}, payload)
    return serialize.tag("items", {"node": node.name}, content)


def retracted(node: str, item: str) -> bytes:
    """Make the `<items/>` that tells that an item was deleted (XEP-0060, section 7.2.2.1)."""
    content = serialize.tag("retract", {"id": item})
    return serialize.tag("items", {"node": node}, content)


def subid(subscription: Subscription) -> bytes:
    """Make the header that tells which subscription a notification is for (XEP-0060, section
    12.17)."""
    header = serialize.tag("header", {"name": "SubID"}, serialize.escape(subscription.subid))
    return serialize.tag("headers", content=header, xmlns=SHIM)


def _type(config: NodeConfig) -> str | None:
    """Return the type of the message; None for one of type `normal`."""
    return None if config.notification_type == "normal" else config.notification_type


def _name(tx: Transaction, subscription: Subscription) -> str:
    if subscription.node is None:
        return subscription.filter or ""
    node = nodes.by_id(tx, subscription.node)
    return "" if node is None else node.name
