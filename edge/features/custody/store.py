"""The rows of custody: messages between `assured` and `deliver`, and the keys of released ones.

The hot functions take and return values, so that the state can be held in memory as an image of
these rows: `held_digest`, `find`, `usage`, `hold`, `release` and `was_released`.

Triggers count the rows of `held` into `custody_total`. A released key is 8 bytes of a hash. The
latest of a source are in one short row, so that a commit writes few pages however many sources
there are; when that row has `PAGE_KEYS` keys, they move into a ring of such pages. Two messages of
one source with the same hash would be taken for one. That does not happen by chance, and a sender
that makes it happen deceives only itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Final, NamedTuple

from edge.engine.database import Transaction
from edge.engine.quota import EvictionCandidate, Usage, charge

EXPIRY_BATCH: Final = 256
"""Messages that expire in one unit of work."""

KEY_BYTES: Final = 8

PAGE_KEYS: Final = 32

_DIGEST: Final = "SELECT digest FROM held WHERE source = ? AND sender = ? AND msg_id = ?"
_FIND: Final = """
SELECT id, source, sender, msg_id, destination, body, digest, since
FROM held WHERE source = ? AND sender = ? AND msg_id = ?
"""
_GET: Final = (
    "SELECT id, source, sender, msg_id, destination, body, digest, since FROM held WHERE id = ?"
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
_FIRST_ROWS: Final = "SELECT id, since FROM held ORDER BY id LIMIT ?"
_FIRST: Final = "SELECT since FROM held ORDER BY id LIMIT 1"
_AGE: Final = "UPDATE main.held SET since = since - ? WHERE since <= ?"

_INSERT_LATEST: Final = "INSERT INTO released_latest (source, keys) VALUES (?, ?)"
_APPEND_KEY: Final = """
UPDATE released_latest SET keys = CAST(keys || ? AS BLOB) WHERE source = ? AND length(keys) < ?
"""
_MOVE_TO_PAGE: Final = """
INSERT INTO released_pages (source, slot, keys)
SELECT source, pages % ?, keys FROM released_latest WHERE source = ?
ON CONFLICT (source, slot) DO UPDATE SET keys = excluded.keys
"""
_RESTART_LATEST: Final = "UPDATE released_latest SET keys = ?, pages = pages + 1 WHERE source = ?"
_LATEST: Final = "SELECT keys FROM released_latest WHERE source = ?"
_PAGES: Final = "SELECT slot, keys FROM released_pages WHERE source = ?"
_SET_LATEST: Final = "UPDATE released_latest SET keys = ? WHERE source = ?"
_SET_PAGE: Final = "UPDATE released_pages SET keys = ? WHERE source = ? AND slot = ?"


class HeldMessage(NamedTuple):
    """A message in custody; `since` is in service seconds."""

    row: int
    source: str
    sender: str
    msg_id: str
    destination: str
    body: bytes
    digest: bytes
    since: float


def held_digest(tx: Transaction, source: str, sender: str, msg_id: str) -> bytes | None:
    """Return the SHA-256 of the body held under this key, or `None`."""
    row = tx.row(_DIGEST, (source, sender, msg_id))
    return None if row is None else row[0]


def find(tx: Transaction, source: str, sender: str, msg_id: str) -> HeldMessage | None:
    """Return the message held under this key, or `None`."""
    row = tx.row(_FIND, (source, sender, msg_id))
    return None if row is None else HeldMessage(*row)


def usage(tx: Transaction, source: str) -> tuple[Usage, Usage]:
    """Return what one source holds, and what all sources hold together."""
    messages, size, total, total_size = tx.row(_USAGE, (source,))
    return Usage(messages, size), Usage(total, total_size)


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

    `recipient` is the name of the account whose outbox has room reserved for the message.
    """
    size = charge(msg_id, body)
    since = tx.now.service
    tx.run(_HOLD, (source, sender, msg_id, destination, body, digest, size, since, recipient))


def release(tx: Transaction, held: HeldMessage, keys: int) -> None:
    """Remove a message that is delivered in this transaction, and remember its key.

    At least the last `keys` keys of each source are remembered.
    """
    tx.run(_REMOVE, (held.row,))
    remember_released(tx, held.source, held.sender, held.msg_id, keys)


def remove(tx: Transaction, row: int) -> HeldMessage:
    """Remove a message that is not delivered, and return it.

    Its key is forgotten too, if an earlier message of the same key was released: a late `deliver`
    must not be answered as if this message had been delivered.
    """
    held = HeldMessage(*tx.row(_GET, (row,)))
    tx.run(_REMOVE, (row,))
    forget_released(tx, held.source, held.sender, held.msg_id)
    return held


def oldest(tx: Transaction, source: str) -> Iterator[EvictionCandidate]:
    """Yield the messages of a source, oldest first; rows are read one at a time."""
    for row, size, since in tx.run(_OLDEST, (source,)):
        yield EvictionCandidate(row, size, tx.now.service - since)


def expired(tx: Transaction, ttl: float) -> list[int]:
    """Return the rows of messages older than `ttl` service seconds, at most `EXPIRY_BATCH`."""
    limit = tx.now.service - ttl
    return [row for row, since in tx.rows(_FIRST_ROWS, (EXPIRY_BATCH,)) if since <= limit]


def oldest_since(tx: Transaction) -> float | None:
    """Return the service second from which the oldest message of all has been held."""
    row = tx.row(_FIRST)
    return None if row is None else row[0]


def was_released(tx: Transaction, source: str, sender: str, msg_id: str) -> bool:
    """Return whether a message of this key is remembered as released."""
    row = tx.row(_LATEST, (source,))
    if row is None:
        return False
    key = _key(sender, msg_id)
    return key in _split(row[0]) or any(
        key in _split(keys) for _slot, keys in tx.rows(_PAGES, (source,))
    )


def remember_released(tx: Transaction, source: str, sender: str, msg_id: str, least: int) -> None:
    """Remember the key of a released message; at least the last `least` of a source are kept."""
    key = _key(sender, msg_id)
    if tx.run(_APPEND_KEY, (key, source, PAGE_KEYS * KEY_BYTES)).rowcount:
        return
    if tx.run(_MOVE_TO_PAGE, (-(-least // PAGE_KEYS), source)).rowcount:
        tx.run(_RESTART_LATEST, (key, source))
    else:
        tx.run(_INSERT_LATEST, (source, key))


def forget_released(tx: Transaction, source: str, sender: str, msg_id: str) -> None:
    """Forget the key of a released message, if it is remembered."""
    key = _key(sender, msg_id)
    for (keys,) in tx.rows(_LATEST, (source,)):
        tx.run(_SET_LATEST, (_without(keys, key), source))
    for slot, keys in tx.rows(_PAGES, (source,)):
        if key in _split(keys):
            tx.run(_SET_PAGE, (_without(keys, key), source, slot))


def _key(sender: str, msg_id: str) -> bytes:
    return blake2b(f"{sender}\0{msg_id}".encode(), digest_size=KEY_BYTES).digest()


def _split(keys: bytes) -> list[bytes]:
    return [keys[start : start + KEY_BYTES] for start in range(0, len(keys), KEY_BYTES)]


def _without(keys: bytes, key: bytes) -> bytes:
    return b"".join(kept for kept in _split(keys) if kept != key)


def age(tx: Transaction, before: float, seconds: float) -> None:
    """Age messages stored until service second `before` by `seconds`."""
    tx.run(_AGE, (seconds, before))
