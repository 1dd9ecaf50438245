"""The keys of messages that were released: what a repeated `deliver` is answered by.

A key is 8 bytes of a hash. The latest of a source stand in one short row, so that a commit writes
few pages however many sources it has; the one that finds 32 there moves them into a ring of such
pages. Two messages of one source with the same hash would be taken for one: by chance that does not
happen, and who makes it happen fools itself alone.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from edge.engine.database import Transaction

KEY_BYTES: Final = 8

PAGE_KEYS: Final = 32

_BEGIN: Final = "INSERT INTO released_latest (source, keys) VALUES (?, ?)"
_ADD: Final = """
UPDATE released_latest SET keys = CAST(keys || ? AS BLOB) WHERE source = ? AND length(keys) < ?
"""
_FILE: Final = """
INSERT INTO released_pages (source, slot, keys)
SELECT source, pages % ?, keys FROM released_latest WHERE source = ?
ON CONFLICT (source, slot) DO UPDATE SET keys = excluded.keys
"""
_AGAIN: Final = "UPDATE released_latest SET keys = ?, pages = pages + 1 WHERE source = ?"
_LATEST: Final = "SELECT keys FROM released_latest WHERE source = ?"
_PAGES: Final = "SELECT slot, keys FROM released_pages WHERE source = ?"
_SET_LATEST: Final = "UPDATE released_latest SET keys = ? WHERE source = ?"
_SET_PAGE: Final = "UPDATE released_pages SET keys = ? WHERE source = ? AND slot = ?"


def add(tx: Transaction, source: str, sender: str, msg_id: str, least: int) -> None:
    """Remember the key of a message; at least the last `least` keys of its source are kept."""
    key = _key(sender, msg_id)
    if tx.run(_ADD, (key, source, PAGE_KEYS * KEY_BYTES)).rowcount:
        return
    if tx.run(_FILE, (-(-least // PAGE_KEYS), source)).rowcount:
        tx.run(_AGAIN, (key, source))
    else:
        tx.run(_BEGIN, (source, key))


def has(tx: Transaction, source: str, sender: str, msg_id: str) -> bool:
    """Tell whether a message of this key was released, among the last of its source."""
    key = _key(sender, msg_id)
    row = tx.row(_LATEST, (source,))
    if row is None:
        return False
    return key in _split(row[0]) or any(
        key in _split(keys) for _slot, keys in tx.rows(_PAGES, (source,))
    )


def forget(tx: Transaction, source: str, sender: str, msg_id: str) -> None:
    """Forget the key of a message, if it is remembered."""
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
