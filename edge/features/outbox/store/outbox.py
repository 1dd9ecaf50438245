"""Messages that wait for devices: the line of each account, and how far each message has come.

A row stays until its message is over. That its stanza was sent and has no answer is `under_way`, in
a table that ends with the process: after a restart nothing is. Bodies stand apart, since rows are
written several times. What is sent when, and what an answer means, is decided in `rules`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from edge.engine import in_flight as under_way
from edge.engine.database import Receipt, Transaction
from edge.engine.quota import Stored, Usage

QOS_RECEIPT: Final = "outbox"
"""The kind of receipt of a row whose stanza waits for an answer of its own."""

PLAIN_RECEIPT: Final = "outbox plain"
"""That of a row that was sent as a plain message: it is over when the session has the stanza."""

BATCH_SIZE: Final = 32
"""How many messages fall due, or expire, in one unit of work."""


class OutboxRow(NamedTuple):
    """A message in the outbox.

    `recipient` is the account's name, `source` the bare JID of the original sender, `sender` its
    full one. `session` is the full JID that it was sent to last; `sends` counts those of the
    present state since a last answer, `attempts` those that count. `held` tells that the device
    asked to wait; `due` and `since` are service seconds. `under_way` tells whether an answer is
    waited for, and `there` whether that session is bound. `only` is the full JID that alone may
    have it, if any; `queue_item` the item of a queue that it is sent for, if it is.
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
    under_way: bool
    there: bool
    only: str | None = None
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
_FLIGHT: Final = f"""{_OF} AND o.state < 'queued' AND {_REACHABLE} -- offered, plain
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
HAVING NOT EXISTS ( -- what a revoked account sent waits for it to be restored
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
_DOWNGRADE: Final = "SELECT downgrade FROM main.accounts WHERE name = ?"


def has_messages(tx: Transaction, account: str) -> bool:
    """Tell whether anything waits for an account, by name."""
    return tx.row(_ANY, (account,)) is not None


def find_sendable(tx: Transaction, account: str, count: int) -> list[OutboxRow]:
    """Return what of an account may be sent: all that is on its way, and of what is queued the
    first of each source: of `count` sources that have nothing on its way, at least, if there are so
    many. `count` is how many may be on their way: where they are, nothing that is queued is read.
    What belongs to a session that is not there is left out, and all of an account that is revoked.
    """
    flight = _rows(tx.rows(_FLIGHT, (account,)))
    if len(flight) >= count:
        return flight
    heads = sorted(row for (row,) in tx.rows(_HEADS, (account,)))[: 2 * count]
    return flight + _found(tx, heads)


def get(tx: Transaction, row: int) -> OutboxRow | None:
    """Return a message, if it is there still."""
    found = tx.row(_GET, (row,))
    return None if found is None else _row(found)


def body(tx: Transaction, row: int) -> bytes:
    """Return the body of a message that is there."""
    return bytes(tx.row(_BODY, (row,))[0])


def add(
    tx: Transaction,
    account: str,
    source: str,
    sender: str,
    msg_id: str | None,
    qos: int,
    body: bytes,
    size: int,
    *,
    only: str | None = None,
    session: str | None = None,
    queue_item: int | None = None,
) -> int | None:
    """Put a message at the end of an account's line; returns its number, `None` where there is no
    such account. `size` is what it is charged with, in bytes.

    `source` is what keeps an order of its own in that line. Only the full JID `only` may have it,
    if one is named, or `session` has it rather than others. `queue_item` is the item of a queue
    that it is sent for.
    """
    where = only, only or session, queue_item
    values = (source, sender, msg_id, qos, size, tx.now.service, *where, account)
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
    """Put a released message back under its number: the session that has it is to be told again.

    Returns its number, `None` where there is no such account.
    """
    source = sender.partition("/")[0]
    values = (row, source, sender, msg_id, size, tx.now.service, session, account)
    return _with_body(tx, row if tx.run(_RESTORE, values).rowcount else None, body)


def _with_body(tx: Transaction, row: int | None, body: bytes) -> int | None:
    if row is not None:
        tx.run(_ADD_BODY, (row, body))
    return row


def save(tx: Transaction, row: OutboxRow) -> None:
    """Write down how far a message has come."""
    values = (row.state, row.session, row.sends, row.attempts, row.held, row.due, row.row)
    tx.run(_SAVE, values)


def mark_sent(tx: Transaction, row: OutboxRow, generation: int) -> Receipt:
    """Note that a message's stanza is sent to a session; returns its receipt."""
    receipt = _receipt(row)
    under_way.begin(tx, receipt, generation)
    return receipt


def clear_in_flight(tx: Transaction, row: OutboxRow) -> None:
    """Note that no answer is waited for any more."""
    if row.under_way:
        tx.run(_END_UNDER_WAY, _receipt(row))


def _receipt(row: OutboxRow) -> Receipt:
    return Receipt(PLAIN_RECEIPT if row.state == "plain" else QOS_RECEIPT, row.row)


def remove(tx: Transaction, row: OutboxRow) -> None:
    """Take a message out of the line: it is over."""
    clear_in_flight(tx, row)
    tx.run(_REMOVE, (row.row,))


def usage(tx: Transaction, account: str, source: str) -> tuple[int, Stored]:
    """Return how many messages of a source wait for an account; and what waits for that account, of
    that source, and in all. Those count that are held, and will come here."""
    here, held, of_source, held_of = tx.rows(_USAGE, (account, source))
    waiting = Stored(
        Usage(here[0] + held[0], here[1] + held[1]),
        Usage(of_source[0] + held_of[0], of_source[1] + held_of[1]),
        total(tx),
    )
    return here[2] + held[2], waiting


def total(tx: Transaction) -> Usage:
    """Return what waits for all devices, together with what is held for them."""
    return Usage(*tx.row(_TOTAL))


def find_due(tx: Transaction) -> list[OutboxRow]:
    """Return what has fallen due, the earliest first: a bounded number."""
    return _rows(tx.rows(_DUE, (tx.now.service, BATCH_SIZE)))


def find_expired(tx: Transaction, ttl: float) -> list[OutboxRow]:
    """Return messages older than `ttl` seconds of service, a bounded number."""
    return _rows(tx.rows(_EXPIRED, (tx.now.service - ttl, BATCH_SIZE)))


def find_orphans(tx: Transaction) -> list[OutboxRow]:
    """Return messages whose account was removed, a bounded number."""
    return _rows(tx.rows(_ORPHANS, (BATCH_SIZE,)))


def find_sent_to(tx: Transaction, account: str, session: str) -> list[OutboxRow]:
    """Return what was sent to a session of an account and has a time at which something is due."""
    return _rows(tx.rows(_SENT_TO, (account, session)))


def find_by_source(tx: Transaction, source: str) -> list[OutboxRow]:
    """Return what waits of one source: what the limits of the outbox let it have there."""
    return _rows(tx.rows(_OF_SOURCE, (source,)))


def next_due_time(tx: Transaction) -> float | None:
    """Return when the next message falls due, in service seconds."""
    (first,) = tx.row(_FIRST_DUE)
    return None if first is None else float(first)


def oldest_since(tx: Transaction) -> float | None:
    """Return since when the oldest message waits, in service seconds."""
    (first,) = tx.row(_FIRST_SINCE)
    return None if first is None else float(first)


def accounts_with_sessions(tx: Transaction) -> list[str]:
    """Return the accounts, by name, that have a session and something that waits for them."""
    return [str(account) for (account,) in tx.rows(_ABLE)]


def is_downgrade_allowed(tx: Transaction, account: str) -> bool:
    """Tell whether an account takes plain messages where it has no quality of service."""
    row = tx.row(_DOWNGRADE, (account,))
    return row is not None and bool(row[0])


def _found(tx: Transaction, rows: Iterable[int]) -> list[OutboxRow]:
    return [found for row in rows if (found := get(tx, row)) is not None]


def _rows(found: Sequence[Any]) -> list[OutboxRow]:
    return [_row(row) for row in found]


def _row(found: Any) -> OutboxRow:
    *fields, held, due, size, since, under, there, only, item = found
    return OutboxRow._make(
        (*fields, bool(held), due, size, since, bool(under), bool(there), only, item)
    )
