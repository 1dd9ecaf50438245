"""Cache the recipients of each node's notifications in memory.

The cache is emptied when subscriptions, topic filters, affiliations, nodes or accounts change; a
change of an account empties the whole of `Transaction.cache`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from edge.engine.store.database import Transaction

CACHED: Final = 4096
"""Maximum number of cached recipients of all nodes together; a full cache is emptied."""

_CACHE: Final = "recipients"


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


def forget(tx: Transaction) -> None:
    """Drop the cached recipients of all nodes."""
    tx.cache.pop(_CACHE, None)
