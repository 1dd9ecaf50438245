"""The `meta` table: one value for each key."""

from __future__ import annotations

from typing import Any, Final

from edge.engine.store import tables
from edge.engine.store.database import Transaction
from edge.errors import StoreDamaged

EPOCH: Final = "epoch"
"""The key of the epoch: a ULID made when the sequence counters of events start at 1."""

SERVICE: Final = "service"
"""The key of the last saved service seconds."""

DECOY: Final = "decoy"
"""The key of the secret from which salts for unknown account names are derived."""

_READ: Final = "SELECT value FROM meta WHERE key = ?"
_WRITE: Final = """
INSERT INTO meta (key, value) VALUES (?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value
"""


def epoch(tx: Transaction) -> str:
    """Return the current epoch, which is read from its row only once."""
    found: str | None = tx.cache.get(EPOCH)
    if found is None:
        found = tx.cache[EPOCH] = read_text(tx, EPOCH)
    return found


def read_text(tx: Transaction, key: str) -> str:
    """Return the text of a key that `init` wrote; raises `StoreDamaged` if its row is lost."""
    return str(_read(tx, key))


def find_text(tx: Transaction, key: str) -> str | None:
    """Return the text of a key, or `None`."""
    row = tx.row(_READ, (key,))
    return None if row is None else str(row[0])


def read_bytes(tx: Transaction, key: str) -> bytes:
    """Return the bytes of a key that `init` wrote; raises `StoreDamaged` if its row is lost."""
    return bytes(_read(tx, key))


def _read(tx: Transaction, key: str) -> Any:
    row = tx.row(_READ, (key,))
    if row is None:
        raise StoreDamaged(f"the database is damaged: its table `meta` has no row `{key}`")
    return row[0]


def read_number(tx: Transaction, key: str) -> float:
    """Return the number of a key, or 0."""
    row = tx.row(_READ, (key,))
    return 0.0 if row is None else float(row[0])


def last_service_second(tx: Transaction) -> float:
    """Return the latest service second that any row contains.

    After a crash, rows written since the last save are later than the saved service second.
    """
    newest = (tx.row(each.latest) for each in tables.declared() if each.latest)
    return max(read_number(tx, SERVICE), *(row[0] or 0.0 for row in newest if row is not None))


def write(tx: Transaction, key: str, value: str | bytes | float) -> None:
    """Set the value of a key."""
    tx.run(_WRITE, (key, value))
