"""Messages to workers of queue nodes: an item is delivered, deleted or unlocked (XEP-0254).

A delivery is sent once; if the session ends before it receives the delivery, the lock ends too. A
notification that an item was deleted or unlocked is stored until the session that had the lock has
received it, because a worker commits its work only after the notification.
"""

from __future__ import annotations

from collections.abc import Sequence

from edge.engine.dispatch.encoding import pack
from edge.engine.dispatch.hooks import Context
from edge.engine.dispatch.item_attributes import ItemAttributes
from edge.engine.rules.access import Sender
from edge.engine.sessions import sessions
from edge.engine.store import events, in_flight
from edge.engine.store.database import AWAITS_ANSWER, Receipt, SentMessage, Transaction
from edge.engine.store.events import NewEvent
from edge.features.pubsub.service.item_publisher import named_publisher
from edge.features.pubsub.service.queries import find_node
from edge.features.queues.service.messages import ItemDelivery, LockEnded
from edge.features.queues.store import notifications
from edge.features.queues.store.queue_items import QueuedItem
from edge.features.queues.store.queue_members import ConnectedMember


def deliver(
    tx: Transaction,
    item: QueuedItem,
    to: ConnectedMember,
    body: bytes,
    attributes: ItemAttributes,
) -> None:
    """Send an item of a queue node to the session that it is assigned to."""
    full = to.member.full
    id = f"item-{item.row}-{item.deliveries}"
    publisher = named_publisher(tx, find_node(tx, item.node), item.publisher)
    delivery = ItemDelivery(
        item.node, item.item, body, publisher, item.deliveries, None, full, id,
        attributes.content_type, bool(attributes.retain), item.expires, attributes.properties,
    )  # fmt: skip
    tx.send(to.generation, delivery, AWAITS_ANSWER)


def notify_lock_ended(
    context: Context, tx: Transaction, item: QueuedItem, full: str, *, is_deleted: bool
) -> None:
    """Notify a session that it no longer has an item's lock: now, or when the session returns."""
    id = f"{'deleted' if is_deleted else 'unlocked'}-{item.row}-{item.deliveries}"
    notice = LockEnded(item.node, item.item, full, id, is_deleted)
    account = full.partition("@")[0]
    if notifications.make_room(tx, account, context.limits.notifications_per_account):
        _log_dropped(tx, full, "notification dropped: too many notifications wait for this account")
    row = notifications.add(tx, account, full, pack(context, notice))
    session = sessions.find(tx, full)
    if row is None:
        return
    if session is None:
        tx.wake_at(tx.now.service + context.limits.outbox_ttl)
    else:
        _send(tx, session.generation, row, notice)


def _send(tx: Transaction, generation: int, row: int, notice: SentMessage) -> None:
    receipt = Receipt(notifications.KIND, row)
    in_flight.begin(tx, receipt, generation)
    tx.send(generation, notice, receipt)


def _log_dropped(tx: Transaction, full: str, reason: str) -> None:
    event = NewEvent(
        "message", full, name="queue_notification_dropped", level="Warning", text=reason
    )
    events.append(tx, events.SYSTEM, event)


def flush(tx: Transaction, sender: Sender) -> None:
    """Send a session its waiting notifications."""
    for row, notice in notifications.waiting(tx, sender.account, sender.full):
        _send(tx, sender.generation, row, notice)


def flush_jid(tx: Transaction, jid: str) -> None:
    """Send the session of a full JID, or all sessions of a bare JID, their waiting notifications.

    This must be called before items are assigned to them. Otherwise a session could be notified of
    the loss of an item that has been assigned to it again.
    """
    found = [sessions.find(tx, jid)] if "/" in jid else sessions.of_account(tx, jid)
    for session in found:
        sender = None if session is None else sessions.sender(tx, session.generation)
        if sender is not None:
            flush(tx, sender)


def on_acknowledged(
    _context: Context, tx: Transaction, _sender: Sender | None, rows: Sequence[int]
) -> None:
    """Remove notifications that a session has received."""
    notifications.remove(tx, rows)


def on_unacknowledged(
    context: Context, tx: Transaction, _sender: Sender | None, _rows: Sequence[int]
) -> None:
    """Set the timer for the expiry of notifications whose session ended before it received them."""
    tx.wake_at(tx.now.service + context.limits.outbox_ttl)


def on_timer(context: Context, tx: Transaction) -> None:
    """Drop expired notifications, and send connected sessions their waiting notifications."""
    for full in notifications.expire(tx, context.limits.outbox_ttl):
        _log_dropped(tx, full, "notification dropped: its session did not return in time")
    for generation in notifications.sessions_with_waiting(tx):
        sender = sessions.sender(tx, generation)
        if sender is not None:
            flush(tx, sender)
    oldest = notifications.oldest(tx)
    if oldest is not None:
        tx.wake_at(oldest + context.limits.outbox_ttl)
