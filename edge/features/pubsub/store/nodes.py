"""Nodes: their names, their configurations, and how much each keeps.

Their items, subscriptions and affiliations stand apart and go with them. How many items a node has,
and their bytes, is counted by triggers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from edge.engine.database import Transaction
from edge.features.pubsub.rules.node import Config

CACHED: Final = 256
"""Configurations kept decoded, to save time; nodes that are configured alike share one."""


class Node(NamedTuple):
    """A node; `owner` is the bare JID of who created it, for the limits. `items` and their `bytes`
    are those that it keeps: a queue's are counted there."""

    id: int
    name: str
    owner: str
    config: Config
    items: int
    bytes: int


_COLUMNS: Final = "SELECT id, name, owner, config, items, bytes FROM nodes"
_GET: Final = f"{_COLUMNS} WHERE name = ?"
_BY_ID: Final = f"{_COLUMNS} WHERE id = ?"
_PAGE: Final = f"{_COLUMNS} WHERE name > ? ORDER BY name LIMIT ?"
_ADD: Final = "INSERT INTO nodes (name, owner, config) VALUES (?, ?, ?) RETURNING id"
_SAVE: Final = "UPDATE nodes SET config = ? WHERE id = ?"
_REMOVE: Final = "DELETE FROM nodes WHERE id = ?"
_COUNT: Final = "SELECT count(*) FROM nodes"
_COUNT_OF: Final = "SELECT count(*) FROM nodes WHERE owner = ?"
_SUBSCRIBERS: Final = "SELECT count(*) FROM subscriptions WHERE node = ?"
_HAS_SUBSCRIBER: Final = """
SELECT 1 FROM subscriptions
WHERE node = ? AND account = (SELECT id FROM accounts WHERE name = ?) LIMIT 1
"""

_encode: Final = msgspec.json.Encoder().encode
_decoder: Final = msgspec.json.Decoder(Config)


def get(tx: Transaction, name: str) -> Node | None:
    """Return the node of a name, if there is one."""
    return _node(tx.row(_GET, (name,)))


def by_id(tx: Transaction, id: int) -> Node | None:
    """Return the node of a number, if it is there still."""
    return _node(tx.row(_BY_ID, (id,)))


def add(tx: Transaction, name: str, owner: str, config: Config) -> Node:
    """Make a node; there is none of the name. `owner` is a bare JID."""
    (id,) = tx.row(_ADD, (name, owner, _encode(config).decode()))
    return Node(id, name, owner, config, 0, 0)


def save(tx: Transaction, node: Node) -> None:
    """Write down how a node is configured."""
    tx.run(_SAVE, (_encode(node.config).decode(), node.id))


def remove(tx: Transaction, id: int) -> None:
    """Delete a node, and all that it has."""
    tx.run(_REMOVE, (id,))


def page(tx: Transaction, after: str, limit: int) -> list[Node]:
    """Return the nodes whose names come after one, in order, `limit` at most."""
    return [node for row in tx.rows(_PAGE, (after, limit)) if (node := _node(row)) is not None]


def count(tx: Transaction, owner: str | None = None) -> int:
    """Return how many nodes there are: of who created them, a bare JID, or in all."""
    row = tx.row(_COUNT) if owner is None else tx.row(_COUNT_OF, (owner,))
    return int(row[0])


def subscribers(tx: Transaction, id: int) -> int:
    """Return how many subscriptions there are to a node."""
    return int(tx.row(_SUBSCRIBERS, (id,))[0])


def has_subscriber(tx: Transaction, id: int, account: str) -> bool:
    """Tell whether an account, by name, is subscribed to a node."""
    return tx.row(_HAS_SUBSCRIBER, (id, account)) is not None


@lru_cache(maxsize=CACHED)
def _config(text: str) -> Config:
    return _decoder.decode(text)


def _node(row: Any) -> Node | None:
    if row is None:
        return None
    id, name, owner, config, items, size = row
    return Node(id, name, owner, _config(config), items, size)
