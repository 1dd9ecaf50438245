"""Store the items of nodes other than queues.

The position of an item is its row number. Each publication gets a higher number, even if the ItemID
exists already. The number and bytes of the items of each node, of each author, and of all nodes are
kept in two places: `_insert` and, for deleted items, SQL triggers update the rows; `_count` updates
the copies in memory (`Transaction.cache`).

The ItemIDs of nodes with few items are cached too, so that publishing an item reads no rows. The
insertion of its row and the deletion of replaced rows are written later, in one batch for several
units of work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final, NamedTuple, TypeAlias

from edge.engine.dispatch import item_attributes
from edge.engine.dispatch.item_attributes import NO_ATTRIBUTES, ItemAttributes
from edge.engine.limits import source_usage
from edge.engine.rules.quota import StoreUsage, Usage
from edge.engine.store import row_numbers
from edge.engine.store.database import Transaction
from edge.engine.store.image import Changes, Table, write_rows
from edge.features.pubsub.rules.replacement import author_of
from edge.features.pubsub.store import nodes

OVERHEAD: Final = 64
"""Bytes that count towards the limits for an item besides its payload, ItemID and publisher."""

CACHED_ITEMS: Final = 64
"""A node's ItemIDs are cached only if the node has at most this many items."""

CACHED: Final = 8192
"""Maximum number of nodes and ItemIDs in the cache, together; a full cache is emptied. Each takes
about 250 bytes."""

EXPIRY_BATCH: Final = 256
"""Maximum number of expired items that one unit of work removes."""

LAST_POSITION: Final = 2**62
"""Position greater than that of any item."""

_UNLIMITED: Final = 2**62


class StoredItem(NamedTuple):
    """A stored item.

    `id` is the ItemID, `publisher` a full JID, `published` the time of publication (ms since 1970),
    `size` the number of bytes charged for the item, and `payload` is empty if there is none. The
    item expires at the service second `expires`, if it does. Of the attributes, content type, QoS
    and properties are stored.
    """

    position: int
    id: str
    publisher: str
    published: int
    size: int
    payload: bytes
    expires: float | None
    attributes: ItemAttributes


_Known: TypeAlias = dict[str, tuple[int, int, str]]
"""Row number, size in bytes and author of each item of a node, by ItemID, in the order of row
numbers."""


class _Cache:
    """The ItemIDs of nodes by node, `None` for a node with more than `CACHED_ITEMS` items; `size`
    is at least the number of the nodes and ItemIDs."""

    __slots__ = ("by_node", "size")

    def __init__(self) -> None:
        self.by_node: dict[int, _Known | None] = {}
        self.size = 0


_ITEMS: Final = "items"  # the table
_CACHE: Final = "items of nodes"
_USAGE: Final = "usage of items"

_REMOVE: Final = (
    "DELETE FROM main.items WHERE node = ? AND item = ? RETURNING author, publisher, bytes"
)
_MAKE_ROOM: Final = """
DELETE FROM main.items WHERE id IN (
    SELECT id FROM main.items WHERE node = ?1 AND item = ?2
    UNION ALL
    SELECT id FROM (
        SELECT id FROM main.items WHERE node = ?1 AND item <> ?2 ORDER BY id
        LIMIT max(0, ?3 - EXISTS (SELECT 1 FROM main.items WHERE node = ?1 AND item = ?2))
    )
)
RETURNING author, publisher, bytes
"""
_PUT: Final = """
INSERT INTO main.items (
    id, node, item, publisher, wall, expires, bytes, body, content_type, qos, properties
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_REPLACE: Final = """
UPDATE main.items SET
    id = ?1, item = ?3, publisher = ?4, wall = ?5, expires = ?6, bytes = ?7, body = ?8,
    content_type = ?9, qos = ?10, properties = ?11
WHERE id = ?12
"""
_PUBLISHER, _BYTES = 3, 6
"""The places of columns among the values of `_PUT`."""

_COUNT_NEW: Final = (
    "UPDATE main.nodes SET items = items + ?3, bytes = bytes + ?4 WHERE id = ?1",
    """INSERT INTO main.item_sources (source, items, bytes) VALUES (?2, ?3, ?4)
    ON CONFLICT (source) DO UPDATE SET items = items + ?3, bytes = bytes + ?4""",
    "UPDATE main.items_total SET items = items + ?3, bytes = bytes + ?4",
)
_KNOWN: Final = """
SELECT item, id, bytes, author, publisher FROM main.items WHERE node = ? ORDER BY id LIMIT ?
"""
_COLUMNS: Final = """
SELECT id, item, publisher, wall, bytes, body, expires, content_type, qos, properties
FROM main.items
"""
_GET: Final = f"{_COLUMNS} WHERE node = ? AND item = ?"
_AUTHOR: Final = "SELECT author, publisher FROM main.items WHERE node = ? AND item = ?"
_POSITION: Final = "SELECT id FROM main.items WHERE node = ? AND item = ?"
_AFTER: Final = f"{_COLUMNS} WHERE node = ? AND id > ? ORDER BY id LIMIT ? OFFSET ?"
_BEFORE: Final = f"{_COLUMNS} WHERE node = ? AND id < ? ORDER BY id DESC LIMIT ? OFFSET ?"
_NEWEST_OF_NODES: Final = """
SELECT n.name, i.bytes FROM main.nodes AS n JOIN main.items AS i
    ON i.id = (SELECT max(id) FROM main.items WHERE node = n.id)
WHERE n.id = ?1 OR ?1 IS NULL ORDER BY i.id DESC
"""
_ITEM_IDS: Final = "SELECT item FROM main.items WHERE node = ? ORDER BY id LIMIT ? OFFSET ?"
_COUNT_BEFORE: Final = "SELECT count(*) FROM main.items WHERE node = ? AND id < ?"
_PURGE: Final = "DELETE FROM main.items WHERE node = ?"
_OLDEST: Final = """
SELECT id, author, publisher, bytes FROM main.items WHERE node = ? ORDER BY id
LIMIT max(0, coalesce((SELECT items FROM main.nodes WHERE id = ?), 0) - ?)
"""
_SAME: Final = "SELECT author, publisher, bytes FROM main.items WHERE node = ? AND item = ?"
_REMOVE_ROW: Final = "DELETE FROM main.items WHERE id = ?"
_TOTAL: Final = "SELECT items, bytes FROM main.items_total"
_OF_SOURCE: Final = "SELECT items, bytes FROM main.item_sources WHERE source = ?"
_EXPIRE: Final = """
DELETE FROM main.items WHERE id IN (
    SELECT id FROM main.items WHERE expires <= ? ORDER BY expires LIMIT ?
)
"""
_NEXT_EXPIRY: Final = "SELECT min(expires) FROM main.items WHERE expires IS NOT NULL"


def put(
    tx: Transaction,
    node_id: int,
    item_id: str,
    publisher: str,
    payload: bytes,
    size: int,
    expires: float | None = None,
    excess: int = 0,
    attributes: ItemAttributes = NO_ATTRIBUTES,
) -> None:
    """Store an item as the last item of its node, in place of an older item with the same ItemID.

    Args:
        publisher: the full JID of the publisher.
        payload: the payload; empty if there is none.
        size: the bytes charged for the item.
        expires: the service second at which the item expires; `None` if it does not expire.
        excess: how many items to remove in all: the replaced item, if any, and then the oldest
            ones. A replaced item is removed even if `excess` is 0 or less.
        attributes: further attributes, of which content type, QoS and properties are stored.
    """
    known, author = _known(tx, node_id), author_of(None, publisher)
    row = row_numbers.take(tx, _ITEMS)
    content_type, qos, _, _, properties = attributes
    packed = item_attributes.pack(properties) if properties else None
    values = (row, node_id, item_id, publisher, tx.now.wall, expires, size, payload, content_type,
        qos, packed)  # fmt: skip
    items, growth = 1, size
    if known is None:
        _count_removed(tx, node_id, tx.rows(_MAKE_ROOM, (node_id, item_id, excess)))
        _insert(tx, [values])
    else:
        removed = [item_id] if item_id in known else []
        if excess > len(removed):
            others = (name for name in known if name != item_id)
            removed += islice(others, excess - len(removed))
        for name in removed:
            old_size, old_author = _remove_later(tx, node_id, known, name)
            if old_author == author:
                items, growth = items - 1, growth - old_size
            else:
                _count(tx, node_id, -1, -old_size, old_author)
        _TABLE.change(tx, row, None, values)
        known[item_id] = row, size, author
        tx.on_undo(known.pop, item_id)
        if not removed:
            _count_cached_item(tx, node_id, known)
    if items or growth:
        _count(tx, node_id, items, growth, author)
    if expires is not None:
        tx.wake_at(expires)


def _known(tx: Transaction, node_id: int) -> _Known | None:
    """Return the ItemIDs of a node from the cache, after reading them into it if necessary; `None`
    if the node has more than `CACHED_ITEMS` items."""
    cache: _Cache | None = tx.cache.get(_CACHE)
    if cache is not None and node_id in cache.by_node:
        return cache.by_node[node_id]
    rows = tx.rows(_KNOWN, (node_id, CACHED_ITEMS + 1))
    known: _Known | None = None
    if len(rows) <= CACHED_ITEMS:
        known = {
            item: (row, size, author_of(author, publisher))
            for item, row, size, author, publisher in rows
        }
    added = 1 + len(known or ())
    if cache is None or cache.size + added > CACHED:
        cache = tx.cache[_CACHE] = _Cache()
    cache.by_node[node_id] = known
    cache.size += added
    return known


def _count_cached_item(tx: Transaction, node_id: int, known: _Known) -> None:
    """Count a new ItemID in the cache; drop those of its node, or all, if they are too many."""
    cache: _Cache = tx.cache[_CACHE]
    cache.size += 1
    if cache.size > CACHED:
        del tx.cache[_CACHE]
    elif len(known) > CACHED_ITEMS:
        cache.by_node[node_id] = None
        tx.on_undo(cache.by_node.__setitem__, node_id, known)


def _remove_later(tx: Transaction, node_id: int, known: _Known, item_id: str) -> tuple[int, str]:
    """Remove an item, later; return its size in bytes and its author."""
    row, size, author = entry = known.pop(item_id)
    _TABLE.change(tx, row, (row, node_id, size, author), None)
    tx.on_undo(_undo_removal, known, item_id, entry)
    return size, author


def _undo_removal(known: _Known, item_id: str, entry: tuple[int, int, str]) -> None:
    known[item_id] = entry
    in_order = sorted(known.items(), key=lambda one: one[1])
    known.clear()
    known.update(in_order)


def _write(tx: Transaction, changes: Changes[tuple[Any, ...]]) -> None:
    """Write the changes to the table: deletions first, because ItemIDs are unique.

    If one item replaces one of the same node and author, it takes its row, because the triggers and
    statements that count both take longer than all else.
    """
    new = _by_node([values for values, _ in changes.new])
    deleted: list[tuple[int]] = []
    replaced: list[tuple[Any, ...]] = []
    for node_id, removed in _by_node(changes.removed).items():
        row, _node, old_size, author = removed[0]
        added = new.get(node_id, ())
        if len(removed) == len(added) == 1 and author == author_of(None, added[0][_PUBLISHER]):
            replaced.append((*added[0], row, old_size, author))
            del new[node_id]
        else:
            deleted += [(row,) for row, *_ in removed]
    write_rows(tx, _REMOVE_ROW, deleted)
    if replaced:
        tx.run_many(_REPLACE, [values[:-2] for values in replaced])
        row_numbers.write_last(tx, _ITEMS)
        growth = [(values[1], values[-1], 0, values[_BYTES] - values[-2]) for values in replaced]
        source_usage.count_new(tx, _COUNT_NEW, growth)
    if new:
        _insert(tx, list(chain.from_iterable(new.values())))


def _by_node(rows: Sequence[tuple[Any, ...]]) -> dict[int, list[tuple[Any, ...]]]:
    found: dict[int, list[tuple[Any, ...]]] = {}
    for row in rows:
        found.setdefault(row[1], []).append(row)
    return found


_TABLE: Final[Table[int, tuple[Any, ...]]] = Table(_CACHE, _write)


def _insert(tx: Transaction, rows: Sequence[tuple[Any, ...]]) -> None:
    tx.run_many(_PUT, rows)
    new = [
        (node_id, author_of(None, publisher), 1, size)
        for _row, node_id, _item, publisher, _wall, _expires, size, *_content in rows
    ]
    source_usage.count_new(tx, _COUNT_NEW, new)


def get(tx: Transaction, node_id: int, item_id: str) -> StoredItem | None:
    """Return an item by its ItemID."""
    row = tx.row(_GET, (node_id, item_id))
    return None if row is None else _item(row)


def _item(row: Sequence[Any]) -> StoredItem:
    *fields, content_type, qos, properties = row
    attributes = ItemAttributes(content_type, qos, properties=item_attributes.unpack(properties))
    return StoredItem._make((*fields, attributes))


def author(tx: Transaction, node_id: int, item_id: str) -> str | None:
    """Return the author of an item, by its ItemID; `None` if there is no such item."""
    known = _known(tx, node_id)
    if known is not None:
        found = known.get(item_id)
        return None if found is None else found[2]
    row = tx.row(_AUTHOR, (node_id, item_id))
    return None if row is None else author_of(*row)


def position(tx: Transaction, node_id: int, item_id: str) -> int | None:
    """Return an item's position in the order of publication, or `None` if there is no such item."""
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
) -> list[StoredItem]:
    """Return items of a node in the order of their publication.

    Args:
        limit: the maximum number of items.
        after: the position after which the page begins.
        before: the position before which the page ends; if given, `after` is ignored.
        skip: the number of items to skip between the page and the position `after` or `before`.
        max_bytes: the maximum sum of the items' sizes; a larger first item is returned alone.
    """
    backward = before is not None
    rows = tx.run(_BEFORE if backward else _AFTER, (node_id, before or after, limit, skip))
    found: list[StoredItem] = []
    room = max_bytes
    for row in rows:
        item = _item(row)
        room -= item.size
        if found and room < 0:
            break
        found.append(item)
    return found[::-1] if backward else found


def item_ids(tx: Transaction, node_id: int, start: int, limit: int) -> list[str]:
    """Return at most `limit` ItemIDs of a node in the order of their publication, beginning with
    the index `start` (from 0)."""
    return [str(item) for (item,) in tx.rows(_ITEM_IDS, (node_id, limit, start))]


def count_before(tx: Transaction, node_id: int, position: int) -> int:
    """Return the number of a node's items before a position."""
    return int(tx.row(_COUNT_BEFORE, (node_id, position))[0])


def last(tx: Transaction, node_id: int) -> StoredItem | None:
    """Return the item of a node that was published last."""
    row = tx.row(_BEFORE, (node_id, LAST_POSITION, 1, 0))
    return None if row is None else _item(row)


def newest_of_nodes(tx: Transaction, node_id: int | None) -> Iterator[tuple[str, int]]:
    """Yield the name of each node that has items, and the size of its last item, in the order of
    publication, newest first; rows are read on demand. `node_id` selects one node."""
    for name, size in tx.run(_NEWEST_OF_NODES, (node_id,)):
        yield str(name), int(size)


def remove(tx: Transaction, node_id: int, item_id: str) -> bool:
    """Remove an item; return whether it existed."""
    removed = _count_removed(tx, node_id, tx.rows(_REMOVE, (node_id, item_id)))
    cache: _Cache | None = tx.cache.get(_CACHE)
    known = None if cache is None else cache.by_node.get(node_id)
    if known is not None:
        known.pop(item_id, None)
    return removed > 0


def purge(tx: Transaction, node_id: int) -> int:
    """Remove all items of a node; return their number."""
    return _remove_many(tx, _PURGE, (node_id,))


def trim(tx: Transaction, node_id: int, max_items: int) -> int:
    """Remove the oldest items of a node in excess of `max_items`; return their number."""
    rows: Sequence[tuple[int, str | None, str, int]] = tx.rows(
        _OLDEST, (node_id, node_id, max_items)
    )
    for row, *_ in rows:
        tx.run(_REMOVE_ROW, (row,))
    tx.cache.pop(_CACHE, None)
    return _count_removed(tx, node_id, [row[1:] for row in rows])


def usage_replaced(
    tx: Transaction, node_id: int, item_id: str, max_items: int, source: str
) -> StoreUsage:
    """Return the number and bytes of the items that publishing an item would remove: the item with
    the same ItemID or, if there is none, the oldest items in excess of `max_items`.

    `source` is a bare JID; the result has the items of which it is the author, and all.
    """
    same = tx.row(_SAME, (node_id, item_id))
    rows: Sequence[tuple[str | None, str, int]] = [same]
    if same is None:
        rows = [row[1:] for row in tx.rows(_OLDEST, (node_id, node_id, max_items - 1))]
    own = [size for author, publisher, size in rows if author_of(author, publisher) == source]
    return StoreUsage(Usage(len(own), sum(own)), Usage(len(rows), sum(row[-1] for row in rows)))


def total(tx: Transaction) -> Usage:
    """Return the number and bytes of all nodes' items."""
    return source_usage.get(tx, _USAGE, _TOTAL)


def usage_of(tx: Transaction, source: str) -> Usage:
    """Return the number and bytes of the items in all nodes whose author is a bare JID."""
    return source_usage.get(tx, _USAGE, _OF_SOURCE, source)


def expire(tx: Transaction) -> int:
    """Remove at most `EXPIRY_BATCH` expired items; return their number."""
    return _remove_many(tx, _EXPIRE, (tx.now.service, EXPIRY_BATCH))


def next_expiry(tx: Transaction) -> float | None:
    """Return the service second at which the next item expires; `None` if no item expires."""
    row = tx.row(_NEXT_EXPIRY)
    return None if row is None else row[0]


def _remove_many(tx: Transaction, sql: str, values: tuple[float, ...]) -> int:
    count = tx.run(sql, values).rowcount
    if count:
        nodes.forget_all(tx)
        for key in (_USAGE, _CACHE):
            tx.cache.pop(key, None)
    return count


def _count_removed(
    tx: Transaction, node_id: int, removed: Sequence[tuple[str | None, str, int]]
) -> int:
    for author, publisher, size in removed:
        _count(tx, node_id, -1, -size, author_of(author, publisher))
    return len(removed)


def _count(tx: Transaction, node_id: int, items: int, size: int, source: str) -> None:
    _count_cached(tx.cache, node_id, items, size, source)
    tx.on_undo(_count_cached, tx.cache, node_id, -items, -size, source)


def _count_cached(caches: dict[str, Any], node_id: int, items: int, size: int, source: str) -> None:
    nodes.count_items(caches, node_id, items, size)
    source_usage.count(caches, _USAGE, source, items, size)
