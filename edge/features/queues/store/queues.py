"""Queues and what is in them: items in line, locked, delayed, or dead.

A row's number is its place in line, for good: an item that comes back has it still. Bodies stand
apart, since the rows are written several times. How much a queue has is kept by triggers. Which
member gets what is decided in `rules.queue`; the members that are there are `queue_members`'.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from edge.engine.database import Transaction
from edge.engine.quota import Usage
from edge.features.queues.rules.assignment import MAX_DELIVERIES, Choice, slot
from edge.features.queues.store import queue_slots

OVERHEAD: Final = 128
"""Bytes that an item costs beside its payload, its ItemID and its publisher."""

BATCH: Final = 64
"""How many items change by time in one unit of work."""

LOCK_TIMEOUT: Final = 60.0
"""Seconds that an item of a queue node is locked, if the node does not say; shares use none."""


class Queue(NamedTuple):
    """A queue: of a node (its number), or of a share and a filter. `favourite` is the subscription
    that a sticky one gives all to; `lock_timeout` is in seconds of service."""

    id: int
    node: int | None
    share: str | None
    filter: str | None
    policy: str
    favourite: int | None
    lock_timeout: float
    max_deliveries: int
    items: int
    bytes: int


class Item(NamedTuple):
    """An item: its place, its queue, the name of the node that it was published to, its ItemID, its
    publisher (full JID), and how far it has come. `wall` is in ms since 1970, other times are
    service seconds. `spared` of its `deliveries` do not bring it nearer to its end. `holder` has
    it, or is not to have it at once; `outbox` is a share's row there."""

    row: int
    queue: int
    node: str
    item: str
    publisher: str
    state: str
    priority: int
    wall: int
    since: float
    due: float | None
    expires: float | None
    deliveries: int
    spared: int
    subscription: int | None
    holder: str | None
    locked: float | None
    until: float | None
    outbox: int | None
    reason: str | None
    bytes: int


QUEUE: Final = """
SELECT id, node, share, filter, policy, favourite, lock_timeout, max_deliveries, items, bytes
FROM main.queues
"""
"""Selects queues."""

_GET: Final = f"{QUEUE} WHERE id = ?"
_OF_NODE: Final = f"{QUEUE} WHERE node = ?"
_OF_SHARE: Final = f"{QUEUE} WHERE share = ? AND filter = ?"
_ADD: Final = """
INSERT INTO main.queues (node, share, filter, policy, lock_timeout, max_deliveries)
VALUES (?, ?, ?, ?, ?, ?)
"""
_CONFIGURE: Final = """
UPDATE main.queues SET policy = ?, lock_timeout = ?, max_deliveries = ? WHERE id = ?
"""
_FAVOUR: Final = "UPDATE main.queues SET favourite = ? WHERE id = ?"
_REMOVE: Final = "DELETE FROM main.queues WHERE id = ?"
_USAGE: Final = """
SELECT q.items, q.bytes, t.items, t.bytes FROM main.queues_total AS t
LEFT JOIN main.queues AS q ON q.id = ?
"""

COLUMNS: Final = ", ".join(("i.id", *(f"i.{name}" for name in Item._fields[1:])))
"""The columns of items, where `i` are those."""

ITEM: Final = f"SELECT {COLUMNS} FROM main.queue_items AS i"  # noqa: S608 - of constants
"""Selects items."""

_AT: Final = f"{ITEM} WHERE id = ?"
_FIND: Final = f"{ITEM} WHERE queue = ? AND item = ?"
_HEADS: Final = f"""{ITEM}
WHERE queue = ? AND state = 'ready' AND (expires IS NULL OR expires > ?)
ORDER BY priority DESC, id LIMIT ?
"""
_ENQUEUE: Final = """
INSERT INTO main.queue_items (
    queue, node, item, publisher, state, priority, wall, since, due, expires, slot, bytes
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_ADD_BODY: Final = "INSERT INTO main.queue_bodies (id, body) VALUES (?, ?)"
_BODY: Final = "SELECT body FROM main.queue_bodies WHERE id = ?"
_SET_BODY: Final = "UPDATE main.queue_bodies SET body = ? WHERE id = ?"
_REPLACE: Final = """
UPDATE main.queue_items SET publisher = ?, wall = ?, since = ?, expires = ?, slot = ?, bytes = ?
WHERE id = ?
"""
_WEIGH: Final = "UPDATE main.queues SET bytes = bytes + ? WHERE id = ?"
_WEIGH_ALL: Final = "UPDATE main.queues_total SET bytes = bytes + ?"
_LOCK: Final = """
UPDATE main.queue_items
SET state = 'locked', subscription = ?, holder = ?, locked = ?, until = ?,
    deliveries = deliveries + 1
WHERE id = ?
"""
_RECEIVED: Final = "INSERT OR IGNORE INTO main.queue_receivers (item, jid) VALUES (?, ?)"
_HAS_RECEIVED: Final = "SELECT 1 FROM main.queue_receivers WHERE item = ? AND jid = ?"
_SENT_BY: Final = "UPDATE main.queue_items SET outbox = ? WHERE id = ?"
_UNLOCK: Final = """
UPDATE main.queue_items
SET state = 'ready', subscription = NULL, holder = ?, locked = NULL, until = NULL, outbox = NULL,
    deliveries = deliveries - ?
WHERE id = ?
"""
_BURY: Final = """
UPDATE main.queue_items
SET state = 'dead', reason = ?, expires = NULL, due = NULL, until = NULL, outbox = NULL
WHERE id = ?
"""
_REQUEUE: Final = """
UPDATE main.queue_items
SET state = 'ready', reason = NULL, spared = deliveries, subscription = NULL, holder = NULL,
    locked = NULL, since = ?
WHERE id = ? AND state = 'dead'
"""
_DELETE: Final = "DELETE FROM main.queue_items WHERE id = ?"
_PURGE: Final = "DELETE FROM main.queue_items WHERE queue = ?"
_HELD_BY: Final = f"{ITEM} WHERE state = 'locked' AND holder = ? ORDER BY id"
_HELD_BY_BARE: Final = f"""{ITEM}
WHERE state = 'locked' AND holder > ? || '/' AND holder < ? || '0' ORDER BY id
"""


def get(tx: Transaction, id: int) -> Queue | None:
    """Return a queue by its number."""
    return _queue(tx.row(_GET, (id,)))


def of_node(tx: Transaction, node: int) -> Queue | None:
    """Return the queue of a node, by its number, if it is a queue."""
    return _queue(tx.row(_OF_NODE, (node,)))


def of_share(tx: Transaction, share: str, filter: str) -> Queue | None:
    """Return the queue of a share, if it is there."""
    return _queue(tx.row(_OF_SHARE, (share, filter)))


def add_of_node(
    tx: Transaction,
    node: int,
    policy: str = "least-loaded",
    lock_timeout: float = LOCK_TIMEOUT,
    max_deliveries: int = MAX_DELIVERIES,
) -> Queue:
    """Make the queue of a node, by its number; `lock_timeout` is in seconds."""
    return _added(tx, (node, None, None, policy, lock_timeout, max_deliveries))


def add_share(tx: Transaction, share: str, filter: str, policy: str = "least-loaded") -> Queue:
    """Make the queue of a share."""
    return _added(tx, (None, share, filter, policy, LOCK_TIMEOUT, MAX_DELIVERIES))


def _added(tx: Transaction, values: tuple[Any, ...]) -> Queue:
    return Queue._make(tx.row(_GET, (tx.run(_ADD, values).lastrowid,)))


def configure(
    tx: Transaction, queue: Queue, policy: str, lock_timeout: float, max_deliveries: int
) -> None:
    """Write down how a queue works; to go by hash, or no more, may take a look at each item."""
    tx.run(_CONFIGURE, (policy, lock_timeout, max_deliveries, queue.id))
    if policy != queue.policy:
        queue_slots.settle(tx, queue.id, by_hash=policy == Choice.HASH.value)


def favour(tx: Transaction, queue: int, subscription: int) -> None:
    """Note which subscription a sticky queue gives all to."""
    tx.run(_FAVOUR, (subscription, queue))


def remove(tx: Transaction, queue: int) -> None:
    """Remove a queue and all that is in it."""
    tx.run(_PURGE, (queue,))  # first: what is removed by another's removal is not counted
    tx.run(_REMOVE, (queue,))


def usage(tx: Transaction, queue: int) -> tuple[Usage, Usage]:
    """Return how much is in a queue, and in all."""
    items, size, all_items, all_bytes = tx.row(_USAGE, (queue,))
    return Usage(items or 0, size or 0), Usage(all_items, all_bytes)


# Items


def charge(item: str, publisher: str, body: bytes) -> int:
    """Return what an item costs its queue, in bytes."""
    return len(body) + len(item.encode()) + len(publisher.encode()) + OVERHEAD


def at(tx: Transaction, row: int) -> Item | None:
    """Return an item by its place, if it is there still."""
    found = tx.row(_AT, (row,))
    return None if found is None else Item._make(found)


def find(tx: Transaction, queue: int, item: str) -> Item | None:
    """Return an item of a queue by its ItemID."""
    found = tx.row(_FIND, (queue, item))
    return None if found is None else Item._make(found)


def enqueue(
    tx: Transaction,
    queue: Queue,
    node: str,
    item: str,
    publisher: str,
    body: bytes,
    *,
    priority: int = 0,
    due: float | None = None,
    expires: float | None = None,
) -> int:
    """Put an item at the end of the line; returns its place. `due` is when it is ready, if not at
    once, `expires` when it is too late; in service seconds."""
    state = "ready" if due is None else "delayed"
    now, size, place = tx.now, charge(item, publisher, body), _slot(queue, publisher)
    what = (queue.id, node, item, publisher, state, priority, now.wall, now.service)
    row = tx.run(_ENQUEUE, (*what, due, expires, place, size)).lastrowid
    tx.run(_ADD_BODY, (row, body))
    return int(row or 0)


def replace(
    tx: Transaction,
    queue: Queue,
    item: Item,
    publisher: str,
    body: bytes,
    expires: float | None = None,
) -> None:
    """Give an item that waits another payload; it keeps its place."""
    size, now = charge(item.item, publisher, body), tx.now
    tx.run(
        _REPLACE,
        (publisher, now.wall, now.service, expires, _slot(queue, publisher), size, item.row),
    )
    tx.run(_SET_BODY, (body, item.row))
    tx.run(_WEIGH, (size - item.bytes, queue.id))
    tx.run(_WEIGH_ALL, (size - item.bytes,))


def _slot(queue: Queue, publisher: str) -> int | None:
    return slot(publisher) if queue.policy == Choice.HASH.value else None


def heads(tx: Transaction, queue: int, limit: int) -> list[Item]:
    """Return the first that wait, in order."""
    return _items(tx.rows(_HEADS, (queue, tx.now.service, limit)))


def body(tx: Transaction, row: int) -> bytes:
    """Return the payload of an item that is there; empty if it has none."""
    return bytes(tx.row(_BODY, (row,))[0])


def lock(
    tx: Transaction, row: int, subscription: int, holder: str, until: float | None = None
) -> None:
    """Give an item to a session of a member, `until` a service second or for as long as it takes:
    one more delivery."""
    tx.run(_LOCK, (subscription, holder, tx.now.service, until, row))
    tx.run(_RECEIVED, (row, holder))


def sent_by(tx: Transaction, row: int, outbox: int) -> None:
    """Note which row of the outbox an item is sent by."""
    tx.run(_SENT_BY, (outbox, row))


def has_received(tx: Transaction, row: int, full: str) -> bool:
    """Tell whether a session had an item before."""
    return tx.row(_HAS_RECEIVED, (row, full)) is not None


def unlock(tx: Transaction, row: int, avoid: str | None = None, *, delivered: bool = True) -> None:
    """Let an item wait again, not for `avoid` if others are there; was it ever `delivered`?"""
    tx.run(_UNLOCK, (avoid, not delivered, row))


def bury(tx: Transaction, row: int, reason: str) -> None:
    """Keep an item as dead."""
    tx.run(_BURY, (reason, row))


def requeue(tx: Transaction, row: int) -> bool:
    """Let a dead item wait again, at its old place; false if it is not dead."""
    return tx.run(_REQUEUE, (tx.now.service, row)).rowcount > 0


def delete(tx: Transaction, row: int) -> None:
    """Remove an item."""
    tx.run(_DELETE, (row,))


def purge(tx: Transaction, queue: int) -> int:
    """Remove all items of a queue; returns how many they were."""
    return tx.run(_PURGE, (queue,)).rowcount


def held_by(tx: Transaction, jid: str) -> list[Item]:
    """Return the items that a full JID has, or all sessions of a bare one."""
    if "/" in jid:
        return _items(tx.rows(_HELD_BY, (jid,)))
    return _items(tx.rows(_HELD_BY_BARE, (jid, jid)))


def _items(rows: Sequence[Any]) -> list[Item]:
    return [Item._make(row) for row in rows]


def _queue(row: Any) -> Queue | None:
    return None if row is None else Queue._make(row)
