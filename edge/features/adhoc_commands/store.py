"""Temporary table of ad-hoc commands (XEP-0050) that sessions have started and not completed."""

from __future__ import annotations

from typing import Final, NamedTuple

from edge.engine.store.database import Transaction


class StartedCommand(NamedTuple):
    """A started command: its name, and the service second at which it was started."""

    command: str
    since: float


_BEGIN: Final = "INSERT INTO temp.commands (id, generation, command, since) VALUES (?, ?, ?, ?)"
_SPARE: Final = """
DELETE FROM temp.commands WHERE generation = ?1 AND number <= (
    SELECT number FROM temp.commands WHERE generation = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2
)
"""
_FIND: Final = "SELECT command, since FROM temp.commands WHERE id = ? AND generation = ?"
_END: Final = "DELETE FROM temp.commands WHERE id = ?"
_FORGET: Final = "DELETE FROM temp.commands WHERE generation = ?"


def add(tx: Transaction, id: str, generation: int, command: str, most: int) -> None:
    """Record that a session started a command.

    If the session then has more than `most` commands, its oldest ones are deleted.
    """
    tx.run(_BEGIN, (id, generation, command, tx.now.service))
    tx.run(_SPARE, (generation, most))


def find(tx: Transaction, id: str, generation: int) -> StartedCommand | None:
    """Return the command that a session started under this id, or `None` if there is none."""
    row = tx.row(_FIND, (id, generation))
    return None if row is None else StartedCommand(*row)


def delete(tx: Transaction, id: str) -> None:
    """Delete a command that is completed, cancelled or expired."""
    tx.run(_END, (id,))


def delete_all(tx: Transaction, generation: int) -> None:
    """Delete all commands that a session has started."""
    tx.run(_FORGET, (generation,))
