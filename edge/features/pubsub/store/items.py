"""Items of nodes that are no queues: what they keep of what was published to them.

An item's row is its place: it rises with each publication, also where an ItemID is published anew.
How many a node and all of them have is kept by triggers. How many there may be is decided by who
puts them; queues keep theirs apart (`store.queues`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from edge.engine.database import Transaction
from edge.features.custody.quota import Usage

OVERHEAD: Final = 64
"""Bytes that a row costs beside its payload, its ItemID and its publisher."""

EXPIRY_BATCH: Final = 256
"""How many items expire in one unit of work."""


END: Final = 2**62
"""A place behind every item's; as bytes, no bound."""


class Item(NamedTuple):
    """An item: its place, its ItemID, its publisher (full JID), when it was published (ms since
    1970), what it is charged with (bytes), and its payload, empty if it has none."""

    row: int
    item: str
    publisher: str
    wall: int
    size: int
    body: bytes


_TAKE_AWAY: Final = "DELETE FROM main.items WHERE node = ? AND item = ?"
_PUT: Final = """
INSERT INTO main.items (node, item, publisher, wall, expires, bytes, body)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_GET: Final = """
SELECT id, item, publisher, wall, bytes, body FROM main.items WHERE node = ? AND item = ?
"""
_ROW: Final = "SELECT id FROM main.items WHERE node = ? AND item = ?"
_AFTER: Final = """
SELECT id, item, publisher, wall, bytes, body FROM main.items
WHERE node = ? AND id > ? ORDER BY id LIMIT ? OFFSET ?
"""
_BEFORE: Final = """
SELECT id, item, publisher, wall, bytes, body FROM main.items
WHERE node = ? AND id < ? ORDER BY id DESC LIMIT ? OFFSET ?
"""
_NAMES: Final = "SELECT item FROM main.items WHERE node = ? ORDER BY id LIMIT ? OFFSET ?"
_EARLIER: Final = "SELECT count(*) FROM main.items WHERE node = ? AND id < ?"
_PURGE: Final = "DELETE FROM main.items WHERE node = ?"
_OLDEST: Final = """
SELECT id, bytes FROM main.items WHERE node = ? ORDER BY id
LIMIT max(0, (SELECT items FROM main.nodes WHERE id = ?) - ?)
"""
_SIZE: Final = "SELECT bytes FROM main.items WHERE node = ? AND item = ?"
_FORGET: Final = "DELETE FROM main.items WHERE id = ?"
_TOTAL: Final = "SELECT items, bytes FROM main.items_total"
_EXPIRED: Final = """
DELETE FROM main.items WHERE id IN (
    SELECT id FROM main.items WHERE expires <= ? ORDER BY expires LIMIT ?
)
"""
_FIRST_DUE: Final = "SELECT min(expires) FROM main.items WHERE expires IS NOT NULL"


def charge(item: str, publisher: str, body: bytes) -> int:
    """Return what keeping an item costs, in bytes."""
    return len(item.encode()) + len(publisher.encode()) + len(body) + OVERHEAD


def put(
    tx: Transaction,
    node_id: int,
    item: str,
    publisher: str,
    body: bytes,
    size: int,
    expires: float | None = None,
) -> None:
    """Keep an item as the last one of its node, in place of the one of the same ItemID.

    `publisher` is a full JID, `size` what the item is charged with, and `expires` the service
    second at which it goes by itself, if it does.
    """
    tx.run(_TAKE_AWAY, (node_id, item))
    tx.run(_PUT, (node_id, item, publisher, tx.now.wall, expires, size, body))
    if expires is not None:
        tx.wake_at(expires)


def get(tx: Transaction, node_id: int, item: str) -> Item | None:
    """Return an item by its ItemID."""
    row = tx.row(_GET, (node_id, item))
    return None if row is None else Item(*row)


def place(tx: Transaction, node_id: int, item: str) -> int | None:
    """Return the place of an item."""
    row = tx.row(_ROW, (node_id, item))
    return None if row is None else int(row[0])


def page(
    tx: Transaction,
    node_id: int,
    limit: int,
    *,
    after: int = 0,
    before: int | None = None,
    skip: int = 0,
    max_bytes: int = END,
) -> list[Item]:
    """Return items of a node in the order of their publication.

    Args:
        tx: the transaction.
        node_id: the number of the node.
        limit: how many at most.
        after: those behind this place, the first ones of them; or,
        before: if it is given, those in front of this place, the last ones of them.
        skip: leave out so many of those behind.
        max_bytes: of payloads; there is always one item, if there is any.
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


def names(tx: Transaction, node_id: int, start: int, limit: int) -> list[str]:
    """Return the ItemIDs of items of a node, `limit` at most, in the order of their publication;
    the first `start` are left out."""
    return [str(item) for (item,) in tx.rows(_NAMES, (node_id, limit, start))]


def earlier(tx: Transaction, node_id: int, place: int) -> int:
    """Return how many items of a node stand in front of a place."""
    return int(tx.row(_EARLIER, (node_id, place))[0])


def last(tx: Transaction, node_id: int) -> Item | None:
    """Return what was published last."""
    row = tx.row(_BEFORE, (node_id, END, 1, 0))
    return None if row is None else Item(*row)


def remove(tx: Transaction, node_id: int, item: str) -> bool:
    """Forget an item; false if there is none."""
    return tx.run(_TAKE_AWAY, (node_id, item)).rowcount > 0


def purge(tx: Transaction, node_id: int) -> int:
    """Forget all items of a node; returns how many there were."""
    return tx.run(_PURGE, (node_id,)).rowcount


def trim(tx: Transaction, node_id: int, max_items: int) -> int:
    """Forget the oldest items of a node beyond `max_items`; returns how many those were."""
    rows: Sequence[tuple[int, int]] = tx.rows(_OLDEST, (node_id, node_id, max_items))
    for row, _size in rows:
        tx.run(_FORGET, (row,))
    return len(rows)


def leaving(tx: Transaction, node_id: int, item: str, max_items: int) -> Usage:
    """Return what publishing an item will remove: the one of the same ItemID, or else what is then
    beyond `max_items`."""
    same = tx.row(_SIZE, (node_id, item))
    if same is not None:
        return Usage(1, same[0])
    rows = tx.rows(_OLDEST, (node_id, node_id, max_items - 1))
    return Usage(len(rows), sum(size for _row, size in rows))


def total(tx: Transaction) -> Usage:
    """Return how many items all nodes keep, and the bytes of those."""
    return Usage(*tx.row(_TOTAL))


def expire(tx: Transaction) -> int:
    """Forget items whose time is over: a bounded number; returns how many."""
    return tx.run(_EXPIRED, (tx.now.service, EXPIRY_BATCH)).rowcount


def first_due(tx: Transaction) -> float | None:
    """Return when the next item expires, in service seconds."""
    row = tx.row(_FIRST_DUE)
    return None if row is None else row[0]
