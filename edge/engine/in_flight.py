"""Rows whose stanza was sent to a session that has not acknowledged it yet.

The table is temporary: after a restart no row is in flight, and unacknowledged stanzas are sent
again. Each kind of row belongs to one feature.
"""

from __future__ import annotations

from typing import Final

from edge.engine.database import Receipt, Transaction

_BEGIN: Final = "INSERT OR REPLACE INTO temp.under_way (kind, id, generation) VALUES (?, ?, ?)"
_END: Final = "DELETE FROM temp.under_way WHERE kind = ? AND id = ? AND generation = ?"
_OF_SESSION: Final = "SELECT kind, id FROM temp.under_way WHERE generation = ? ORDER BY kind, id"
_FORGET: Final = "DELETE FROM temp.under_way WHERE generation = ?"
_FORGET_KIND: Final = "DELETE FROM temp.under_way WHERE generation = ? AND kind = ?"


def begin(tx: Transaction, receipt: Receipt, generation: int) -> None:
    """Record that a row's stanza is sent to a session."""
    tx.run(_BEGIN, (*receipt, generation))


def end(tx: Transaction, receipt: Receipt, generation: int) -> bool:
    """Record that a session has a row's stanza; return whether the row was in flight there."""
    return tx.run(_END, (*receipt, generation)).rowcount > 0


def forget_kind(tx: Transaction, kind: str, generation: int) -> None:
    """Stop tracking a session's rows of one kind."""
    tx.run(_FORGET_KIND, (generation, kind))


def take_unacknowledged(tx: Transaction, generation: int) -> list[tuple[str, int]]:
    """Remove and return (kind, row) of everything that a session has not acknowledged."""
    found: list[tuple[str, int]] = tx.rows(_OF_SESSION, (generation,))
    if found:
        tx.run(_FORGET, (generation,))
    return found
