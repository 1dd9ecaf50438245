"""Store affiliations of accounts, by bare JID; the affiliation `none` has no row.

Affiliations in use are cached in memory (`Transaction.cache`).
"""

from __future__ import annotations

from typing import Final

from edge.engine.database import Transaction
from edge.features.pubsub.rules.affiliation import Affiliation
from edge.features.pubsub.store import recipients
from edge.features.pubsub.store.nodes import AFFILIATIONS

CACHED: Final = 1024
"""Maximum number of cached affiliations; a full cache is emptied."""

_GET: Final = "SELECT affiliation FROM affiliations WHERE node = ? AND jid = ?"
_PUT: Final = """
INSERT INTO affiliations (node, jid, affiliation) VALUES (?, ?, ?)
ON CONFLICT (node, jid) DO UPDATE SET affiliation = excluded.affiliation
"""
_REMOVE: Final = "DELETE FROM affiliations WHERE node = ? AND jid = ?"
_OF_NODE: Final = "SELECT jid, affiliation FROM affiliations WHERE node = ? ORDER BY jid"
_OWNERS: Final = """
SELECT jid FROM affiliations WHERE node = ? AND affiliation = 'owner' ORDER BY jid
"""
_OF_JID: Final = """
SELECT n.id, n.name, a.affiliation FROM affiliations AS a JOIN nodes AS n ON n.id = a.node
WHERE a.jid = ? ORDER BY n.name
"""
_REMOVE_ACCOUNT: Final = """
DELETE FROM affiliations WHERE jid = ?1 AND (
    affiliation <> 'owner' OR EXISTS (
        SELECT 1 FROM affiliations AS other
        WHERE other.node = affiliations.node AND other.affiliation = 'owner' AND other.jid <> ?1
    )
)
"""


def get(tx: Transaction, node_id: int, bare: str) -> Affiliation:
    """Return the affiliation of a bare JID with a node."""
    cache: dict[tuple[int, str], Affiliation] = tx.cache.setdefault(AFFILIATIONS, {})
    key = node_id, bare
    found = cache.get(key)
    if found is None:
        row = tx.row(_GET, key)
        found = Affiliation.NONE if row is None else Affiliation(row[0])
        if len(cache) >= CACHED:
            cache.clear()
        cache[key] = found
    return found


def put(tx: Transaction, node_id: int, bare: str, affiliation: Affiliation) -> None:
    """Set the affiliation of a bare JID with a node."""
    if affiliation is Affiliation.NONE:
        tx.run(_REMOVE, (node_id, bare))
    else:
        tx.run(_PUT, (node_id, bare, affiliation.value))
    _forget(tx)


def of_node(tx: Transaction, node_id: int) -> dict[str, Affiliation]:
    """Return all affiliations of a node, by bare JID; at most `limits.affiliations`."""
    return {jid: Affiliation(text) for jid, text in tx.rows(_OF_NODE, (node_id,))}


def owners(tx: Transaction, node_id: int) -> list[str]:
    """Return the bare JIDs of a node's owners."""
    return [str(jid) for (jid,) in tx.rows(_OWNERS, (node_id,))]


def of_jid(tx: Transaction, bare: str) -> list[tuple[int, str, Affiliation]]:
    """Return all affiliations of a bare JID, each with the node's number and name, ordered by name;
    at most `limits.nodes`."""
    return [(id, name, Affiliation(text)) for id, name, text in tx.rows(_OF_JID, (bare,))]


def remove_account(tx: Transaction, bare: str) -> None:
    """Remove the affiliations of a removed account's bare JID, except with nodes of which it is the
    only owner. If an account with this JID is added later, it owns these nodes."""
    tx.run(_REMOVE_ACCOUNT, (bare,))
    _forget(tx)


def _forget(tx: Transaction) -> None:
    tx.cache.pop(AFFILIATIONS, None)
    recipients.forget(tx)
