"""Number new rows in advance, so that the rows can be kept in memory and inserted later.

A number is never used again, even if the unit of work that took it is undone.
"""

from __future__ import annotations

from typing import Final

from edge.engine.store.database import Transaction

_LAST: Final = "SELECT seq FROM main.sqlite_sequence WHERE name = ?"
_SET_LAST: Final = "UPDATE main.sqlite_sequence SET seq = ? WHERE name = ?"
_CACHE: Final = "row numbers"


def take(tx: Transaction, table: str) -> int:
    """Return the number of a new row of a table with AUTOINCREMENT.

    All rows of the table must be inserted with such numbers.
    """
    last: dict[str, int] = tx.cache.setdefault(_CACHE, {})
    found = last.get(table)
    if found is None:
        row = tx.row(_LAST, (table,))
        found = 0 if row is None else row[0]
    last[table] = found + 1
    return last[table]


def write_last(tx: Transaction, table: str) -> None:
    """Store the last number that was taken, as SQLite does if a row is inserted with it. A row that
    exists may be given such a number."""
    tx.run(_SET_LAST, (tx.cache[_CACHE][table], table))
