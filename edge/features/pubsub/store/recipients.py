"""Keep in memory whom publications to a node notify.

The list of a node is forgotten when what it depends on changes: subscriptions, topic filters,
affiliations, nodes, and accounts (which drop all of `Transaction.cache`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from edge.engine.database import Transaction

if TYPE_CHECKING:
    from edge.features.pubsub.store.subscriptions import Subscription

CACHED: Final = 4096
"""Recipients to keep in memory for all nodes; when there are more, all are read again."""

_CACHE: Final = "recipients"


class Recipient(NamedTuple):
    """A subscription to notify; `subid` is its SubID if its JID has several of them."""

    subscription: Subscription
    subid: str | None


def get(tx: Transaction, node: int) -> Sequence[Recipient] | None:
    """Return the recipients of a node, by its number, if they are in memory."""
    found: dict[int, Sequence[Recipient]] = tx.cache.get(_CACHE, {})
    return found.get(node)


def keep(tx: Transaction, node: int, recipients: Sequence[Recipient]) -> None:
    """Keep the recipients of a node, by its number."""
    found: dict[int, Sequence[Recipient]] = tx.cache.setdefault(_CACHE, {})
    if sum(map(len, found.values())) + len(recipients) + len(found) > CACHED:
        found.clear()
    found[node] = recipients


def forget(tx: Transaction) -> None:
    """Read recipients again at their next use."""
    tx.cache.pop(_CACHE, None)
