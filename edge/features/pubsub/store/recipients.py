"""Keep in memory whom publications to a node notify.

The list of a node is forgotten when what it depends on changes: subscriptions, topic filters,
affiliations, nodes, and accounts (which drop all of `Transaction.cache`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from edge.engine.database import Transaction

CACHED: Final = 4096
"""Recipients to keep in memory for all nodes; when there are more, all are read again."""

_CACHE: Final = "recipients"


def get(tx: Transaction, node: int) -> Sequence[Any] | None:
    """Return the recipients of a node, by its number, as they were kept, if they are in memory."""
    found: dict[int, Sequence[Any]] = tx.cache.get(_CACHE, {})
    return found.get(node)


def keep(tx: Transaction, node: int, recipients: Sequence[Any]) -> None:
    """Keep the recipients of a node, by its number."""
    found: dict[int, Sequence[Any]] = tx.cache.setdefault(_CACHE, {})
    if sum(map(len, found.values())) + len(recipients) + len(found) > CACHED:
        found.clear()
    found[node] = recipients


def forget(tx: Transaction) -> None:
    """Read recipients again at their next use."""
    tx.cache.pop(_CACHE, None)
