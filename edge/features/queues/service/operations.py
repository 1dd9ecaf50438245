"""Operations on items of queues: enqueue, complete, delete, unlock, dead-letter.

The queues may belong to queue nodes or to shared subscriptions. Source: XEP-0254; MQTT-234, as
completed in docs/reference/protocol.md.
"""

from __future__ import annotations

from typing import Final

from edge.engine.dispatch.hooks import Context
from edge.engine.rules.access import Sender
from edge.engine.store import events
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent
from edge.features.outbox import service as outbox
from edge.features.pubsub.rules.affiliation import Affiliation
from edge.features.pubsub.rules.replacement import author_of
from edge.features.pubsub.service import access
from edge.features.pubsub.service.queries import Node, find_subscription, has_subscriber
from edge.features.queues.rules import locks, transitions
from edge.features.queues.rules.locks import Action, Lock, Role, Verdict
from edge.features.queues.rules.transitions import NOTIFIED, Kind, Loss, Outcome
from edge.features.queues.service import notifications, share_delivery
from edge.features.queues.service.dispatch import assign_new, dispatch
from edge.features.queues.service.errors import QueueError, RefusalReason
from edge.features.queues.store import depth_events, queue_items, queue_members, queues
from edge.features.queues.store.queue_items import NewQueuedItem, QueuedItem
from edge.features.queues.store.queues import Queue

_REFUSALS: Final = {
    Verdict.CONFLICT: RefusalReason.LOCKED_BY_ANOTHER,
    Verdict.FORBIDDEN: RefusalReason.NOT_ALLOWED,
    Verdict.UNEXPECTED: RefusalReason.LOCK_ENDED,
}
_PUBLISHERS: Final = (Affiliation.PUBLISHER, Affiliation.PUBLISH_ONLY)


# Items arrive


def enqueue(context: Context, tx: Transaction, queue: Queue, new: NewQueuedItem) -> None:
    """Enqueue an item, and assign it if a member has room. The caller has checked the limits.

    A dead item of a queue node with the same ItemID is deleted; the caller has checked that no
    other item has it.
    """
    for timer in (new.due, new.expires):
        if timer is not None:
            tx.wake_at(timer)
    if queue.node is not None and (old := queue_items.find(tx, queue.id, new.item)) is not None:
        queue_items.delete(tx, old)
    if new.due is None and assign_new(context, tx, queue, new):
        return
    queue_items.enqueue(tx, queue, new)
    if new.due is None:
        dispatch(context, tx, queue.id, queue)


# Items leave their members


def complete(
    context: Context, tx: Transaction, item: QueuedItem, queue: Queue | None = None
) -> None:
    """Delete an item that a member has completed, and assign the next item of its queue."""
    queue_items.delete(tx, item)
    count_removal(context, tx, item)
    dispatch(context, tx, item.queue, queue)


def count_removal(context: Context, tx: Transaction, item: QueuedItem) -> None:
    """Subtract an item from the counts of the member that had locked it, if there is one."""
    if item.state == "locked" and item.subscription is not None:
        max_bytes, holder = context.limits.unacknowledged_bytes, item.holder or ""
        subscription, size = item.subscription, item.bytes
        queue_members.count_removal(tx, item.queue, subscription, holder, size, max_bytes)


def dead_letter(context: Context, tx: Transaction, item: QueuedItem, reason: str) -> None:
    """Make an item dead: the queue keeps it until an operator or owner requeues or deletes it."""
    queue_items.dead_letter(tx, item.row, reason)
    count_removal(context, tx, item)
    tags = {"item": item.item, "deliveries": str(item.deliveries)}
    event = NewEvent(
        "message", item.publisher, item.node, "queue_dead", level="Warning", text=reason, tags=tags
    )
    events.append(tx, events.SYSTEM, event)


def handle_loss(
    context: Context, tx: Transaction, item: QueuedItem, loss: Loss, qos: int | None = None
) -> None:
    """Make a locked item ready or dead, or keep it locked, because its member has lost it.

    `transitions` decides. If the kind of the loss is in `NOTIFIED`, the worker of a queue node's
    item is notified that its lock ended. The caller must dispatch the queue afterwards.

    Args:
        qos: the QoS at which an item of a shared subscription was sent; `None` if unknown.
    """
    queue = queues.get(tx, item.queue)
    if queue is None:
        return
    kind = _kind(tx, queue, item) if qos is None else transitions.kind(qos)
    counted = item.deliveries - item.spared
    outcome = transitions.outcome(kind, loss, counted, queue.max_deliveries)
    if outcome is Outcome.STAYS:
        return
    if loss is Loss.TIMEOUT:
        depth_events.count_timeout(tx, queue.id)
    if outcome is Outcome.DEAD:
        dead_letter(context, tx, item, f"{loss.value}, after {item.deliveries} deliveries")
    else:
        avoid = item.holder if outcome is Outcome.READY_FOR_ANOTHER else None
        queue_items.unlock(tx, item.row, avoid)
        count_removal(context, tx, item)
        if item.expires is not None:
            tx.wake_at(item.expires)
    if kind is Kind.NODE and loss in NOTIFIED and item.holder is not None:
        notifications.notify_lock_ended(context, tx, item, item.holder, is_deleted=False)


def make_ready_unsent(context: Context, tx: Transaction, item: QueuedItem) -> None:
    """Make an item ready that was assigned but never sent; the delivery is not counted."""
    queue_items.unlock(tx, item.row, delivered=False)
    count_removal(context, tx, item)


def _kind(tx: Transaction, queue: Queue, item: QueuedItem) -> Kind:
    """Return the kind of a locked item; `SHARE_2` if neither subscription nor message exists."""
    if queue.node is not None:
        return Kind.NODE
    member = find_subscription(tx, item.subscription or 0)
    if member is not None:
        return transitions.kind(share_delivery.level(item, member))
    sent = outbox.find(tx, item.outbox or 0)
    return Kind.SHARE_2 if sent is None else transitions.kind(sent.qos)


# Requests for items of queue nodes


def delete_item(
    context: Context, tx: Transaction, sender: Sender, node: Node, item_id: str
) -> None:
    """Delete an item of a queue node at the request of its worker, its publisher or a node owner.

    Raises `QueueError` if the item does not exist or the sender may not delete it.
    """
    queue, item = _find(tx, node, item_id)
    if _check(tx, sender, node, item, Action.DELETE) is Verdict.ALLOWED_WITH_NOTIFICATION:
        notifications.notify_lock_ended(context, tx, item, sender.full, is_deleted=True)
    complete(context, tx, item, queue)


def unlock_item(
    context: Context, tx: Transaction, sender: Sender, node: Node, item_id: str
) -> None:
    """Unlock an item of a queue node at the request of its worker, so that another worker gets it.

    Raises `QueueError` if the item does not exist or the sender may not unlock it.
    """
    if not node.config.queueing:
        raise QueueError(RefusalReason.NOT_A_QUEUE)
    queue, item = _find(tx, node, item_id)
    if _check(tx, sender, node, item, Action.UNLOCK) is Verdict.ALLOWED_WITH_NOTIFICATION:
        handle_loss(context, tx, item, Loss.UNLOCKED)
        dispatch(context, tx, queue.id, queue)


def _find(tx: Transaction, node: Node, item_id: str) -> tuple[Queue, QueuedItem]:
    queue = queues.of_node(tx, node.id)
    item = None if queue is None else queue_items.find(tx, queue.id, item_id)
    if queue is None or item is None:
        raise QueueError(RefusalReason.NO_SUCH_ITEM)
    return queue, item


def _check(
    tx: Transaction, sender: Sender, node: Node, item: QueuedItem, action: Action
) -> Verdict:
    lock = Lock.NONE
    if item.state == "locked":
        lock = Lock.OWN if item.holder == sender.full else Lock.FOREIGN
    role = Role.RECEIVER if lock is Lock.OWN else _role(tx, sender, node, item)
    verdict = locks.decide(action, lock, role)
    if verdict in _REFUSALS:
        raise QueueError(_REFUSALS[verdict])
    return verdict


def _role(tx: Transaction, sender: Sender, node: Node, item: QueuedItem) -> Role:
    """Return the sender's role concerning an item: the first member of `Role` that applies."""
    if queue_items.has_received(tx, item.row, sender.full):
        return Role.RECEIVER
    affiliation = access.affiliation_of(tx, node, sender.bare)
    if affiliation is Affiliation.OUTCAST:
        return Role.NOBODY
    if affiliation is Affiliation.OWNER:
        return Role.OWNER
    if author_of(item.author, item.publisher) == sender.bare:
        return Role.AUTHOR
    if affiliation in _PUBLISHERS:
        return Role.PUBLISHER
    if has_subscriber(tx, node.id, sender.account):
        return Role.SUBSCRIBER
    return Role.NOBODY
