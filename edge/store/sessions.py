"""Who is there: bound sessions, as rows that units of work alone change.

The table is temporary: sessions end with the process. A generation is the number of a socket; units
of a session that was replaced find no row, and do nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from edge.rules.access import Sender

if TYPE_CHECKING:
    from edge.store.database import Transaction

_REPLACE: Final = "DELETE FROM temp.sessions WHERE full = ? RETURNING generation"
_BIND: Final = "INSERT INTO temp.sessions (generation, full, bare, account) VALUES (?, ?, ?, ?)"
_END: Final = "DELETE FROM temp.sessions WHERE generation = ?"
_SENDER: Final = """
SELECT s.full, s.bare, a.id IS NOT NULL, coalesce(a.trusted, 0)
FROM temp.sessions AS s LEFT JOIN main.accounts AS a ON a.name = s.account
WHERE s.generation = ?
"""


def bind(tx: Transaction, generation: int, account: str, bare: str, full: str) -> int | None:
    """Bind a full JID to a socket; returns the generation that it replaces, if any."""
    replaced = tx.row(_REPLACE, (full,))
    if replaced is not None:
        _forget(tx, int(replaced[0]))
    tx.run(_BIND, (generation, full, bare, account))
    return None if replaced is None else int(replaced[0])


def end(tx: Transaction, generation: int) -> None:
    """Forget a session; does nothing if it was replaced."""
    tx.run(_END, (generation,))
    _forget(tx, generation)


def sender(tx: Transaction, generation: int) -> Sender | None:
    """Return whose session this is, or `None` if it is over.

    It is known from one transaction to the next, until its row or somebody's account changes.
    """
    senders: dict[int, Sender] = tx.known.setdefault("senders", {})
    found = senders.get(generation)
    if found is None and (row := tx.row(_SENDER, (generation,))) is not None:
        found = senders[generation] = Sender(row[0], row[1], bool(row[2]), bool(row[3]))
    return found


def _forget(tx: Transaction, generation: int) -> None:
    tx.known.get("senders", {}).pop(generation, None)
