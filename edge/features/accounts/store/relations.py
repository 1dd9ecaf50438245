"""Read in one query whether an account exists and how its roster lists a sender.

The results are cached in memory until a roster or an account changes.
"""

from __future__ import annotations

from typing import Final

from edge.engine.rules import access
from edge.engine.rules.access import Relation, Sender
from edge.engine.store.database import Transaction

_FIND: Final = """
SELECT coalesce(r.listed, 0), coalesce(r.subscription, 'none')
FROM main.accounts AS a LEFT JOIN main.roster AS r ON r.account = a.id AND r.jid = ?
WHERE a.name = ? AND a.revoked IS NULL
"""

MAX_CACHED: Final = 4096
"""Maximum number of cached relations, each between a sender and an account."""

_CACHE: Final = "relations"


def find_relation(tx: Transaction, sender: Sender, account: str) -> Relation:
    """Return the relation between the account named `account` and the sender."""
    cached: dict[tuple[str, str, str], Relation] = tx.cache.setdefault(_CACHE, {})
    key = account, sender.account, sender.bare
    found = cached.get(key)
    if found is not None:
        return found
    row = tx.row(_FIND, (sender.bare, account))
    listed, subscription = (0, "none") if row is None else row
    found = access.relation(
        own=account == sender.account,
        exists=row is not None,
        listed=bool(listed),
        subscription=subscription,
    )
    if len(cached) >= MAX_CACHED:
        cached.clear()
    cached[key] = found
    return found


def forget_relations(tx: Transaction) -> None:
    """Drop the cached relations, because this transaction changes a roster."""
    tx.cache.pop(_CACHE, None)
