"""What a gateway remembers of itself: one value a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from edge.engine.database import Transaction

EPOCH: Final = "epoch"
"""A ULID made when the sequence counters were: they count within it."""

SERVICE: Final = "service"
"""Service seconds, as last saved."""

MIGRATED: Final = "migrated_from"
"""The version of the schema before it was brought up to date, until that is told; then 0."""

DECOY: Final = "decoy"
"""The secret from which salts for unknown names are made."""

_READ: Final = "SELECT value FROM meta WHERE key = ?"
_WRITE: Final = """
INSERT INTO meta (key, value) VALUES (?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value
"""
_REACHED: Final = """
SELECT max(
    coalesce((SELECT value FROM meta WHERE key = ?), 0.0),
    coalesce((SELECT since FROM held ORDER BY id DESC LIMIT 1), 0.0),
    coalesce((SELECT since FROM outbox ORDER BY id DESC LIMIT 1), 0.0),
    coalesce((SELECT since FROM offline ORDER BY id DESC LIMIT 1), 0.0),
    coalesce((
        SELECT max((
            SELECT e.since FROM events AS e WHERE e.lane = l.lane ORDER BY e.seq DESC LIMIT 1
        )) FROM lanes AS l
    ), 0.0)
)
"""


def epoch(tx: Transaction) -> str:
    """Return the epoch; it is read once."""
    found: str | None = tx.known.get(EPOCH)
    if found is None:
        found = tx.known[EPOCH] = read_text(tx, EPOCH)
    return found


def read_text(tx: Transaction, key: str) -> str:
    """Return a value that `init` wrote."""
    return str(tx.row(_READ, (key,))[0])


def find_text(tx: Transaction, key: str) -> str | None:
    """Return a text, `None` where there is none yet."""
    row = tx.row(_READ, (key,))
    return None if row is None else str(row[0])


def read_bytes(tx: Transaction, key: str) -> bytes:
    """Return a value that `init` wrote."""
    return bytes(tx.row(_READ, (key,))[0])


def read_number(tx: Transaction, key: str) -> float:
    """Return a number, 0 where there is none yet."""
    row = tx.row(_READ, (key,))
    return 0.0 if row is None else float(row[0])


def last_service_second(tx: Transaction) -> float:
    """Return the service second that the gateway is known to have reached.

    It was saved a while ago; after a crash, what was written since tells more.
    """
    return float(tx.row(_REACHED, (SERVICE,))[0])


def write(tx: Transaction, key: str, value: str | bytes | float) -> None:
    """Remember `value`."""
    tx.run(_WRITE, (key, value))
