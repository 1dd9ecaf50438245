"""Store the items of nodes other than queues.

An item's position is its row number: each publication gets a higher one, also if its ItemID exists
already. Triggers change the numbers of items and bytes of each node and of all nodes in the rows;
`_count` changes those that are cached in memory (`Transaction.cache`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from edge.engine.database import Transaction
from edge.engine.quota import Usage
from edge.features.pubsub.store import nodes

OVERHEAD: Final = 64
"""Bytes charged for a row beside its payload, ItemID and publisher."""

EXPIRY_BATCH: Final = 256
"""Items that expire in one unit of work."""

LAST_POSITION: Final = 2**62
"""A position after every item's."""

_UNLIMITED: Final = 2**62


class Item(NamedTuple):
    """A stored item.

    `id` is the ItemID, `publisher` a full JID, `published` the time of publication (ms since 1970),
    `size` the number of bytes charged for the item, and `payload` is empty if it has none.
    """

    position: int
    id: str
    publisher: str
    published: int
    size: int
    payload: bytes


_TOTAL_CACHE: Final = "items total"

_REMOVE: Final = "DELETE FROM main.items WHERE node = ? AND item = ? RETURNING bytes"
_MAKE_ROOM: Final = """
DELETE FROM main.items WHERE id IN (
    SELECT id FROM main.items WHERE node = ?1 AND item = ?2
    UNION ALL
    SELECT id FROM (
        SELECT id FROM main.items WHERE node = ?1 AND item <> ?2 ORDER BY id
        LIMIT max(0, ?3 - EXISTS (SELECT 1 FROM main.items WHERE node = ?1 AND item = ?2))
    )
)
RETURNING bytes
"""
_PUT: Final = """
INSERT INTO main.items (node, item, publisher, wall, expires, bytes, body)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_GET: Final = """
SELECT id, item, publisher, wall, bytes, body FROM main.items WHERE node = ? AND item = ?
"""
_POSITION: Final = "SELECT id FROM main.items WHERE node = ? AND item = ?"
_AFTER: Final = """
SELECT id, item, publisher, wall, bytes, body FROM main.items
WHERE node = ? AND id > ? ORDER BY id LIMIT ? OFFSET ?
"""
_BEFORE: Final = """
SELECT id, item, publisher, wall, bytes, body FROM main.items
WHERE node = ? AND id < ? ORDER BY id DESC LIMIT ? OFFSET ?
"""
_ITEM_IDS: Final = "SELECT item FROM main.items WHERE node = ? ORDER BY id LIMIT ? OFFSET ?"
_COUNT_BEFORE: Final = "SELECT count(*) FROM main.items WHERE node = ? AND id < ?"
_PURGE: Final = "DELETE FROM main.items WHERE node = ?"
_OLDEST: Final = """
SELECT id, bytes FROM main.items WHERE node = ? ORDER BY id
LIMIT max(0, (SELECT items FROM main.nodes WHERE id = ?) - ?)
"""
_SIZE: Final = "SELECT bytes FROM main.items WHERE node = ? AND item = ?"
_REMOVE_ROW: Final = "DELETE FROM main.items WHERE id = ?"
_TOTAL: Final = "SELECT items, bytes FROM main.items_total"
_EXPIRE: Final = """
DELETE FROM main.items WHERE id IN (
    SELECT id FROM main.items WHERE expires <= ? ORDER BY expires LIMIT ?
)
"""
_NEXT_EXPIRY: Final = "SELECT min(expires) FROM main.items WHERE expires IS NOT NULL"


def charge(item_id: str, publisher: str, payload: bytes) -> int:
    """Return the bytes charged for storing an item."""
    return len(item_id.encode()) + len(publisher.encode()) + len(payload) + OVERHEAD


def put(
    tx: Transaction,
    node_id: int,
    item_id: str,
    publisher: str,
    payload: bytes,
    size: int,
    expires: float | None = None,
    excess: int = 0,
) -> None:
    """Store an item as the last one of its node and remove the previous one of the same ItemID.

    Args:
        publisher: the full JID of the publisher.
        payload: the payload; empty if there is none.
        size: the bytes charged for it (`charge`).
        expires: the service second at which it expires, if it does.
        excess: how many of the oldest items are removed, too; one less if the ItemID exists.
    """
    removed = tx.run_apart(_MAKE_ROOM, (node_id, item_id, excess)).fetchall()
    tx.run_apart(_PUT, (node_id, item_id, publisher, tx.now.wall, expires, size, payload))
    _count(tx, node_id, 1 - len(removed), size - sum(bytes for (bytes,) in removed))
    if expires is not None:
        tx.wake_at(expires)


def get(tx: Transaction, node_id: int, item_id: str) -> Item | None:
    """Return an item by its ItemID."""
    row = tx.row(_GET, (node_id, item_id))
    return None if row is None else Item(*row)


def position(tx: Transaction, node_id: int, item_id: str) -> int | None:
    """Return the position of an item by its ItemID."""
    row = tx.row(_POSITION, (node_id, item_id))
    return None if row is None else int(row[0])


def page(
    tx: Transaction,
    node_id: int,
    limit: int,
    *,
    after: int = 0,
    before: int | None = None,
    skip: int = 0,
    max_bytes: int = _UNLIMITED,
) -> list[Item]:
    """Return items of a node in the order of their publication.

    Args:
        after: return the first items after this position;
        before: if given, return the last items before this position instead.
        skip: the number of items to skip from there.
        max_bytes: the maximum sum of their sizes; the first item is returned whatever its size.
    """
    backward = before is not None
    rows = tx.run(_BEFORE if backward else _AFTER, (node_id, before or after, limit, skip))
    found: list[Item] = []
    room = max_bytes
    for row in rows:
        item = Item(*row)
        room -= item.size
        if found and room < 0:
            break
        found.append(item)
    return found[::-1] if backward else found


def item_ids(tx: Transaction, node_id: int, start: int, limit: int) -> list[str]:
    """Return at most `limit` ItemIDs of a node in the order of their publication, beginning with
    number `start` (from 0)."""
    return [str(item) for (item,) in tx.rows(_ITEM_IDS, (node_id, limit, start))]


def count_before(tx: Transaction, node_id: int, position: int) -> int:
    """Return the number of a node's items before a position."""
    return int(tx.row(_COUNT_BEFORE, (node_id, position))[0])


def last(tx: Transaction, node_id: int) -> Item | None:
    """Return the item of a node that was published last."""
    row = tx.row(_BEFORE, (node_id, LAST_POSITION, 1, 0))
    return None if row is None else Item(*row)


def remove(tx: Transaction, node_id: int, item_id: str) -> bool:
    """Remove an item; return whether it existed."""
    return _count_removed(tx, node_id, tx.rows(_REMOVE, (node_id, item_id))) > 0


def purge(tx: Transaction, node_id: int) -> int:
    """Remove all items of a node; return their number."""
    return _remove_many(tx, _PURGE, (node_id,))


def trim(tx: Transaction, node_id: int, max_items: int) -> int:
    """Remove the oldest items of a node in excess of `max_items`; return their number."""
    rows: Sequence[tuple[int, int]] = tx.rows(_OLDEST, (node_id, node_id, max_items))
    for row, _size in rows:
        tx.run(_REMOVE_ROW, (row,))
    return _count_removed(tx, node_id, [(size,) for _row, size in rows])


def usage_replaced(tx: Transaction, node_id: int, item_id: str, max_items: int) -> Usage:
    """Return the usage that publishing an item frees: that of the item of the same ItemID, else
    that of the oldest items in excess of `max_items`."""
    same = tx.row(_SIZE, (node_id, item_id))
    if same is not None:
        return Usage(1, same[0])
    rows = tx.rows(_OLDEST, (node_id, node_id, max_items - 1))
    return Usage(len(rows), sum(size for _row, size in rows))


def total(tx: Transaction) -> Usage:
    """Return the number and bytes of all nodes' items."""
    found: Usage | None = tx.cache.get(_TOTAL_CACHE)
    if found is None:
        found = tx.cache[_TOTAL_CACHE] = Usage(*tx.row(_TOTAL))
    return found


def expire(tx: Transaction) -> int:
    """Remove at most `EXPIRY_BATCH` expired items; return their number."""
    return _remove_many(tx, _EXPIRE, (tx.now.service, EXPIRY_BATCH))


def next_expiry(tx: Transaction) -> float | None:
    """Return the service second at which the next item expires."""
    row = tx.row(_NEXT_EXPIRY)
    return None if row is None else row[0]


def _remove_many(tx: Transaction, sql: str, values: tuple[float, ...]) -> int:
    """Remove items, drop the cached counts, and return the number of removed items."""
    count = tx.run(sql, values).rowcount
    if count:
        nodes.forget_all(tx)
        tx.cache.pop(_TOTAL_CACHE, None)
    return count


def _count_removed(tx: Transaction, node_id: int, sizes: Sequence[tuple[int]]) -> int:
    _count(tx, node_id, -len(sizes), -sum(size for (size,) in sizes))
    return len(sizes)


def _count(tx: Transaction, node_id: int, items: int, size: int) -> None:
    """Add items and bytes to the cached counts of a node and of all, as triggers do to the rows."""
    nodes.count_items(tx, node_id, items, size)
    total: Usage | None = tx.cache.get(_TOTAL_CACHE)
    if total is not None:
        tx.cache[_TOTAL_CACHE] = Usage(total.messages + items, total.bytes + size)
