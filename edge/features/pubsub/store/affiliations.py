"""Store affiliations of accounts, by bare JID; the affiliation `none` has no row.

Affiliations in use are cached in memory (`Transaction.cache`).
"""

from __future__ import annotations

from typing import Final

from edge.engine.store.database import Transaction
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
_ONLY_OWNED: Final = """
SELECT n.name FROM affiliations AS a JOIN nodes AS n ON n.id = a.node
WHERE a.jid = ?1 AND a.affiliation = 'owner' AND NOT EXISTS (
    SELECT 1 FROM affiliations AS other
    WHERE other.node = a.node AND other.affiliation = 'owner' AND other.jid <> ?1
)
ORDER BY n.name
"""
_OWN_ONLY_OWNED: Final = f"""
INSERT INTO affiliations (node, jid, affiliation)
SELECT id, ?2, 'owner' FROM nodes WHERE name IN ({_ONLY_OWNED})
ON CONFLICT (node, jid) DO UPDATE SET affiliation = 'owner'
"""  # noqa: S608 - of constants
_TAKE_OVER: Final = """
INSERT INTO affiliations (node, jid, affiliation)
SELECT node, ?2, affiliation FROM affiliations WHERE jid = ?1 AND affiliation <> 'outcast'
ON CONFLICT (node, jid) DO UPDATE SET affiliation = 'owner' WHERE excluded.affiliation = 'owner'
"""
_TAKE_OVER_NODES: Final = "UPDATE nodes SET owner = ?2 WHERE owner = ?1"
_TAKE_OVER_ITEMS: Final = """
UPDATE items SET author = ?2
WHERE coalesce(author, substr(publisher, 1, instr(publisher || '/', '/') - 1)) = ?1
"""
_COUNT_ITEMS: Final = """
SELECT count(*) FROM items
WHERE coalesce(author, substr(publisher, 1, instr(publisher || '/', '/') - 1)) = ?
"""
_DELETE_ITEMS: Final = """
DELETE FROM items
WHERE coalesce(author, substr(publisher, 1, instr(publisher || '/', '/') - 1)) = ?
"""
_REMOVE_ACCOUNT: Final = "DELETE FROM affiliations WHERE jid = ?"


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
    tx.cache.pop(AFFILIATIONS, None)
    recipients.forget_node(tx, node_id)


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


def only_owned(tx: Transaction, bare: str) -> list[str]:
    """Return the names of the nodes of which a bare JID is the only owner, sorted; at most
    `limits.nodes`."""
    return [str(name) for (name,) in tx.rows(_ONLY_OWNED, (bare,))]


def count_items(tx: Transaction, bare: str) -> int:
    """Return the number of stored items whose author is a bare JID (`replacement.author_of`)."""
    return int(tx.row(_COUNT_ITEMS, (bare,))[0])


def delete_items(tx: Transaction, bare: str) -> None:
    """Delete the stored items whose author is a bare JID, without notifications."""
    tx.run(_DELETE_ITEMS, (bare,))
    tx.cache.clear()


def transfer(tx: Transaction, bare: str, heir: str, *, all_rights: bool) -> None:
    """Give what a removed account's bare JID owns to another JID, and remove its affiliations.

    This reads all stored items, so it is for an operator's command.

    Args:
        heir: the bare JID that gets the items, and the nodes without another owner.
        all_rights: whether the heir gets the other affiliations of the account, too.
    """
    values = bare, heir
    tx.run(_TAKE_OVER if all_rights else _OWN_ONLY_OWNED, values)
    for statement in (_TAKE_OVER_NODES, _TAKE_OVER_ITEMS):
        tx.run(statement, values)
    tx.run(_REMOVE_ACCOUNT, (bare,))
    tx.cache.clear()
