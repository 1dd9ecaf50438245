"""Delivery of items of shared subscriptions (MQTT-234) to the members that they are assigned to.

At QoS 0 an item leaves its queue when it is sent as a plain message; a lost item is not sent again.
At QoS 1 and 2 an item is delivered through the outbox of the member's account. At QoS 1 only the
assigned session may receive the item; if that session ends, the item goes to another member. At QoS
2 the item stays with its member from the first delivery on, through reconnections and restarts. If
the session has received the item but never confirmed that it is complete, the item is in doubt: it
is kept as a dead letter that only this session can complete. Source: MQTT-234, as completed in
docs/reference/protocol.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from edge.engine.dispatch.addresses import pubsub_service
from edge.engine.dispatch.encoding import pack
from edge.engine.dispatch.hooks import Context
from edge.engine.rules import quota
from edge.engine.sessions import sessions
from edge.engine.store import in_flight
from edge.engine.store.database import Receipt, Transaction
from edge.features.discovery import service as discovery
from edge.features.outbox import service as outbox
from edge.features.outbox.service import OutgoingMessage
from edge.features.pubsub.rules.node_config import QueuePolicy
from edge.features.pubsub.service.item_publisher import named_publisher
from edge.features.pubsub.service.queries import Subscription, find_node
from edge.features.queues.rules.assignment import Member
from edge.features.queues.service.messages import ItemDelivery
from edge.features.queues.store import queue_items
from edge.features.queues.store.queue_items import QueuedItem
from edge.features.queues.store.queues import Queue

QOS_0: Final = "share"
"""Kind (`Receipt.kind`) of the receipt of an item sent at QoS 0. Sending deletes the item's row.
The receipt keeps the row's number until the session acknowledges the item or ends."""


def deliver(
    context: Context,
    tx: Transaction,
    queue: Queue,
    item: QueuedItem,
    member: Member,
    subscription: Subscription,
) -> bool:
    """Deliver an item to a member; return false and change nothing if the member's outbox is full.

    At QoS 0 the item leaves the queue; at QoS 1 and 2 the caller must lock it.
    """
    qos = level(item, subscription)
    if qos == 0:
        _send_once(tx, item, member, subscription)
        return True
    content = pack(context, _delivery(tx, item, subscription))
    account, size = subscription.account, quota.charge(member.full, content.body)
    if outbox.exceeded_limit(context, tx, account, None, size) is not None:
        return False
    service, is_full = pubsub_service(context.domain), "/" in subscription.jid
    message = OutgoingMessage(
        f"{service}/{_ordering_key(queue, item)}",
        f"{service}/{item.node}",
        None,
        qos,
        content,
        size,
        only_session=member.full if is_full or qos == 1 else None,
        session=member.full,
        queue_item=item.row,
    )
    row = outbox.add(context, tx, account, message)
    if row is None:
        return False
    queue_items.set_outbox_row(tx, item.row, row)
    # without queries, so that no other item is assigned meanwhile
    outbox.send_ready(context, tx, account, query_caps=False)
    return True


def level(item: QueuedItem, subscription: Subscription) -> int:
    """Return the quality of service at which a member gets an item: the lower one of those of its
    publication and of the subscription."""
    return min(item.qos, subscription.options.qos)


def _ordering_key(queue: Queue, item: QueuedItem) -> str:
    """Return the key of an item's message; the outbox keeps messages with equal keys in order.

    Items of a publisher have the same key if one member gets all of them; otherwise each item has a
    different key.
    """
    if queue.policy == QueuePolicy.LEAST_LOADED:
        return f"{queue.id}/{item.row}"
    return f"{queue.id}/{item.publisher.partition('/')[0]}"


def _delivery(tx: Transaction, item: QueuedItem, subscription: Subscription) -> ItemDelivery:
    body, attributes = queue_items.body(tx, item.row)
    publisher = named_publisher(tx, find_node(tx, item.node), item.publisher)
    return ItemDelivery(
        item.node,
        item.item,
        body,
        publisher,
        item.deliveries,
        subscription.subid,
        content_type=attributes.content_type,
        retain=bool(attributes.retain),
        expires=item.expires,
        properties=attributes.properties,
        identifier=subscription.options.delivery.identifier,
    )


def _send_once(
    tx: Transaction, item: QueuedItem, member: Member, subscription: Subscription
) -> None:
    session, delivery = sessions.find(tx, member.full), _delivery(tx, item, subscription)
    queue_items.delete(tx, item)
    if session is not None:
        receipt = Receipt(QOS_0, item.row)
        in_flight.begin(tx, receipt, session.generation)
        tx.send(session.generation, delivery._replace(to=session.full), receipt)


def learn_qos(context: Context, tx: Transaction, members: Iterable[str]) -> None:
    """Find out whether the sessions of these members support QoS, unless that is known already.

    `members` are the full JIDs of the sessions. A session that supports QoS is assigned items once
    its answer arrives.
    """
    for full in members:
        session = sessions.find(tx, full)
        if session is not None and session.qos is None:
            discovery.learn(context, tx, session)
