"""Cache the recipients of each node's notifications, and who may publish to it, in memory.

Nodes are known by name, because a publication may need no stored node (`NEW_NODE`). Both caches are
emptied when subscriptions, topic filters, affiliations, nodes or accounts change; a change of an
account empties the whole of `Transaction.cache`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from edge.engine.store.database import Transaction

CACHED: Final = 4096
"""Maximum number of cached recipients of all nodes together; a full cache is emptied."""

_CACHE: Final = "recipients"
_TARGETS: Final = "targets of publishers"


class _Cache:
    __slots__ = ("by_node", "size")

    def __init__(self) -> None:
        self.by_node: dict[str, Sequence[Any]] = {}
        self.size = 0


def get(tx: Transaction, node: str) -> Sequence[Any] | None:
    """Return the cached recipients of a node; `None` if they are not cached."""
    cache: _Cache | None = tx.cache.get(_CACHE)
    return None if cache is None else cache.by_node.get(node)


def keep(tx: Transaction, node: str, recipients: Sequence[Any]) -> None:
    """Cache the recipients of a node's notifications, which are not cached."""
    cache: _Cache | None = tx.cache.get(_CACHE)
    if cache is None or cache.size + len(recipients) + 1 > CACHED:
        cache = tx.cache[_CACHE] = _Cache()
    cache.by_node[node] = recipients
    cache.size += len(recipients) + 1


def target(tx: Transaction, name: str, jid: str) -> Any:
    """Return the node to which a full JID may publish, as it was when this was recorded; `None` if
    that is not known."""
    found: dict[tuple[str, str], Any] | None = tx.cache.get(_TARGETS)
    return None if found is None else found.get((name, jid))


def keep_target(tx: Transaction, name: str, jid: str, node: Any) -> None:
    """Record that a full JID may publish to a node."""
    found: dict[tuple[str, str], Any] = tx.cache.setdefault(_TARGETS, {})
    if len(found) >= CACHED:
        found.clear()
    found[name, jid] = node


def forget(tx: Transaction) -> None:
    """Drop what is cached of all nodes."""
    tx.cache.pop(_CACHE, None)
    tx.cache.pop(_TARGETS, None)
