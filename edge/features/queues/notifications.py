"""What a queue node tells its workers: here is an item, your item is deleted, it is unlocked.

An item is told once: if the session ends without it, its lock ends too. That one is deleted or
unlocked is kept until the peer has it, since workers commit on that (XEP-0254); it is for the
session that had the lock, and waits for that full JID to come back. What is decided, and why, is
not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edge.engine import events, in_flight, sessions
from edge.engine.access import Sender
from edge.engine.addresses import pubsub_service
from edge.engine.database import STAYS, Receipt, Transaction
from edge.engine.events import NewEvent
from edge.engine.hooks import Context, Hooks
from edge.features.queues.store import notifications, queue_items
from edge.features.queues.store.queue_items import Item
from edge.features.queues.store.queue_members import ConnectedMember
from edge.xmpp import pubsub, serialize
from edge.xmpp.namespaces import QUEUEING, REDELIVERED


def give(context: Context, tx: Transaction, item: Item, there: ConnectedMember) -> None:
    """Send an item to the session that was given it."""
    id, service = f"item-{item.row}-{item.deliveries}", pubsub_service(context.domain)
    stanza = serialize.message(None, service, there.member.session, content(tx, item), id)
    tx.send(there.generation, stanza, STAYS)


def content(tx: Transaction, item: Item) -> bytes:
    """Make the contents of a message: an item, and how often it was given before."""
    entry = serialize.tag("item", {"id": item.item}, queue_items.body(tx, item.row))
    event = pubsub.event(serialize.tag("items", {"node": item.node}, entry))
    if item.deliveries:
        event += serialize.tag("redelivered", {"times": str(item.deliveries)}, xmlns=REDELIVERED)
    return event


def deleted(context: Context, tx: Transaction, item: Item, full: str) -> None:
    """Tell a session that the item that it had is deleted."""
    _tell(context, tx, item, full, "deleted", serialize.tag("retract", {"id": item.item}))


def unlocked(context: Context, tx: Transaction, item: Item, full: str) -> None:
    """Tell a session that the item that it had is its own no more."""
    _tell(
        context,
        tx,
        item,
        full,
        "unlocked",
        serialize.tag("unlock", {"id": item.item}, xmlns=QUEUEING),
    )


def _tell(
    context: Context, tx: Transaction, item: Item, full: str, what: str, content: bytes
) -> None:
    account = full.partition("@")[0]
    event = pubsub.event(serialize.tag("items", {"node": item.node}, content))
    id = f"{what}-{item.row}-{item.deliveries}"
    stanza = serialize.message(None, pubsub_service(context.domain), full, event, id)
    if notifications.make_room(tx, account, context.limits.notifications_per_account):
        _log_dropped(tx, full, "too many wait")
    row = notifications.add(tx, account, full, stanza)
    session = sessions.at(tx, full)
    if row is None:
        return
    if session is None:
        tx.wake_at(tx.now.service + context.limits.outbox_ttl)
    else:
        _send(tx, session.generation, row, stanza)


def _send(tx: Transaction, generation: int, row: int, stanza: bytes) -> None:
    receipt = Receipt(notifications.KIND, row)
    in_flight.begin(tx, receipt, generation)
    tx.send(generation, stanza, receipt)


def _log_dropped(tx: Transaction, full: str, reason: str) -> None:
    event = NewEvent(
        "message", full, name="queue_notification_dropped", level="Warning", text=reason
    )
    events.append(tx, events.SYSTEM, event)


def flush(_context: Context, tx: Transaction, sender: Sender) -> None:
    """Send a session what has waited for it to come back."""
    for word in notifications.waiting(tx, sender.account, sender.full):
        _send(tx, sender.generation, word.row, word.stanza)


def flush_jid(context: Context, tx: Transaction, jid: str) -> None:
    """Do that for the session of a full JID, or for all of a bare one, before anything new is
    given: that an item is another's now must not be told of one that is its own again."""
    there = [sessions.at(tx, jid)] if "/" in jid else sessions.of(tx, jid)
    for session in there:
        sender = None if session is None else sessions.sender(tx, session.generation)
        if sender is not None:
            flush(context, tx, sender)


def settled(
    _context: Context, tx: Transaction, _sender: Sender | None, rows: Sequence[int]
) -> None:
    """Forget what the peer has."""
    notifications.remove(tx, rows)


def lost(context: Context, tx: Transaction, _sender: Sender | None, _rows: Sequence[int]) -> None:
    """Keep what a session ended without, until it is back or that takes too long."""
    tx.wake_at(tx.now.service + context.limits.outbox_ttl)


def due(context: Context, tx: Transaction) -> None:
    """Drop what has waited for too long, and send what waits for sessions that are there."""
    for full in notifications.expire(tx, context.limits.outbox_ttl):
        _log_dropped(tx, full, "its session did not come back")
    for generation in notifications.sessions_with_waiting(tx):
        sender = sessions.sender(tx, generation)
        if sender is not None:
            flush(context, tx, sender)
    since = notifications.oldest(tx)
    if since is not None:
        tx.wake_at(since + context.limits.outbox_ttl)


NEEDS_ACCOUNTS: Final = True


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    hooks.on_acknowledged(notifications.KIND, settled)
    hooks.on_unacknowledged(notifications.KIND, lost)
