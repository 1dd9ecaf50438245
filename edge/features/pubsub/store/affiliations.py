"""What accounts are to nodes: affiliations, by bare JID.

Nothing is stored of who is nothing to a node. What an affiliation lets somebody do is decided in
`rules.affiliation`.
"""

from __future__ import annotations

from typing import Final

from edge.engine.database import Transaction
from edge.features.pubsub.rules.affiliation import Affiliation

_OF: Final = "SELECT affiliation FROM affiliations WHERE node = ? AND jid = ?"
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
_STRIKE_OUT: Final = """
DELETE FROM affiliations WHERE jid = ?1 AND (
    affiliation <> 'owner' OR EXISTS (
        SELECT 1 FROM affiliations AS other
        WHERE other.node = affiliations.node AND other.affiliation = 'owner' AND other.jid <> ?1
    )
)
"""


def of(tx: Transaction, node_id: int, bare: str) -> Affiliation:
    """Return what a bare JID is to a node."""
    row = tx.row(_OF, (node_id, bare))
    return Affiliation.NONE if row is None else Affiliation(row[0])


def put(tx: Transaction, node_id: int, bare: str, affiliation: Affiliation) -> None:
    """Write down what a bare JID is to a node from now on."""
    if affiliation is Affiliation.NONE:
        tx.run(_REMOVE, (node_id, bare))
    else:
        tx.run(_PUT, (node_id, bare, affiliation.value))


def of_node(tx: Transaction, node_id: int) -> dict[str, Affiliation]:
    """Return all affiliations of a node, by bare JID: at most `limits.affiliations`."""
    return {jid: Affiliation(text) for jid, text in tx.rows(_OF_NODE, (node_id,))}


def owners(tx: Transaction, node_id: int) -> list[str]:
    """Return the owners of a node, by bare JID."""
    return [str(jid) for (jid,) in tx.rows(_OWNERS, (node_id,))]


def of_jid(tx: Transaction, bare: str) -> list[tuple[int, str, Affiliation]]:
    """Return all affiliations of a bare JID, each with the node's number and name, by name: at most
    `limits.nodes`."""
    return [(id, name, Affiliation(text)) for id, name, text in tx.rows(_OF_JID, (bare,))]


def strike_out(tx: Transaction, bare: str) -> None:
    """Forget what a bare JID is to all nodes, but where it is the only owner: who gets the name
    next gets those nodes."""
    tx.run(_STRIKE_OUT, (bare,))
