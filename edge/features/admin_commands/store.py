"""Ad-hoc commands that wait for their forms (XEP-0050), by the session that has begun each.

The table is temporary: a command ends with the session, and with the process.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edge.engine.database import Transaction


class StartedCommand(NamedTuple):
    """A command that was begun: which one, and when, in service seconds."""

    node: str
    since: float


_BEGIN: Final = "INSERT INTO temp.commands (id, generation, node, since) VALUES (?, ?, ?, ?)"
_SPARE: Final = """
DELETE FROM temp.commands WHERE generation = ?1 AND number <= (
    SELECT number FROM temp.commands WHERE generation = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2
)
"""
_FIND: Final = "SELECT node, since FROM temp.commands WHERE id = ? AND generation = ?"
_END: Final = "DELETE FROM temp.commands WHERE id = ?"
_FORGET: Final = "DELETE FROM temp.commands WHERE generation = ?"


def add(tx: Transaction, id: str, generation: int, node: str, most: int) -> None:
    """Note that a session has begun a command; of more than `most` the oldest are over."""
    tx.run(_BEGIN, (id, generation, node, tx.now.service))
    tx.run(_SPARE, (generation, most))


def find(tx: Transaction, id: str, generation: int) -> StartedCommand | None:
    """Return what a session has begun under an id."""
    row = tx.row(_FIND, (id, generation))
    return None if row is None else StartedCommand(*row)


def delete(tx: Transaction, id: str) -> None:
    """Forget a command that was completed, cancelled, or is too old."""
    tx.run(_END, (id,))


def delete_all(tx: Transaction, generation: int) -> None:
    """Forget what a session has begun, when it is over."""
    tx.run(_FORGET, (generation,))
