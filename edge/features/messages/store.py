"""The table `offline`: plain messages stored for accounts without an available session (XEP-0160).

A row stays until the recipient has acknowledged its stanza. From sending to acknowledgement, it
also has a row in the temporary table `under_way`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from edge.engine import quota
from edge.engine.database import Transaction
from edge.engine.quota import Usage

RECEIPT: Final = "offline"
"""`Receipt.kind` of the stanzas that are sent from this table."""

ROW_OVERHEAD: Final = 64
"""Bytes charged to quotas for a row, in addition to its stanza and its sender."""

BATCH_SIZE: Final = 256
"""Maximum number of messages that expire in one unit of work."""


class StoredMessage(NamedTuple):
    """A stored message: its row number and the complete stanza."""

    row: int
    stanza: bytes


class ExpiredMessage(NamedTuple):
    """A message that expired: its sender's full JID and the name of its recipient's account."""

    sender: str
    account: str


_ADD: Final = """
INSERT INTO main.offline (account, stanza, sender, source, bytes, since)
SELECT id, ?, ?, ?, ?, ? FROM main.accounts WHERE name = ?
"""
_OF_ACCOUNT: Final = """
SELECT count(*), coalesce(sum(bytes), 0) FROM main.offline
WHERE account = (SELECT id FROM main.accounts WHERE name = ?)
"""
_OF_SOURCE: Final = """
SELECT count(*), coalesce(sum(bytes), 0),
    count(account = (SELECT id FROM main.accounts WHERE name = ?) OR NULL)
FROM main.offline WHERE source = ?
"""
_OF_ALL: Final = "SELECT messages, bytes FROM main.offline_total"
_ANY: Final = """
SELECT 1 FROM main.offline AS o JOIN main.accounts AS a ON a.id = o.account
WHERE a.name = ? LIMIT 1
"""
_WITH_A_SESSION: Final = """
SELECT 1 FROM temp.under_way AS u JOIN main.offline AS o ON o.id = u.id
    JOIN main.accounts AS a ON a.id = o.account
WHERE u.kind = 'offline' AND a.name = ? LIMIT 1
"""
_PAGE: Final = """
SELECT o.id, o.stanza FROM main.offline AS o JOIN main.accounts AS a ON a.id = o.account
WHERE a.name = ? ORDER BY o.id LIMIT ?
"""
_OWN: Final = """
SELECT o.id, o.stanza FROM main.offline AS o JOIN main.accounts AS a ON a.id = o.account
    LEFT JOIN temp.under_way AS u ON u.kind = 'offline' AND u.id = o.id
WHERE a.name = ? AND o.source = ? AND u.id IS NULL ORDER BY o.id LIMIT ?
"""
_REMOVE: Final = "DELETE FROM main.offline WHERE id = ?"
_ACCOUNT: Final = """
SELECT a.name FROM main.offline AS o JOIN main.accounts AS a ON a.id = o.account WHERE o.id = ?
"""
_LAST: Final = """
SELECT coalesce(max(id), 0) FROM main.offline
WHERE account = (SELECT id FROM main.accounts WHERE name = ?)
"""
_UP_TO: Final = """
SELECT id FROM main.offline
WHERE account = (SELECT id FROM main.accounts WHERE name = ?) AND id <= ?
    AND id NOT IN (SELECT id FROM temp.under_way WHERE kind = 'offline')
ORDER BY id
"""
_MOVE: Final = "UPDATE main.offline SET id = (SELECT max(id) + 1 FROM main.offline) WHERE id = ?"
_AGE: Final = "UPDATE main.offline SET since = since - ? WHERE since <= ?"
_EXPIRED: Final = """
DELETE FROM main.offline WHERE id IN (
    SELECT id FROM (
        SELECT o.id, o.since FROM main.offline AS o LEFT JOIN temp.under_way AS u
            ON u.kind = 'offline' AND u.id = o.id
        WHERE u.id IS NULL ORDER BY o.id LIMIT ?
    ) WHERE since <= ?
) RETURNING sender, (SELECT name FROM main.accounts WHERE id = account)
"""
_FIRST: Final = """
SELECT o.since FROM main.offline AS o LEFT JOIN temp.under_way AS u
    ON u.kind = 'offline' AND u.id = o.id
WHERE u.id IS NULL ORDER BY o.id LIMIT 1
"""


def stored_size(stanza: bytes, sender: str) -> int:
    """Return the bytes that are charged to quotas for storing a message."""
    return len(stanza) + len(sender.encode()) + ROW_OVERHEAD


def add(tx: Transaction, account: str, stanza: bytes, sender: str) -> None:
    """Store a message for an existing account; `sender` is a full JID."""
    size = stored_size(stanza, sender)
    tx.run(_ADD, (stanza, sender, _bare(sender), size, tx.now.service, account))


def usage(tx: Transaction, account: str, sender: str) -> tuple[int, quota.WaitingUsage]:
    """Return the number of a sender's messages stored for an account, and the usage under quotas.

    The latter is the usage of the account, of the sender's bare JID, and of all accounts.
    """
    messages, size, mine = tx.row(_OF_SOURCE, (account, _bare(sender)))
    of_account = Usage(*tx.row(_OF_ACCOUNT, (account,)))
    return mine, quota.WaitingUsage(of_account, Usage(messages, size), Usage(*tx.row(_OF_ALL)))


def _bare(sender: str) -> str:
    return sender.partition("/")[0]


def has_messages(tx: Transaction, account: str) -> bool:
    """Return whether messages are stored for an account."""
    return tx.row(_ANY, (account,)) is not None


def is_delivering(tx: Transaction, account: str) -> bool:
    """Return whether stored messages of the account were sent and are not acknowledged yet."""
    return tx.row(_WITH_A_SESSION, (account,)) is not None


def read_page(tx: Transaction, account: str, count: int, max_bytes: int) -> list[StoredMessage]:
    """Return the oldest messages of an account: at most `count`, and at most `max_bytes`.

    The first message is returned even if it is larger.
    """
    found: list[StoredMessage] = []
    room = max_bytes
    for row, stanza in tx.run(_PAGE, (account, count)):
        room -= len(stanza)
        if found and room < 0:
            break
        found.append(StoredMessage(row, stanza))
    return found


def read_own(tx: Transaction, account: str, bare: str, count: int) -> list[StoredMessage]:
    """Return the oldest messages of an account from itself that no session was sent."""
    return [StoredMessage(*row) for row in tx.rows(_OWN, (account, bare, count))]


def remove(tx: Transaction, rows: Sequence[int]) -> None:
    """Delete messages that their recipient has acknowledged."""
    for row in rows:
        tx.run(_REMOVE, (row,))


def find_account(tx: Transaction, row: int) -> str | None:
    """Return the name of the account of a row, or `None` if the row does not exist."""
    found = tx.row(_ACCOUNT, (row,))
    return None if found is None else str(found[0])


def last_row(tx: Transaction, account: str) -> int:
    """Return the row of the newest message stored for an account, or 0."""
    return int(tx.row(_LAST, (account,))[0])


def move_to_end(tx: Transaction, account: str, last: int) -> None:
    """Move an account's messages with row numbers up to `last` behind its newer messages.

    Messages that were sent to a session and not acknowledged yet are not moved.
    """
    for row in tx.rows(_UP_TO, (account, last)):
        tx.run(_MOVE, row)


def expire(tx: Transaction, ttl: float) -> list[ExpiredMessage]:
    """Delete messages stored for longer than `ttl` service seconds, and return them.

    Deletes at most `BATCH_SIZE` messages, and none that awaits a session's acknowledgement.
    """
    rows = tx.rows(_EXPIRED, (BATCH_SIZE, tx.now.service - ttl))
    return [ExpiredMessage(*row) for row in rows]


def oldest_since(tx: Transaction) -> float | None:
    """Return the service second at which the oldest message was stored, or `None`.

    Messages that await a session's acknowledgement are not considered.
    """
    row = tx.row(_FIRST)
    return None if row is None else float(row[0])


def age(tx: Transaction, before: float, seconds: float) -> None:
    """Add `seconds` of time off to the age of messages stored by the service second `before`."""
    tx.run(_AGE, (seconds, before))
