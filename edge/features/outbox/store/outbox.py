"""The outbox table: messages that wait for devices, and the progress of each.

A row stays until its message is finished. A message whose stanza was sent and is not answered yet
also has a row in the temporary table `under_way`, which is empty after a restart. Bodies are in a
table of their own because rows are rewritten several times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from edge.engine import in_flight
from edge.engine.database import Receipt, Transaction
from edge.engine.quota import Usage, WaitingUsage

QOS_RECEIPT: Final = "outbox"
"""The receipt kind of a row whose stanza has its own answer."""

PLAIN_RECEIPT: Final = "outbox plain"
"""The receipt kind of a row sent as a plain message, which ends when the session acknowledges
it.
"""

BATCH_SIZE: Final = 32
"""Most messages that time out or expire in one unit of work."""


class OutboxRow(NamedTuple):
    """A message in the outbox.

    Args:
        row: its number, which is its position.
        recipient: the name of the account.
        source: the bare JID of the original sender, or the key of its own ordering.
        sender: the full JID of the original sender.
        msg_id: the msgId that the sender chose.
        state: its progress, a value of `rules.State`.
        session: the full JID that it was last sent to.
        sends: stanzas sent in this state since the last answer.
        attempts: those of them that count as attempts.
        held: the device asked to wait.
        due: the service second of its timer.
        since: the service second at which it was added.
        in_flight: an answer is expected.
        only_session: the only full JID that may receive it, if it is for one session.
        queue_item: the item of a queue that it carries, if any.
    """

    row: int
    recipient: str
    source: str
    sender: str
    msg_id: str | None
    qos: int
    state: str
    session: str | None
    sends: int
    attempts: int
    held: bool
    due: float | None
    bytes: int
    since: float
    in_flight: bool
    session_bound: bool
    only_session: str | None = None
    queue_item: int | None = None


class OutgoingMessage(NamedTuple):
    """A message to append to an outbox.

    Args:
        source: the key within which order is kept: the bare JID of the sender, or a subscription.
        sender: the full JID of the original sender.
        msg_id: the msgId that the sender chose.
        size: the bytes charged for it.
        only_session: the only full JID that may receive it, if it is for one session.
        session: the full JID that is preferred to others.
        queue_item: the item of a queue that it carries, if any.
    """

    source: str
    sender: str
    msg_id: str | None
    qos: int
    body: bytes
    size: int
    only_session: str | None = None
    session: str | None = None
    queue_item: int | None = None


_COLUMNS: Final = """
SELECT o.id, o.recipient, o.source, o.sender, o.msg_id, o.qos, o.state, o.session, o.sends,
    o.attempts, o.held, o.due, o.bytes, o.since,
    EXISTS (
        SELECT 1 FROM temp.under_way AS u
        WHERE u.kind = iif(o.state = 'plain', 'outbox plain', 'outbox') AND u.id = o.id
    ),
    EXISTS (SELECT 1 FROM temp.sessions AS s WHERE s.full = o.session), o.only, o.queue_item
FROM main.outbox AS o
"""
_GET: Final = f"{_COLUMNS} WHERE o.id = ?"
_OF: Final = f"""{_COLUMNS}
WHERE o.account = (SELECT id FROM main.accounts WHERE name = ?1 AND revoked IS NULL)
"""  # noqa: S608 - of constants
_REACHABLE: Final = "(only IS NULL OR EXISTS (SELECT 1 FROM temp.sessions WHERE full = only))"
_UNFINISHED: Final = f"""{_OF} AND o.state < 'queued' AND {_REACHABLE} -- offered, plain
UNION ALL
{_OF} AND o.state > 'queued' -- received, released, repeated
    AND (
        o.state = 'repeated'
        OR EXISTS (SELECT 1 FROM temp.sessions AS s WHERE s.full = o.session)
    ) AND {_REACHABLE}
"""  # noqa: S608 - of constants
_HEADS: Final = f"""
SELECT min(id) FROM main.outbox
WHERE account = (SELECT id FROM main.accounts WHERE name = ? AND revoked IS NULL)
    AND state = 'queued' AND {_REACHABLE}
GROUP BY source
HAVING NOT EXISTS ( -- hold back messages of revoked accounts
    SELECT 1 FROM main.accounts
    WHERE name = substr(source, 1, instr(source, '@') - 1) AND revoked IS NOT NULL
)
"""  # noqa: S608 - of constants
_ANY: Final = """
SELECT 1 FROM main.outbox WHERE account = (SELECT id FROM main.accounts WHERE name = ?) LIMIT 1
"""
_ADD: Final = """
INSERT INTO main.outbox (
    recipient, account, source, sender, msg_id, qos, bytes, since, only, session, queue_item
) SELECT name, id, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM main.accounts WHERE name = ?
"""
_RESTORE: Final = """
INSERT INTO main.outbox (
    id, recipient, account, source, sender, msg_id, qos, bytes, since, state, session, sends
) SELECT ?, name, id, ?, ?, ?, 2, ?, ?, 'released', ?, 1 FROM main.accounts WHERE name = ?
"""
_ADD_BODY: Final = "INSERT INTO main.outbox_bodies (id, body) VALUES (?, ?)"
_BODY: Final = "SELECT body FROM main.outbox_bodies WHERE id = ?"
_SAVE: Final = """
UPDATE main.outbox
SET state = ?, session = ?, sends = ?, attempts = ?, held = ?, due = ? WHERE id = ?
"""
_REMOVE: Final = "DELETE FROM main.outbox WHERE id = ?"
_END_UNDER_WAY: Final = "DELETE FROM temp.under_way WHERE kind = ? AND id = ?"
_USAGE: Final = """
SELECT count(*), coalesce(sum(bytes), 0), coalesce(sum(source = ?2), 0) FROM main.outbox
WHERE account = (SELECT id FROM main.accounts WHERE name = ?1)
UNION ALL
SELECT count(*), coalesce(sum(bytes), 0), coalesce(sum(source = ?2), 0) FROM main.held
WHERE recipient = ?1
UNION ALL
SELECT count(*), coalesce(sum(bytes), 0), 0 FROM main.outbox WHERE source = ?2
UNION ALL
SELECT count(*), coalesce(sum(bytes), 0), 0 FROM main.held
WHERE source = ?2 AND recipient IS NOT NULL
"""
_TOTAL: Final = "SELECT messages + held_messages, bytes + held_bytes FROM main.outbox_total"
_DUE: Final = f"{_COLUMNS} WHERE o.due <= ? ORDER BY o.due LIMIT ?"
_EXPIRED: Final = f"{_COLUMNS} WHERE o.since <= ? ORDER BY o.since LIMIT ?"
_FIRST_SINCE: Final = "SELECT min(since) FROM main.outbox"
_ORPHANS: Final = f"{_COLUMNS} WHERE o.account IS NULL LIMIT ?"
_FIRST_DUE: Final = "SELECT min(due) FROM main.outbox WHERE due IS NOT NULL"
_SENT_TO: Final = f"""{_COLUMNS}
WHERE o.account = (SELECT id FROM main.accounts WHERE name = ?)
    AND o.state <> 'queued' AND o.session = ? AND o.due IS NOT NULL
"""  # noqa: S608 - of constants
_OF_SOURCE: Final = f"{_COLUMNS} WHERE o.source = ? ORDER BY o.id"
_ABLE: Final = """
SELECT DISTINCT s.account FROM temp.sessions AS s JOIN main.accounts AS a ON a.name = s.account
WHERE EXISTS (SELECT 1 FROM main.outbox AS o WHERE o.account = a.id)
"""
_AGE: Final = "UPDATE main.outbox SET since = since - ? WHERE since <= ?"
_DOWNGRADE: Final = "SELECT downgrade FROM main.accounts WHERE name = ?"


def has_messages(tx: Transaction, account: str) -> bool:
    """Return whether an account has messages in the outbox."""
    return tx.row(_ANY, (account,)) is not None


def find_sendable(tx: Transaction, account: str, count: int) -> list[OutboxRow]:
    """Return the messages of an account that may be sent.

    These are all messages that have been sent, and the first queued message of each source: at
    least `count` sources without a sent message, if there are so many. If `count` messages have
    been sent already, queued messages are not read. Messages that belong to a session that is not
    bound, and all messages of a revoked account, are left out.
    """
    unfinished = _rows(tx.rows(_UNFINISHED, (account,)))
    if len(unfinished) >= count:
        return unfinished
    heads = sorted(row for (row,) in tx.rows(_HEADS, (account,)))[: 2 * count]
    return unfinished + [found for row in heads if (found := find(tx, row)) is not None]


def find(tx: Transaction, row: int) -> OutboxRow | None:
    """Return a message, or `None` if it is gone."""
    found = tx.row(_GET, (row,))
    return None if found is None else _row(found)


def body(tx: Transaction, row: int) -> bytes:
    """Return the body of an existing message."""
    return bytes(tx.row(_BODY, (row,))[0])


def add(tx: Transaction, account: str, message: OutgoingMessage) -> int | None:
    """Append a message to an account's outbox; return its number, or `None` without an account."""
    source, sender, msg_id, qos, body, size, only_session, session, queue_item = message
    target = only_session, only_session or session, queue_item
    values = (source, sender, msg_id, qos, size, tx.now.service, *target, account)
    done = tx.run(_ADD, values)
    return _with_body(tx, done.lastrowid if done.rowcount else None, body)


def restore(
    tx: Transaction,
    row: int,
    account: str,
    sender: str,
    msg_id: str | None,
    session: str,
    body: bytes,
    size: int,
) -> int | None:
    """Insert a released message under its old number, so that its session is asked again to deliver
    it.

    Returns its number, or `None` without such an account.
    """
    source = sender.partition("/")[0]
    values = (row, source, sender, msg_id, size, tx.now.service, session, account)
    return _with_body(tx, row if tx.run(_RESTORE, values).rowcount else None, body)


def _with_body(tx: Transaction, row: int | None, body: bytes) -> int | None:
    if row is not None:
        tx.run(_ADD_BODY, (row, body))
    return row


def save(tx: Transaction, row: OutboxRow) -> None:
    """Store the progress of a message."""
    values = (row.state, row.session, row.sends, row.attempts, row.held, row.due, row.row)
    tx.run(_SAVE, values)


def mark_sent(tx: Transaction, row: OutboxRow, generation: int) -> Receipt:
    """Record that a message's stanza is sent to a session; return the receipt."""
    receipt = _receipt(row)
    in_flight.begin(tx, receipt, generation)
    return receipt


def clear_in_flight(tx: Transaction, row: OutboxRow) -> None:
    """Record that no answer is expected any more."""
    if row.in_flight:
        tx.run(_END_UNDER_WAY, _receipt(row))


def _receipt(row: OutboxRow) -> Receipt:
    return Receipt(PLAIN_RECEIPT if row.state == "plain" else QOS_RECEIPT, row.row)


def remove(tx: Transaction, row: OutboxRow) -> None:
    """Delete a finished message."""
    clear_in_flight(tx, row)
    tx.run(_REMOVE, (row.row,))


def usage(tx: Transaction, account: str, source: str) -> tuple[int, WaitingUsage]:
    """Return how many messages of a source wait for an account, and all usage that quotas limit.

    The usage is that of the account, of the source, and in total. Messages in custody for an
    account count too.
    """
    stored, held, of_source, held_of_source = tx.rows(_USAGE, (account, source))
    waiting = WaitingUsage(
        Usage(stored[0] + held[0], stored[1] + held[1]),
        Usage(of_source[0] + held_of_source[0], of_source[1] + held_of_source[1]),
        total(tx),
    )
    return stored[2] + held[2], waiting


def total(tx: Transaction) -> Usage:
    """Return the usage of all outboxes, including messages in custody for devices."""
    return Usage(*tx.row(_TOTAL))


def find_due(tx: Transaction) -> list[OutboxRow]:
    """Return up to `BATCH_SIZE` messages whose timer has fired, the earliest first."""
    return _rows(tx.rows(_DUE, (tx.now.service, BATCH_SIZE)))


def find_expired(tx: Transaction, ttl: float) -> list[OutboxRow]:
    """Return up to `BATCH_SIZE` messages older than `ttl` service seconds."""
    return _rows(tx.rows(_EXPIRED, (tx.now.service - ttl, BATCH_SIZE)))


def find_orphans(tx: Transaction) -> list[OutboxRow]:
    """Return up to `BATCH_SIZE` messages whose account was removed."""
    return _rows(tx.rows(_ORPHANS, (BATCH_SIZE,)))


def find_sent_to(tx: Transaction, account: str, session: str) -> list[OutboxRow]:
    """Return the messages sent to a session of an account that have a running timer."""
    return _rows(tx.rows(_SENT_TO, (account, session)))


def find_by_source(tx: Transaction, source: str) -> list[OutboxRow]:
    """Return all messages of one source; their number is limited by the outbox quota."""
    return _rows(tx.rows(_OF_SOURCE, (source,)))


def next_due_time(tx: Transaction) -> float | None:
    """Return the service second of the earliest timer, or `None`."""
    (first,) = tx.row(_FIRST_DUE)
    return None if first is None else float(first)


def oldest_since(tx: Transaction) -> float | None:
    """Return the service second at which the oldest message was added, or `None`."""
    (first,) = tx.row(_FIRST_SINCE)
    return None if first is None else float(first)


def accounts_with_sessions(tx: Transaction) -> list[str]:
    """Return the names of accounts that have a bound session and messages."""
    return [str(account) for (account,) in tx.rows(_ABLE)]


def is_downgrade_allowed(tx: Transaction, account: str) -> bool:
    """Return whether an account accepts plain messages for sessions without QoS support."""
    row = tx.row(_DOWNGRADE, (account,))
    return row is not None and bool(row[0])


def _rows(found: Sequence[Any]) -> list[OutboxRow]:
    return [_row(row) for row in found]


def _row(found: Any) -> OutboxRow:
    *fields, held, due, size, since, sent, bound, only, item = found
    return OutboxRow._make(
        (*fields, bool(held), due, size, since, bool(sent), bool(bound), only, item)
    )


def age(tx: Transaction, before: float, seconds: float) -> None:
    """Age messages stored until service second `before` by `seconds`."""
    tx.run(_AGE, (seconds, before))
