"""What sessions, time, and other processes bring about in queues.

A session that comes, or is resumed, is given what waits; one that goes gives back what it has of
queue nodes. Which subscriptions end with a session is `pubsub.subscribing`'s, and what becomes of
items of shares that are on their way is `shared`'s. Source: XEP-0254, "Implementation Notes".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.hooks import Context, Hooks
from edge.features.queues import notifications as words
from edge.features.queues import operations, sharing
from edge.features.queues.dispatch import STALLED, pump_all
from edge.features.queues.rules.transitions import Loss
from edge.features.queues.store import (
    notifications,
    queue_items,
    queue_members,
)
from edge.features.queues.store.queue_items import BATCH

ORPHANS: Final = 160
"""How many such batches are taken at once from accounts that are removed: as much as one has."""


def comes(context: Context, tx: Transaction, sender: Sender) -> None:
    """Note a session that begins; what waits for it goes when it has been told that it is bound."""
    member = queue_members.add_session(tx, sender.generation, sender.full, _room(context))
    if member or notifications.waiting(tx, sender.account, sender.full):
        tx.wake_at(tx.now.service)


def takes(context: Context, tx: Transaction, sender: Sender) -> None:
    """Tell a session that takes messages what it has to know, and give it what waits in the queues
    of its subscriptions."""
    words.flush(context, tx, sender)
    if queue_members.add_session(tx, sender.generation, sender.full, _room(context)):
        resumes(context, tx, sender)


def resumes(context: Context, tx: Transaction, sender: Sender) -> None:
    """Give a session that has a connection again what waits."""
    found = queue_members.queues_of(tx, sender.generation)
    for queue in found:
        queue_items.release_held(tx, queue)
    pump_all(context, tx, found)


def gone(context: Context, tx: Transaction, sender: Sender) -> None:
    """Take back what a session has that is over."""
    _part(context, tx, sender, Loss.CONNECTION)


def stops(_context: Context, tx: Transaction, _sender: Sender) -> None:
    """Give nothing to anybody any more, since all sessions end: what one had would go through the
    hands of all the others."""
    queue_members.remove_all(tx)


def away(context: Context, tx: Transaction, sender: Sender) -> None:
    """Take back what a session has that says that it goes."""
    _part(context, tx, sender, Loss.UNAVAILABLE)


def _part(context: Context, tx: Transaction, sender: Sender, loss: Loss) -> None:
    touched = queue_members.queues_of(tx, sender.generation)  # what waits for it waits no more
    if loss is Loss.CONNECTION:
        queue_members.remove_session(tx, sender.generation)
    for item in queue_items.locked_by(tx, sender.full):
        if item.until is not None:
            operations.lose(context, tx, item, loss)
            touched.append(item.queue)
    pump_all(context, tx, touched)


def detaches(context: Context, tx: Transaction, sender: Sender) -> None:
    """Give others what waits for a session that has lost its connection; what it has stays."""
    pump_all(context, tx, queue_members.queues_of(tx, sender.generation))


def arrived(context: Context, tx: Transaction, sender: Sender | None, _rows: Sequence[int]) -> None:
    """Give a session more of shares at level 0, since it has what it was sent."""
    if sender is not None:
        queue_members.count_sent(tx, sender.generation)
        pump_all(context, tx, queue_members.queues_of(tx, sender.generation))


def due(context: Context, tx: Transaction) -> None:
    """See to locks that are over, to what has waited for too long, and to what was delayed."""
    words.due(context, tx)  # first: what is told of an item comes before it is given anew
    timed_out, expired = queue_items.lock_timeouts(tx), queue_items.expired(tx)
    for item in timed_out:
        operations.lose(context, tx, item, Loss.TIMEOUT)
    for item in expired:
        operations.bury_item(context, tx, item, "expired")
    ready = queue_items.release_delayed(tx)
    queue_members.clear_stalls(tx, _room(context))
    pump_all(context, tx, queue_members.dispatchable(tx))
    if BATCH in (len(timed_out), len(expired), ready):
        tx.wake_at(tx.now.service)
    first = queue_items.next_timer(tx)
    if first is not None:
        tx.wake_at(first)
    if queue_members.has_stalled(tx):
        tx.wake_at(tx.now.service + STALLED)


def changed(context: Context, tx: Transaction) -> None:
    """See to what another process has unlocked, requeued or removed."""
    for _each in range(ORPHANS):
        found = queue_items.orphaned(tx)
        for item in found:
            operations.part(context, tx, item, Loss.UNSUBSCRIBED)
        if len(found) < BATCH:
            break
    queue_members.recount_locking(tx, _room(context))
    due(context, tx)


def _room(context: Context) -> int:
    """Return how many bytes of items a member may have that it has not dealt with."""
    return context.limits.unacknowledged_bytes


NEEDS_ACCOUNTS: Final = True


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    hooks.on_session_bound(comes)
    hooks.on_available(takes)
    hooks.on_caps_known(resumes)
    hooks.on_detached(detaches)
    hooks.on_resumed(resumes)
    hooks.on_session_lost(gone)
    hooks.on_shutdown(stops)
    hooks.on_unavailable(away)
    hooks.on_acknowledged(sharing.PLAIN, arrived)
    hooks.on_timer(due)
    hooks.on_external_change(changed)
