"""The table `offline`: plain messages stored for accounts without an available session (XEP-0160).

A row stays until the recipient has acknowledged its message. From sending to acknowledgement, it
also has a row in the temporary table `in_flight`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from edge.engine.rules import quota
from edge.engine.rules.quota import NO_USAGE, Usage
from edge.engine.store import in_flight
from edge.engine.store.database import MessageBytes, Transaction

RECEIPT: Final = "offline"
"""`Receipt.kind` of the messages of this table that were sent to a session of the account."""

SESSION_RECEIPT: Final = "offline_session"
"""`Receipt.kind` of the messages of this table that are for this session alone, because they are
addressed to its full JID. When the session ends, they are for any session of the account."""

ROW_OVERHEAD: Final = 64
"""Bytes charged to quotas for a row, in addition to its message and its sender."""

BATCH_SIZE: Final = 256
"""Maximum number of messages that expire in one unit of work."""


class StoredMessage(NamedTuple):
    """A stored message, as a session is sent it; `sender` is a full JID.

    `received` is when the gateway got it, in ms since 1970; `None` if the content has a time.
    """

    content: MessageBytes
    sender: str
    received: int | None = None


class ExpiredMessage(NamedTuple):
    """A message that expired: its sender's full JID and the name of its recipient's account."""

    sender: str
    account: str


_ADD: Final = """
INSERT INTO main.offline (
    account, stanza, kind, content_type, sender, source, bytes, since, received
)
SELECT id, ?, ?, ?, ?, ?, ?, ?, ? FROM main.accounts WHERE name = ?
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
SELECT 1 FROM main.accounts AS a CROSS JOIN main.offline AS o ON o.account = a.id
WHERE a.name = ? AND NOT EXISTS (
    SELECT 1 FROM temp.in_flight AS u WHERE u.kind = 'offline_session' AND u.id = o.id
) LIMIT 1
"""
_ANY_FROM: Final = """
SELECT 1 FROM main.offline
WHERE source = ? AND account = (SELECT id FROM main.accounts WHERE name = ?) LIMIT 1
"""
_ANY_WAITING: Final = """
SELECT 1 FROM main.accounts AS a CROSS JOIN main.offline AS o ON o.account = a.id
WHERE a.name = ? AND NOT EXISTS (
    SELECT 1 FROM temp.in_flight AS u
    WHERE u.kind IN ('offline', 'offline_session') AND u.id = o.id
) LIMIT 1
"""
_WAITING: Final = """
SELECT o.id, o.sender, o.received, o.stanza, o.kind, o.content_type
FROM main.accounts AS a CROSS JOIN main.offline AS o ON o.account = a.id
WHERE a.name = ? AND NOT EXISTS (
    SELECT 1 FROM temp.in_flight AS u
    WHERE u.kind IN ('offline', 'offline_session') AND u.id = o.id
) ORDER BY o.id LIMIT ?
"""
_SENT: Final = """
SELECT count(*), coalesce(sum(o.bytes), 0), count(*) FILTER (WHERE o.source = ?3),
    coalesce(sum(o.bytes) FILTER (WHERE o.source = ?3), 0)
FROM temp.in_flight AS u CROSS JOIN main.offline AS o ON o.id = u.id
WHERE u.generation = ?1 AND u.kind = ?2
"""
_REMOVE: Final = """
DELETE FROM main.offline
WHERE id = ? AND account = (SELECT id FROM main.accounts WHERE name = ?)
"""
_OWN: Final = """
SELECT o.id, o.sender, o.received, o.stanza, o.kind, o.content_type
FROM main.offline AS o JOIN main.accounts AS a ON a.id = o.account
    LEFT JOIN temp.in_flight AS u
        ON u.kind IN ('offline', 'offline_session') AND u.id = o.id
WHERE a.name = ? AND o.source = ? AND u.id IS NULL ORDER BY o.id LIMIT ?
"""
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
    AND id NOT IN (
        SELECT id FROM temp.in_flight WHERE kind IN ('offline', 'offline_session')
    )
ORDER BY id
"""
_MOVE: Final = "UPDATE main.offline SET id = (SELECT max(id) + 1 FROM main.offline) WHERE id = ?"
_AGE: Final = "UPDATE main.offline SET since = since - ? WHERE since <= ?"
_EXPIRED: Final = """
DELETE FROM main.offline WHERE id IN (
    SELECT o.id FROM main.offline AS o LEFT JOIN temp.in_flight AS u
        ON u.kind IN ('offline', 'offline_session') AND u.id = o.id
    WHERE o.since <= ? AND u.id IS NULL ORDER BY o.since LIMIT ?
) RETURNING sender, (SELECT name FROM main.accounts WHERE id = account)
"""
_FIRST: Final = """
SELECT o.since FROM main.offline AS o LEFT JOIN temp.in_flight AS u
    ON u.kind IN ('offline', 'offline_session') AND u.id = o.id
WHERE u.id IS NULL ORDER BY o.since LIMIT 1
"""


def stored_size(message: StoredMessage) -> int:
    """Return the bytes that are charged to quotas for storing a message."""
    return len(message.content.body) + len(message.sender.encode()) + ROW_OVERHEAD


def add(tx: Transaction, account: str, message: StoredMessage) -> int:
    """Store a message for an existing account, and return its row."""
    content, sender, received = message
    size, since = stored_size(message), tx.now.service
    values = (*content, sender, _bare(sender), size, since, received, account)
    return tx.run(_ADD, values).lastrowid or 0


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
    """Return whether messages are stored for an account, without those for one session alone."""
    return tx.row(_ANY, (account,)) is not None


def has_from(tx: Transaction, account: str, sender: str) -> bool:
    """Return whether messages of a sender's account are stored for an account."""
    return tx.row(_ANY_FROM, (_bare(sender), account)) is not None


def has_waiting(tx: Transaction, account: str) -> bool:
    """Return whether messages are stored for an account that no session was sent."""
    return tx.row(_ANY_WAITING, (account,)) is not None


def read_page(
    tx: Transaction, account: str, window: Usage, used: Usage = NO_USAGE
) -> list[tuple[int, StoredMessage]]:
    """Return the oldest messages of an account that no session was sent, as many as fit, each after
    its row.

    `used` is what is in the window already. If that is empty, the first message is returned even if
    it is larger.
    """
    found: list[tuple[int, StoredMessage]] = []
    for values in tx.run(_WAITING, (account, window.messages)):
        row, message = _stored(values)
        size = len(message.content.body)
        if not window.has_room(used, size):
            break
        used = Usage(used.messages + 1, used.bytes + size)
        found.append((row, message))
    return found


def read_own(
    tx: Transaction, account: str, bare: str, count: int
) -> list[tuple[int, StoredMessage]]:
    """Return the oldest messages of an account from itself that no session was sent, each after its
    row."""
    return [_stored(row) for row in tx.rows(_OWN, (account, bare, count))]


def _stored(values: Sequence[Any]) -> tuple[int, StoredMessage]:
    row, sender, received, *content = values
    return row, StoredMessage(MessageBytes(*content), sender, received)


def usage_in_flight(
    tx: Transaction, generation: int, kind: str, sender: str = ""
) -> tuple[Usage, Usage]:
    """Return the number and bytes of messages that a session was sent and has not acknowledged.

    `kind` is that of their receipts. The second value is what the account of `sender` has of them.
    """
    if not in_flight.has_rows(tx, kind, generation):
        return NO_USAGE, NO_USAGE
    messages, size, mine, my_size = tx.row(_SENT, (generation, kind, _bare(sender)))
    return Usage(messages, size), Usage(mine, my_size)


def remove(tx: Transaction, account: str, rows: Sequence[int]) -> None:
    """Delete messages of an account that their recipient has acknowledged.

    The number of a row that was removed with another account may have been used again.
    """
    for row in rows:
        tx.run(_REMOVE, (row, account))


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
    rows = tx.rows(_EXPIRED, (tx.now.service - ttl, BATCH_SIZE))
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
