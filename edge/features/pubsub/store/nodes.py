"""Store nodes and their configurations.

Removing a node also removes its items, subscriptions and affiliations. Triggers maintain the
numbers of items and bytes of each node. Nodes in use are cached in memory (`Transaction.cache`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from edge.engine.store.database import Transaction
from edge.features.pubsub.rules.node_config import NodeConfig
from edge.features.pubsub.store import recipients

CACHED_CONFIGS: Final = 256
"""Maximum number of decoded configurations in the cache; nodes with equal ones share an entry."""

CACHED_NODES: Final = 4096
"""Maximum number of cached nodes; a full cache is emptied. Each takes about 600 bytes."""

AFFILIATIONS: Final = "affiliations"
"""Key of the cached affiliations in `Transaction.cache`."""

_CACHE: Final = "nodes"

NEW_NODE: Final = 0
"""Placeholder `Node.id` of a node that does not exist: the publication in progress creates it, or
needs none."""


class Node(NamedTuple):
    """A node.

    `creator` is the bare JID of the account that created the node, and towards whose limits the
    node counts. `items` and `bytes` are the number and size of stored items; both are 0 for a
    queue node, whose items are stored in its queue.
    """

    id: int
    name: str
    creator: str
    config: NodeConfig
    items: int
    bytes: int


_COLUMNS: Final = "SELECT id, name, owner, config, items, bytes FROM nodes"
_GET: Final = f"{_COLUMNS} WHERE name = ?"
_BY_ID: Final = f"{_COLUMNS} WHERE id = ?"
_PAGE: Final = f"{_COLUMNS} WHERE name > ? ORDER BY name LIMIT ?"
_WITH_ITEMS_FROM: Final = f"{_COLUMNS} WHERE name >= ? AND items > 0 ORDER BY name LIMIT ?"
_ADD: Final = "INSERT INTO nodes (name, owner, config) VALUES (?, ?, ?) RETURNING id"
_SAVE: Final = "UPDATE nodes SET config = ? WHERE id = ?"
_REMOVE: Final = "DELETE FROM nodes WHERE id = ?"
_COUNT: Final = "SELECT count(*) FROM nodes"
_COUNT_OF: Final = "SELECT count(*) FROM nodes WHERE owner = ?"
_COUNT_SUBSCRIPTIONS: Final = "SELECT count(*) FROM subscriptions WHERE node = ?"
_HAS_SUBSCRIBER: Final = """
SELECT 1 FROM subscriptions
WHERE node = ? AND account = (SELECT id FROM accounts WHERE name = ?) LIMIT 1
"""

_encode: Final = msgspec.json.Encoder().encode
_decoder: Final = msgspec.json.Decoder(NodeConfig)


class _Cache:
    __slots__ = ("by_name", "names")

    def __init__(self) -> None:
        self.by_name: dict[str, Node] = {}
        self.names: dict[int, str] = {}


def cached(tx: Transaction, name: str) -> Node | None:
    """Return a node by name if it is cached."""
    cache: _Cache | None = tx.cache.get(_CACHE)
    return None if cache is None else cache.by_name.get(name)


def get(tx: Transaction, name: str) -> Node | None:
    """Return a node by name."""
    found = cached(tx, name)
    if found is not None:
        return found
    found = _node(tx.row(_GET, (name,)))
    if found is not None:
        cache: _Cache | None = tx.cache.get(_CACHE)
        if cache is None or len(cache.names) >= CACHED_NODES:
            cache = tx.cache[_CACHE] = _Cache()
        cache.by_name[name] = found
        cache.names[found.id] = name
    return found


def count_items(caches: dict[str, Any], id: int, items: int, size: int) -> None:
    """Add to the cached numbers of items and bytes of a node.

    Args:
        caches: the value of `Transaction.cache`.
        items: the number of items to add; negative for removed items.
        size: the bytes to add; negative for removed items.
    """
    cache: _Cache | None = caches.get(_CACHE)
    name = None if cache is None else cache.names.get(id)
    if cache is not None and name is not None:
        id, name, creator, config, number, used = cache.by_name[name]
        cache.by_name[name] = Node(id, name, creator, config, number + items, used + size)


def forget_all(tx: Transaction) -> None:
    """Drop all cached nodes."""
    tx.cache.pop(_CACHE, None)


def _forget(tx: Transaction, id: int) -> None:
    cache: _Cache | None = tx.cache.get(_CACHE)
    name = None if cache is None else cache.names.pop(id, None)
    if cache is not None and name is not None:
        del cache.by_name[name]
    recipients.forget_node(tx, id)


def by_id(tx: Transaction, id: int) -> Node | None:
    """Return a node by number."""
    return _node(tx.row(_BY_ID, (id,)))


def add(tx: Transaction, name: str, creator: str, config: NodeConfig) -> Node:
    """Create a node; the name must not exist. `creator` is a bare JID."""
    (id,) = tx.row(_ADD, (name, creator, _encode(config).decode()))
    recipients.forget_new(tx, name)
    return Node(id, name, creator, config, 0, 0)


def save(tx: Transaction, node: Node) -> None:
    """Store the configuration of a node."""
    tx.run(_SAVE, (_encode(node.config).decode(), node.id))
    _forget(tx, node.id)


def remove(tx: Transaction, id: int) -> None:
    """Remove a node with its items, subscriptions and affiliations."""
    tx.run(_REMOVE, (id,))
    _forget(tx, id)
    tx.cache.pop(AFFILIATIONS, None)


def page(tx: Transaction, after: str, limit: int) -> list[Node]:
    """Return at most `limit` nodes whose names sort after `after`, in order."""
    return [node for row in tx.rows(_PAGE, (after, limit)) if (node := _node(row)) is not None]


def with_items_from(tx: Transaction, first: str, limit: int) -> Iterator[Node]:
    """Yield at most `limit` nodes with items, from the name `first` on, in the order of names; rows
    are read on demand."""
    for row in tx.run(_WITH_ITEMS_FROM, (first, limit)):
        node = _node(row)
        if node is not None:
            yield node


def count(tx: Transaction, creator: str | None = None) -> int:
    """Return the number of all nodes, or of those that the bare JID `creator` created."""
    row = tx.row(_COUNT) if creator is None else tx.row(_COUNT_OF, (creator,))
    return int(row[0])


def count_subscriptions(tx: Transaction, id: int) -> int:
    """Return the number of subscriptions to a node; those to filters are not counted."""
    return int(tx.row(_COUNT_SUBSCRIPTIONS, (id,))[0])


def has_subscriber(tx: Transaction, id: int, account: str) -> bool:
    """Return whether an account (given by name) is subscribed to a node."""
    return tx.row(_HAS_SUBSCRIBER, (id, account)) is not None


@lru_cache(maxsize=CACHED_CONFIGS)
def _config(text: str) -> NodeConfig:
    return _decoder.decode(text)


def _node(row: Any) -> Node | None:
    if row is None:
        return None
    id, name, creator, config, items, size = row
    return Node(id, name, creator, _config(config), items, size)
