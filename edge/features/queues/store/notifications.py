"""Words to workers that must not be lost: an item of theirs is deleted, or unlocked (XEP-0254).

Each is for one session, by its full JID, and waits for it to come back if it is not there. A row
goes when the peer has its stanza: while it is with a session, `under_way` has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from edge.engine.database import Transaction

KIND: Final = "notification"
"""The kind of receipt of these rows."""

BATCH: Final = 256
"""How many expire in one unit of work."""


class Word(NamedTuple):
    """A notification that waits; `stanza` is complete, `jid` whom it is for."""

    row: int
    jid: str
    stanza: bytes


_ADD: Final = """
INSERT INTO main.notifications (account, jid, since, bytes, stanza)
SELECT id, ?, ?, ?, ? FROM main.accounts WHERE name = ?
"""
_COUNT: Final = """
SELECT count(*) FROM main.notifications
WHERE account = (SELECT id FROM main.accounts WHERE name = ?)
"""
_DROP: Final = """
DELETE FROM main.notifications WHERE id = (
    SELECT min(id) FROM main.notifications
    WHERE account = (SELECT id FROM main.accounts WHERE name = ?)
)
"""
_ANY: Final = "SELECT 1 FROM main.notifications LIMIT 1"
_FOR: Final = """
SELECT n.id, n.jid, n.stanza FROM main.notifications AS n JOIN main.accounts AS a
    ON a.id = n.account
WHERE a.name = ? AND n.jid = ?
    AND NOT EXISTS (
        SELECT 1 FROM temp.under_way AS u WHERE u.kind = 'notification' AND u.id = n.id
    )
ORDER BY n.id
"""
_READY: Final = """
SELECT DISTINCT s.generation FROM main.notifications AS n JOIN temp.sessions AS s ON s.full = n.jid
WHERE NOT EXISTS (
    SELECT 1 FROM temp.under_way AS u WHERE u.kind = 'notification' AND u.id = n.id
)
"""
_REMOVE: Final = "DELETE FROM main.notifications WHERE id = ?"
_EXPIRE: Final = """
DELETE FROM main.notifications WHERE id IN (
    SELECT id FROM main.notifications WHERE since <= ? ORDER BY since LIMIT ?
) RETURNING jid
"""
_FIRST: Final = "SELECT min(since) FROM main.notifications"


def add(tx: Transaction, account: str, jid: str, stanza: bytes) -> int | None:
    """Keep a notification for a session of an account, by name; returns its row, `None` where there
    is no such account."""
    done = tx.run(_ADD, (jid, tx.now.service, len(stanza), stanza, account))
    return done.lastrowid if done.rowcount else None


def make_room(tx: Transaction, account: str, limit: int) -> bool:
    """Drop the oldest of an account that has as many as it may; tells whether one was dropped."""
    if tx.row(_COUNT, (account,))[0] < limit:
        return False
    tx.run(_DROP, (account,))
    return True


def waiting(tx: Transaction, account: str, jid: str) -> list[Word]:
    """Return what waits for a session and is not with it, in order: a bounded number."""
    return [Word._make(row) for row in tx.rows(_FOR, (account, jid))]


def sessions_with(tx: Transaction) -> list[int]:
    """Return the sessions that are there and have something that waits for them."""
    if tx.row(_ANY) is None:
        return []
    return [generation for (generation,) in tx.rows(_READY)]


def remove(tx: Transaction, rows: Sequence[int]) -> None:
    """Forget what the peer has."""
    for row in rows:
        tx.run(_REMOVE, (row,))


def expire(tx: Transaction, ttl: float) -> list[str]:
    """Remove what has waited for longer than `ttl` seconds of service; returns whom it was for."""
    return [jid for (jid,) in tx.rows(_EXPIRE, (tx.now.service - ttl, BATCH))]


def first_since(tx: Transaction) -> float | None:
    """Return since when the oldest one waits, in service seconds."""
    (first,) = tx.row(_FIRST)
    return None if first is None else float(first)
