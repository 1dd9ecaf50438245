"""Notifications to workers that an item assigned to them was deleted or unlocked (XEP-0254).

A notification waits until the session with its full JID is connected. Its row is removed when the
session has received the message. Insertions and deletions of rows are collected and written in one
batch for several units of work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edge.engine.store import row_numbers
from edge.engine.store.database import MessageBytes, Transaction
from edge.engine.store.image import Changes, Table, write_rows
from edge.features.accounts import service as accounts

KIND: Final = "notification"
"""The `kind` in the `Receipt` of a notification."""

BATCH: Final = 256
"""Maximum number of notifications that one unit of work expires."""

CACHED_ACCOUNTS: Final = 1024
"""Maximum number of accounts whose numbers of notifications are cached; a full cache is emptied."""

_MOST: Final = "notifications"
"""Key of the cached upper bound of each account's number of notifications: an added notification
increases the bound, a removed one does not reduce it."""


_ADD: Final = """
INSERT INTO main.notifications (id, account, jid, since, bytes, stanza, kind)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_COUNT: Final = """
SELECT count(*) FROM main.notifications
WHERE account = (SELECT id FROM main.accounts WHERE name = ?)
"""
_DROP_OLDEST: Final = """
DELETE FROM main.notifications WHERE id = (
    SELECT min(id) FROM main.notifications
    WHERE account = (SELECT id FROM main.accounts WHERE name = ?)
)
"""
_ANY: Final = "SELECT 1 FROM main.notifications LIMIT 1"
_WAITING: Final = """
SELECT n.id, n.stanza, n.kind FROM main.notifications AS n JOIN main.accounts AS a
    ON a.id = n.account
WHERE a.name = ? AND n.jid = ?
    AND NOT EXISTS (
        SELECT 1 FROM temp.in_flight AS u WHERE u.kind = 'notification' AND u.id = n.id
    )
ORDER BY n.id
"""
_SESSIONS: Final = """
SELECT DISTINCT s.generation FROM main.notifications AS n JOIN temp.sessions AS s ON s.full = n.jid
WHERE NOT EXISTS (
    SELECT 1 FROM temp.in_flight AS u WHERE u.kind = 'notification' AND u.id = n.id
)
"""
_REMOVE: Final = "DELETE FROM main.notifications WHERE id = ?"
_EXPIRE: Final = """
DELETE FROM main.notifications WHERE id IN (
    SELECT id FROM main.notifications WHERE since <= ? ORDER BY since LIMIT ?
) RETURNING jid
"""
_AGE: Final = "UPDATE main.notifications SET since = since - ? WHERE since <= ?"
_OLDEST: Final = "SELECT min(since) FROM main.notifications"


def add(tx: Transaction, account: str, jid: str, notice: MessageBytes) -> int | None:
    """Store a notification for a session of an account; return its row number, or `None` if the
    account does not exist."""
    status = accounts.status(tx, account)
    if status is None:
        return None
    row = row_numbers.take(tx, "notifications")
    body, since = notice.body, tx.now.service
    _TABLE.change(tx, row, None, (row, status.row, jid, since, len(body), body, notice.kind))
    most: dict[str, int] = tx.cache.get(_MOST, {})
    if account in most:
        most[account] += 1
    return row


def make_room(tx: Transaction, account: str, limit: int) -> bool:
    """Drop an account's oldest notification if it has `limit` or more; return whether one was
    dropped."""
    most: dict[str, int] = tx.cache.setdefault(_MOST, {})
    if most.get(account, limit) >= limit:
        if len(most) >= CACHED_ACCOUNTS:
            most.clear()
        most[account] = tx.row(_COUNT, (account,))[0]
    if most[account] < limit:
        return False
    tx.run(_DROP_OLDEST, (account,))
    most[account] -= 1
    return True


def waiting(tx: Transaction, account: str, jid: str) -> list[tuple[int, MessageBytes]]:
    """Return the row numbers and contents of a full JID's notifications that are not in flight,
    oldest first."""
    return [(row, MessageBytes(*content)) for row, *content in tx.rows(_WAITING, (account, jid))]


def sessions_with_waiting(tx: Transaction) -> list[int]:
    """Return the generations (numbers) of connected sessions with waiting notifications."""
    if tx.row(_ANY) is None:
        return []
    return [generation for (generation,) in tx.rows(_SESSIONS)]


def remove(tx: Transaction, rows: Sequence[int]) -> None:
    """Remove notifications that their sessions have received."""
    for row in rows:
        _TABLE.change(tx, row, (row,), None)


def _write(tx: Transaction, changes: Changes[tuple[object, ...]]) -> None:
    write_rows(tx, _ADD, [values for values, _ in changes.new])
    write_rows(tx, _REMOVE, changes.removed)


_TABLE: Final[Table[int, tuple[object, ...]]] = Table(_MOST, _write)


def expire(tx: Transaction, ttl: float) -> list[str]:
    """Remove up to `BATCH` notifications older than `ttl` service seconds; return the full JIDs for
    which they were stored."""
    return [jid for (jid,) in tx.rows(_EXPIRE, (tx.now.service - ttl, BATCH))]


def oldest(tx: Transaction) -> float | None:
    """Return the service second at which the oldest notification was stored, if there is one."""
    (first,) = tx.row(_OLDEST)
    return None if first is None else float(first)


def age(tx: Transaction, before: float, seconds: float) -> None:
    """Add `seconds`, for which the gateway was switched off, to the age of all notifications that
    were stored until the service second `before`."""
    tx.run(_AGE, (seconds, before))
