"""Rows of waiting messages, events and items, for tests of what operators see."""

from __future__ import annotations

from typing import Final

from edge.engine.store.database import Transaction
from edge.features.custody.store import KEY_BYTES

_HOLD: Final = """
INSERT INTO custody (source, sender, msg_id, destination, body, digest, bytes, since, recipient)
VALUES (?, ?, ?, 'x@gw.example', x'00', x'00', ?, 0.0, ?)
"""
_RELEASED: Final = """
INSERT INTO custody (
    source, sender, msg_id, destination, body, digest, bytes, since, released
) SELECT ?1, ?1 || '/fw', ?2, '', x'', x'', 100, 0.0, coalesce(max(released), 0) + 1 FROM custody
"""
_KEYS: Final = "INSERT INTO released_latest (source, keys, pages) VALUES (?, ?, 1)"
_PAGE: Final = "INSERT INTO released_pages (source, slot, keys) VALUES (?, 0, ?)"
_QUEUE: Final = """
INSERT INTO outbox (recipient, account, source, sender, msg_id, qos, bytes, since)
SELECT name, id, ?, ?, ?, 2, ?, 0.0 FROM accounts WHERE name = ?
"""
_STORE: Final = """
INSERT INTO offline (account, stanza, sender, bytes, since, source)
SELECT id, x'00', ?, ?, 0.0, ? FROM accounts WHERE name = ?
"""
_DEAD_LETTER: Final = """
INSERT INTO dead (
    sender, msg_id, destination, qos, body, bytes, reason, time, state, recipient, outbox, session
) VALUES (?, ?, ?, 2, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id
"""


def hold(
    tx: Transaction, source: str, msg_id: str, size: int = 100, recipient: str | None = None
) -> None:
    """Hold a message of `source` (bare JID), for the gateway or for an account."""
    tx.run(_HOLD, (source, f"{source}/fw", msg_id, size, recipient))


def release(tx: Transaction, source: str, msg_id: str) -> None:
    """Add the row of a delivered message of `source` (bare JID) whose key is not written yet."""
    tx.run(_RELEASED, (source, msg_id))


def add_released_keys(tx: Transaction, source: str, latest: int, page: int) -> None:
    """Write released keys of `source` (bare JID): `latest` new ones and `page` earlier ones."""
    tx.run(_KEYS, (source, bytes(KEY_BYTES * latest)))
    tx.run(_PAGE, (source, bytes(KEY_BYTES * page)))


def queue(tx: Transaction, source: str, msg_id: str, recipient: str, size: int = 100) -> None:
    """Put a message of `source` (bare JID) into the outbox of an account."""
    tx.run(_QUEUE, (source, f"{source}/fw", msg_id, size, recipient))


def store(tx: Transaction, source: str, recipient: str, size: int = 100) -> None:
    """Store a plain message of `source` (bare JID) for an account."""
    tx.run(_STORE, (f"{source}/fw", size, source, recipient))


def add_dead_letter(
    tx: Transaction,
    msg_id: str | None = "m1",
    *,
    state: str = "failed",
    recipient: str | None = "valve",
    body: bytes = b"<message><body>open</body></message>",
    outbox: int | None = 7,
    session: str | None = None,
) -> int:
    """Add a dead letter of pump1; return its number."""
    destination = "gw.example" if recipient is None else f"{recipient}@gw.example"
    row = tx.row(
        _DEAD_LETTER,
        (
            *("pump1@gw.example/fw", msg_id, destination, body, len(body), "no answer"),
            *(tx.now.wall, state, recipient, outbox, session),
        ),
    )
    return int(row[0])
