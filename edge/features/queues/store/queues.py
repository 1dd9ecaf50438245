"""Queues: one for each queue node (XEP-0254) and for each shared subscription (MQTT-234).

Queues in use, and the total of all queues, are cached in memory (`Transaction.cache`). The store of
items and SQL triggers update the numbers of items and bytes in the rows (`queue_items`);
`count_items` updates them in the cache.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from edge.engine.limits import source_usage
from edge.engine.rules.quota import Usage
from edge.engine.store.database import Transaction
from edge.features.queues.rules.transitions import MAX_DELIVERIES

LOCK_TIMEOUT: Final = 60.0
"""Default time for which an item of a queue node is locked, in service seconds. Locks of items of
shared subscriptions do not time out."""

CACHED_QUEUES: Final = 256
"""Maximum number of cached queues, and of queues with cached members; a full cache is emptied."""

_CACHE: Final = "queues"
_USAGE: Final = "usage of queues"


class Queue(NamedTuple):
    """Queue of a node or of a shared subscription.

    Attributes:
        node: the number of its node; `None` for a shared subscription.
        share: the name of the shared subscription; `None` for a queue node.
        filter: the topic filter of the shared subscription; `None` for a queue node.
        policy: the rule that chooses members, a value of `QueuePolicy`.
        favourite: the number of the subscription that gets all items under the sticky policy.
        lock_timeout: service seconds for which an item is locked; unused for shared subscriptions.
        max_deliveries: the deliveries after which an uncompleted item is dead.
        owner: the bare JID that holds a shared subscription, for which its items count; `None` for
            a queue node, whose items count for their authors.
        items: the number of items in the queue, in any state.
        bytes: the bytes charged for these items.
    """

    id: int
    node: int | None
    share: str | None
    filter: str | None
    policy: str
    favourite: int | None
    lock_timeout: float
    max_deliveries: int
    owner: str | None
    items: int
    bytes: int


_QUEUE: Final = """
SELECT id, node, share, filter, policy, favourite, lock_timeout, max_deliveries, owner, items, bytes
FROM main.queues
"""
_GET: Final = f"{_QUEUE} WHERE id = ?"
_OF_NODE: Final = f"{_QUEUE} WHERE node = ?"
_OF_SHARE: Final = f"{_QUEUE} WHERE share = ? AND filter = ?"
_ADD: Final = """
INSERT INTO main.queues (node, share, filter, policy, lock_timeout, max_deliveries, owner)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_CONFIGURE: Final = """
UPDATE main.queues SET policy = ?, lock_timeout = ?, max_deliveries = ? WHERE id = ?
"""
_SET_FAVOURITE: Final = "UPDATE main.queues SET favourite = ? WHERE id = ?"
_REMOVE_ITEMS: Final = "DELETE FROM main.queue_items WHERE queue = ?"
_SHARES_WITHOUT_MEMBERS: Final = """
SELECT id FROM queues AS q WHERE share IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM subscriptions AS s WHERE s.queue = q.id)
ORDER BY id
"""
_REMOVE: Final = "DELETE FROM main.queues WHERE id = ?"
_TOTAL: Final = "SELECT items, bytes FROM main.queues_total"
_OF_SOURCE: Final = "SELECT items, bytes FROM main.queue_sources WHERE source = ?"


class _Cache:
    """Queues by number, and queue numbers by the number of the node."""

    __slots__ = ("by_id", "of_nodes")

    def __init__(self) -> None:
        self.by_id: dict[int, Queue] = {}
        self.of_nodes: dict[int, int] = {}


def get(tx: Transaction, id: int) -> Queue | None:
    """Return a queue by its number."""
    cache: _Cache | None = tx.cache.get(_CACHE)
    found = None if cache is None else cache.by_id.get(id)
    return found or _keep(tx, tx.row(_GET, (id,)))


def of_node(tx: Transaction, node: int) -> Queue | None:
    """Return the queue of a node, given by number; `None` if it is not a queue node."""
    cache: _Cache | None = tx.cache.get(_CACHE)
    id = None if cache is None else cache.of_nodes.get(node)
    if cache is not None and id is not None:
        return cache.by_id[id]
    return _keep(tx, tx.row(_OF_NODE, (node,)))


def _keep(tx: Transaction, row: Any) -> Queue | None:
    found = _queue(row)
    if found is not None:
        cache: _Cache | None = tx.cache.get(_CACHE)
        if cache is None or len(cache.by_id) >= CACHED_QUEUES:
            cache = tx.cache[_CACHE] = _Cache()
        cache.by_id[found.id] = found
        if found.node is not None:
            cache.of_nodes[found.node] = found.id
    return found


def forget(tx: Transaction) -> None:
    """Drop the cached queues, and the cached usage of all queues together and of sources."""
    for key in (_CACHE, _USAGE):
        tx.cache.pop(key, None)


def count_items(tx: Transaction, queue: Queue, author: str, items: int, size: int) -> None:
    """Add to the cached numbers of items and bytes of a queue, of all queues, and of the source for
    which an item of this author counts."""
    source = queue.owner or author
    _count(tx.cache, queue.id, source, items, size)
    tx.on_undo(_count, tx.cache, queue.id, source, -items, -size)


def _count(caches: dict[str, Any], id: int, source: str, items: int, size: int) -> None:
    source_usage.count(caches, _USAGE, source, items, size)
    cache: _Cache | None = caches.get(_CACHE)
    queue = None if cache is None else cache.by_id.get(id)
    if cache is not None and queue is not None:
        totals = queue.items + items, queue.bytes + size
        cache.by_id[id] = Queue._make(queue[:-2] + totals)


def of_share(tx: Transaction, share: str, filter: str) -> Queue | None:
    """Return the queue of a shared subscription; `None` if it does not exist."""
    return _queue(tx.row(_OF_SHARE, (share, filter)))


def add_for_node(
    tx: Transaction,
    node: int,
    policy: str = "least-loaded",
    lock_timeout: float = LOCK_TIMEOUT,
    max_deliveries: int = MAX_DELIVERIES,
) -> Queue:
    """Create the queue of a node, given by number; `lock_timeout` is in service seconds."""
    return _add(tx, (node, None, None, policy, lock_timeout, max_deliveries, None))


def add_for_share(
    tx: Transaction, share: str, filter: str, policy: str = "least-loaded", owner: str = ""
) -> Queue:
    """Create the queue of a shared subscription; `owner` is the bare JID of its first member."""
    return _add(tx, (None, share, filter, policy, LOCK_TIMEOUT, MAX_DELIVERIES, owner))


def _add(tx: Transaction, values: tuple[Any, ...]) -> Queue:
    return Queue._make(tx.row(_GET, (tx.run(_ADD, values).lastrowid,)))


def configure(
    tx: Transaction, queue: int, policy: str, lock_timeout: float, max_deliveries: int
) -> None:
    """Change the options of a queue."""
    tx.run(_CONFIGURE, (policy, lock_timeout, max_deliveries, queue))
    forget(tx)


def set_favourite(tx: Transaction, queue: int, subscription: int) -> None:
    """Set the subscription that gets all items of a queue under the sticky policy."""
    tx.run(_SET_FAVOURITE, (subscription, queue))
    forget(tx)


def remove(tx: Transaction, queue: int) -> None:
    """Remove a queue and all its items."""
    tx.run(_REMOVE_ITEMS, (queue,))  # items that a cascade deletes would stay in the totals
    tx.run(_REMOVE, (queue,))
    forget(tx)


def shares_without_members(tx: Transaction) -> list[int]:
    """Return the queue numbers of shares that have no members, because accounts were removed."""
    return [int(queue) for (queue,) in tx.rows(_SHARES_WITHOUT_MEMBERS)]


def total(tx: Transaction) -> Usage:
    """Return the number and bytes of the items of all queues together."""
    return source_usage.get(tx, _USAGE, _TOTAL)


def usage_of(tx: Transaction, source: str) -> Usage:
    """Return the number and bytes of the items in all queues that count for a bare JID."""
    return source_usage.get(tx, _USAGE, _OF_SOURCE, source)


def _queue(row: Any) -> Queue | None:
    return None if row is None else Queue._make(row)
