"""Read in one query whether an account exists and how its roster lists a sender."""

from __future__ import annotations

from typing import Final

from edge.engine import access
from edge.engine.access import Relation, Sender
from edge.engine.database import Transaction

_FIND: Final = """
SELECT coalesce(r.listed, 0), coalesce(r.subscription, 'none')
FROM main.accounts AS a LEFT JOIN main.roster AS r ON r.account = a.id AND r.jid = ?
WHERE a.name = ? AND a.revoked IS NULL
"""


def find_relation(tx: Transaction, sender: Sender, account: str) -> Relation:
    """Return the relation of the named account to the sender."""
    row = tx.row(_FIND, (sender.bare, account))
    listed, subscription = (0, "none") if row is None else row
    return access.relation(
        own=account == sender.account,
        exists=row is not None,
        listed=bool(listed),
        subscription=subscription,
    )
