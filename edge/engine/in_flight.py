"""Rows whose stanza was handed to a session that has not confirmed it yet.

The table is temporary: after a restart nothing is under way, and what was not confirmed is sent
again. What a kind of row means is its feature's.
"""

from __future__ import annotations

from typing import Final

from edge.engine.database import Receipt, Transaction

_BEGIN: Final = "INSERT OR REPLACE INTO temp.under_way (kind, id, generation) VALUES (?, ?, ?)"
_END: Final = "DELETE FROM temp.under_way WHERE kind = ? AND id = ? AND generation = ?"
_OF: Final = "SELECT kind, id FROM temp.under_way WHERE generation = ? ORDER BY kind, id"
_DROP: Final = "DELETE FROM temp.under_way WHERE generation = ?"
_DROP_KIND: Final = "DELETE FROM temp.under_way WHERE generation = ? AND kind = ?"


def begin(tx: Transaction, receipt: Receipt, generation: int) -> None:
    """Note that a row was handed to a session."""
    tx.run(_BEGIN, (*receipt, generation))


def end(tx: Transaction, receipt: Receipt, generation: int) -> bool:
    """Note that a session has a row's stanza; false if the row was not with that session."""
    return tx.run(_END, (*receipt, generation)).rowcount > 0


def forget_kind(tx: Transaction, kind: str, generation: int) -> None:
    """Wait no more for what a session has of one kind."""
    tx.run(_DROP_KIND, (generation, kind))


def take_unacknowledged(tx: Transaction, generation: int) -> list[tuple[str, int]]:
    """Return (kind, row) of all that a session had and never confirmed: it is under way no more."""
    found: list[tuple[str, int]] = tx.rows(_OF, (generation,))
    if found:
        tx.run(_DROP, (generation,))
    return found
