"""Cache the recipients of each node's notifications, and who may publish to it, in memory.

Both caches are emptied when subscriptions, topic filters, affiliations, nodes or accounts change; a
change of an account empties the whole of `Transaction.cache`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from edge.engine.store.database import Transaction

CACHED: Final = 4096
"""Maximum number of cached recipients of all nodes together; a full cache is emptied."""

_CACHE: Final = "recipients"
_PUBLISHERS: Final = "publishers"
_NOBODY: Final[set[tuple[str, str]]] = set()


def get(tx: Transaction, node: int) -> Sequence[Any] | None:
    """Return the cached recipients of a node; `None` if they are not cached."""
    found: dict[int, Sequence[Any]] = tx.cache.get(_CACHE, {})
    return found.get(node)


def keep(tx: Transaction, node: int, recipients: Sequence[Any]) -> None:
    """Cache the recipients of a node's notifications."""
    found: dict[int, Sequence[Any]] = tx.cache.setdefault(_CACHE, {})
    if sum(map(len, found.values())) + len(recipients) + len(found) > CACHED:
        found.clear()
    found[node] = recipients


def is_publisher(tx: Transaction, node: str, jid: str) -> bool:
    """Return whether it is known that a full JID may publish to a node, given by name."""
    found: set[tuple[str, str]] = tx.cache.get(_PUBLISHERS, _NOBODY)
    return (node, jid) in found


def keep_publisher(tx: Transaction, node: str, jid: str) -> None:
    """Record that a full JID may publish to a node."""
    found: set[tuple[str, str]] = tx.cache.setdefault(_PUBLISHERS, set())
    if len(found) >= CACHED:
        found.clear()
    found.add((node, jid))


def forget(tx: Transaction) -> None:
    """Drop what is cached of all nodes."""
    tx.cache.pop(_CACHE, None)
    tx.cache.pop(_PUBLISHERS, None)
