"""What an operator, or a node's owner, does with the items of a queue: unlock, requeue, purge.

Each is one transaction with its event. The running gateway does the rest when it sees the change:
it tells workers, and gives out what waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edge.engine import events
from edge.engine.database import Transaction
from edge.engine.events import NewEvent
from edge.errors import SetupError
from edge.features.queues.store import queue_view, queues
from edge.features.queues.store.queue_view import Overview
from edge.features.queues.store.queues import Item

_UNTIL: Final = """
UPDATE queue_items SET until = ?, spared = max(spared, deliveries - max(1, ? - 1)) WHERE id = ?
"""
_PURGE: Final = """
DELETE FROM queue_items WHERE id IN (
    SELECT id FROM queue_items WHERE queue = ?1 AND (?2 OR state <> 'locked') LIMIT ?3
)
"""
_SAME: Final = 100
"""Items of one ItemID that are looked at: a share has one of each node, a node's queue one."""


def unlock(tx: Transaction, queue: Overview, item: str, by: str | None = None) -> None:
    """End the lock of an item: its time is over now, and what follows is as for any that is; but it
    is not dead by that, unless one delivery is all that it has.

    Args:
        tx: the transaction.
        queue: that of a node.
        item: the ItemID.
        by: the bare JID of who does it, `None` for the operator of the gateway.

    Raises:
        SetupError: there is no such item, it is not locked, or it is a share's: what a share has
            handed to a member is that one's.
    """
    if queue.node is None:
        raise SetupError(f"{queue.name} is a share: what a member has is not locked, but its own")
    found = queues.find(tx, queue.id, item)
    if found is None:
        raise SetupError(f"there is no item {item!r} in {queue.name}")
    if found.state != "locked":
        raise SetupError(f"item {item!r} is not locked, but {found.state}")
    tx.run(_UNTIL, (tx.now.service, queue.max_deliveries, found.row))
    tags = {"item": item} if found.holder is None else {"item": item, "holder": found.holder}
    _log(tx, queue, "unlocked", by, "Notice", 1, tags)


def requeue(tx: Transaction, queue: Overview, items: Sequence[str], by: str | None = None) -> int:
    """Let dead items wait again, each at its old place, all of them or none; returns how many.

    Raises `SetupError` if one of the ItemIDs is of no dead item.
    """
    dead = {item: _dead(tx, queue, item) for item in items}  # before anything is changed
    for item, found in dead.items():
        for one in found:
            queues.requeue(tx, one.row)
        _log(tx, queue, "requeued", by, "Notice", len(found), {"item": item})
    return sum(map(len, dead.values()))


def _dead(tx: Transaction, queue: Overview, item: str) -> list[Item]:
    found = queue_view.named(tx, queue.id, item, _SAME)
    if not found:
        raise SetupError(f"there is no item {item!r} in {queue.name}")
    dead = [one for one in found if one.state == "dead"]
    if not dead:
        raise SetupError(f"item {item!r} is not dead, but {found[0].state}")
    return dead


def requeue_all(tx: Transaction, queue: Overview, most: int, by: str | None = None) -> int:
    """Let dead items wait again, `most` at most, those in front first; returns how many."""
    dead = queue_view.in_state(tx, queue.id, "dead", most)
    for one in dead:
        queues.requeue(tx, one.row)
    if dead:
        _log(tx, queue, "requeued", by, "Notice", len(dead))
    return len(dead)


def purge(tx: Transaction, queue: Overview, most: int, by: str | None = None) -> int:
    """Delete the items of a queue, `most` at most; returns how many they were.

    Of a node's, also those that are locked: their workers are told so when they delete them. What
    a share has handed to members stays theirs.
    """
    count = tx.run(_PURGE, (queue.id, queue.node is not None, most)).rowcount
    if count:
        _log(tx, queue, "purged", by, "Warning", count)
    return count


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
