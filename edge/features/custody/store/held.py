"""Assured messages between their `assured` and their `deliver`.

Rows of `held` are counted and weighed by triggers into `custody` and `custody_total`, so that the
limits are checked against two rows. Which message may be held or released is decided in `rules`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from edge.engine.database import Transaction
from edge.engine.quota import Oldest, Usage
from edge.features.custody.store import dedup_keys

OVERHEAD: Final = 64
"""Bytes that a row costs beside its body and its key."""

EXPIRY_BATCH: Final = 256
"""How many messages expire in one unit of work."""


class Held(NamedTuple):
    """A message in custody; `since` is in service seconds."""

    row: int
    source: str
    sender: str
    msg_id: str
    destination: str
    body: bytes
    digest: bytes
    since: float


_DIGEST: Final = "SELECT digest FROM held WHERE source = ? AND sender = ? AND msg_id = ?"
_FIND: Final = (
    "SELECT id, source, sender, msg_id, destination, body, digest, since"
    " FROM held WHERE source = ? AND sender = ? AND msg_id = ?"
)
_HOLD: Final = """
INSERT INTO held (source, sender, msg_id, destination, body, digest, bytes, since, recipient)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_USAGE: Final = """
SELECT count(h.id), coalesce(sum(h.bytes), 0), t.messages, t.bytes
FROM custody_total AS t LEFT JOIN held AS h ON h.source = ?
"""
_REMOVE: Final = "DELETE FROM held WHERE id = ?"
_OLDEST: Final = "SELECT id, bytes, since FROM held WHERE source = ? ORDER BY id"
_GET: Final = (
    "SELECT id, source, sender, msg_id, destination, body, digest, since FROM held WHERE id = ?"
)
_FIRST_ROWS: Final = "SELECT id, since FROM held ORDER BY id LIMIT ?"
_FIRST: Final = "SELECT since FROM held ORDER BY id LIMIT 1"


def charge(msg_id: str, body: bytes) -> int:
    """Return what holding this message costs its source, in bytes."""
    return len(body) + len(msg_id.encode()) + OVERHEAD


def digest(tx: Transaction, source: str, sender: str, msg_id: str) -> bytes | None:
    """Return the SHA-256 of the body held under this key, or `None`."""
    row = tx.row(_DIGEST, (source, sender, msg_id))
    return None if row is None else row[0]


def find(tx: Transaction, source: str, sender: str, msg_id: str) -> Held | None:
    """Return the message held under this key, or `None`."""
    row = tx.row(_FIND, (source, sender, msg_id))
    return None if row is None else Held(*row)


def usage(tx: Transaction, source: str) -> tuple[Usage, Usage]:
    """Return what the source holds, and what all hold together."""
    mine, my_bytes, total, total_bytes = tx.row(_USAGE, (source,))
    return Usage(mine, my_bytes), Usage(total, total_bytes)


def hold(
    tx: Transaction,
    source: str,
    sender: str,
    msg_id: str,
    destination: str,
    body: bytes,
    digest: bytes,
    recipient: str | None = None,
) -> None:
    """Take a message into custody; its key must not be held.

    `recipient` is the account that it is for, by name: it has its place in that one's outbox.
    """
    size = charge(msg_id, body)
    since = tx.now.service
    tx.run(_HOLD, (source, sender, msg_id, destination, body, digest, size, since, recipient))


def release(tx: Transaction, held: Held, keys: int) -> None:
    """Remove a message that is delivered in this transaction, and remember its key.

    `keys` is how many such keys are remembered of each source, at least.
    """
    tx.run(_REMOVE, (held.row,))
    dedup_keys.add(tx, held.source, held.sender, held.msg_id, keys)


def remove(tx: Transaction, row: int) -> Held:
    """Remove a message that is not delivered, and return it.

    A message of the same key that was released earlier is forgotten too: a late `deliver` must not
    be told that this one arrived.
    """
    held = Held(*tx.row(_GET, (row,)))
    tx.run(_REMOVE, (row,))
    dedup_keys.forget(tx, held.source, held.sender, held.msg_id)
    return held


def oldest(tx: Transaction, source: str) -> Iterator[Oldest]:
    """Yield the messages of a source, oldest first: no more are read than are asked for."""
    for row, size, since in tx.run(_OLDEST, (source,)):
        yield Oldest(row, size, tx.now.service - since)


def expired(tx: Transaction, ttl: float) -> list[int]:
    """Return the rows of messages older than `ttl` seconds of service, a bounded number."""
    limit = tx.now.service - ttl
    return [row for row, since in tx.rows(_FIRST_ROWS, (EXPIRY_BATCH,)) if since <= limit]


def first_since(tx: Transaction) -> float | None:
    """Return since when the oldest message of all is held, in service seconds."""
    row = tx.row(_FIRST)
    return None if row is None else row[0]
