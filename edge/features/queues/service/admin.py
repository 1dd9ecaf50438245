"""Operations of the operator and of node owners on items of queues: take, unlock, requeue, purge.

Each operation changes the items and writes an event in one transaction. The running gateway notices
the change, notifies workers and assigns ready items.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edge.engine.dispatch.hooks import Context
from edge.engine.rules.access import Sender
from edge.engine.store import events
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent
from edge.features.pubsub.service import access
from edge.features.queues.service import operations
from edge.features.queues.service.errors import QueueError, RefusalReason
from edge.features.queues.store import overview, queue_items, queue_members
from edge.features.queues.store.overview import Overview as Overview
from edge.features.queues.store.queue_items import QueuedItem

_SAME_ID: Final = 100
"""Maximum number of items with the same ItemID that one call requeues; a shared subscription may
have one from each node."""


def get_owned(tx: Transaction, sender: Sender, node: str) -> Overview:
    """Return the queue of a node that the sender owns.

    Raises:
        PubsubError: there is no such node, or the sender does not own it.
        QueueError: the node is not a queue node.
    """
    access.get_owned_node(tx, sender, node)
    found = overview.of_node(tx, node)
    if found is None:
        raise QueueError(RefusalReason.NOT_A_QUEUE)
    return found


def take(tx: Transaction, queue: Overview) -> tuple[QueuedItem, bytes, str] | None:
    """Take the next ready item of a queue node for the operator; return it with its payload and
    the payload's content type.

    The item is delayed for the lock timeout of the queue, and then ready again unless `finish` has
    deleted it. Returns `None` if no item is ready. Raises `QueueError` if the queue belongs to a
    shared subscription.
    """
    if queue.node is None:
        text = f"{queue.name} is a shared subscription; only its members can take items"
        raise QueueError(RefusalReason.NOT_A_QUEUE, text)
    found = queue_items.next_ready(tx, queue.id, 1)
    if not found:
        return None
    due = tx.now.service + queue.lock_timeout
    queue_items.take(tx, found[0].row, due)
    tx.wake_at(due)
    payload, attributes = queue_items.body(tx, found[0].row)
    return found[0], payload, attributes.content_type


def finish(context: Context, tx: Transaction, queue: Overview, item: str) -> None:
    """Delete an item that the operator took; raises `QueueError` if the item does not exist, or if
    the lock timeout has ended since `take`."""
    found = queue_items.find(tx, queue.id, item)
    if found is None:
        raise _no_such_item(queue, item)
    if found.state != "delayed":
        raise QueueError(
            RefusalReason.WRONG_STATE,
            f"item {item!r} was not finished before the lock timeout, and is now {found.state}",
        )
    operations.complete(context, tx, found)
    _log(tx, queue, "taken", None, "Notice", 1, {"item": item})


def unlock(tx: Transaction, queue: Overview, item: str, by: str | None = None) -> None:
    """End the lock of an item of a queue node as if it timed out now.

    The running gateway then makes the item ready, or dead if the queue allows only one delivery.

    Args:
        queue: the queue of a node.
        by: the bare JID of the owner, `None` for the gateway's operator.

    Raises:
        QueueError: the item does not exist or is not locked, or the queue belongs to a shared
            subscription, whose items cannot be unlocked.
    """
    if queue.node is None:
        text = f"{queue.name} is a shared subscription; its items cannot be unlocked"
        raise QueueError(RefusalReason.NOT_A_QUEUE, text)
    found = queue_items.find(tx, queue.id, item)
    if found is None:
        raise _no_such_item(queue, item)
    if found.state != "locked":
        raise QueueError(
            RefusalReason.WRONG_STATE, f"item {item!r} is not locked, but {found.state}"
        )
    queue_items.end_lock(tx, found.row, queue.max_deliveries)
    tags = {"item": item} if found.holder is None else {"item": item, "holder": found.holder}
    _log(tx, queue, "unlocked", by, "Notice", 1, tags)


def requeue(tx: Transaction, queue: Overview, items: Sequence[str], by: str | None = None) -> int:
    """Make dead items ready, each at its old place in the queue; return the number of items.

    Raises `QueueError`, and changes nothing, if an ItemID names no dead item.
    """
    dead = {item: _dead(tx, queue, item) for item in items}  # all are checked before any changes
    for item, found in dead.items():
        for one in found:
            queue_items.requeue(tx, one.row)
        _log(tx, queue, "requeued", by, "Notice", len(found), {"item": item})
    return sum(map(len, dead.values()))


def _dead(tx: Transaction, queue: Overview, item: str) -> list[QueuedItem]:
    found = overview.items_named(tx, queue.id, item, _SAME_ID)
    if not found:
        raise _no_such_item(queue, item)
    dead = [one for one in found if one.state == "dead"]
    if not dead:
        raise QueueError(
            RefusalReason.WRONG_STATE, f"item {item!r} is not dead, but {found[0].state}"
        )
    return dead


def requeue_all(tx: Transaction, queue: Overview, limit: int, by: str | None = None) -> int:
    """Make up to `limit` dead items ready, in order of delivery; return their number. `by` is the
    owner who asked for it, or `None` for the operator."""
    dead = overview.items_in_state(tx, queue.id, "dead", limit)
    for one in dead:
        queue_items.requeue(tx, one.row)
    if dead:
        _log(tx, queue, "requeued", by, "Notice", len(dead))
    return len(dead)


def purge(tx: Transaction, queue: Overview, limit: int, by: str | None = None) -> int:
    """Delete up to `limit` items of a queue; return the number of deleted items.

    Locked items of a queue node are deleted too; a worker that completes one gets an error.
    Locked items of a shared subscription are kept.
    """
    count = queue_items.delete_some(tx, queue.id, limit, locked=queue.node is not None)
    if count:
        _log(tx, queue, "purged", by, "Warning", count)
    return count


def purge_running(context: Context, tx: Transaction, queue: Overview, limit: int, by: str) -> int:
    """Do what `purge` does, and recount how many items each member has: only a running gateway
    keeps these numbers."""
    count = purge(tx, queue, limit, by)
    queue_members.recount_queue(tx, queue.id, context.limits.unacknowledged_bytes)
    return count


def _no_such_item(queue: Overview, item: str) -> QueueError:
    return QueueError(RefusalReason.NO_SUCH_ITEM, f"there is no item {item!r} in {queue.name}")


def _log(
    tx: Transaction,
    queue: Overview,
    name: str,
    by: str | None,
    level: str,
    count: int,
    tags: dict[str, str] | None = None,
) -> None:
    event = NewEvent(
        "queue",
        by,
        topic=queue.name,
        name=name,
        value=float(count),
        unit="items",
        level=level,
        text="by the operator" if by is None else "by the owner",
        tags=tags,
    )
    events.append(tx, events.SYSTEM, event)
