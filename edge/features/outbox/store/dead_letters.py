"""Dead letters: messages that could not be delivered, kept for the operator up to a quota.

A refused or failed message was not delivered. A message in doubt may have been delivered: a device
received it and never reported the result. The operator's requeue and delete are here because each
is one transaction; the running gateway sees the change and sends what was requeued.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edge.engine.rules import quota
from edge.engine.rules.quota import Usage
from edge.engine.store import events
from edge.engine.store.database import MessageBytes, Transaction
from edge.engine.store.events import NewEvent
from edge.errors import SetupError
from edge.features.outbox.store import outbox
from edge.features.outbox.store.outbox import OutgoingMessage

REFUSED: Final = "refused"
FAILED: Final = "failed"
IN_DOUBT: Final = "in doubt"

MAX_ROW: Final = 2**63 - 1
"""The largest number that SQLite gives a row."""

_ADD: Final = """
INSERT INTO dead (
    sender, msg_id, destination, qos, body, kind, content_type, reason, time, state, recipient,
    outbox, session, source, bytes
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_TOTAL: Final = "SELECT messages, bytes FROM dead_total"
_OLDEST: Final = """
DELETE FROM dead WHERE id = (
    SELECT min(id) FROM dead
    GROUP BY source ORDER BY max(count(*) * 1.0 / ?, sum(bytes) * 1.0 / ?) DESC, min(id) LIMIT 1
) RETURNING sender, msg_id, qos
"""
_COLUMNS: Final = """
SELECT id, sender, msg_id, destination, qos, length(body), reason, time, state, recipient, outbox,
    session
FROM dead
"""
_LIST: Final = f"{_COLUMNS} WHERE id > ? ORDER BY id LIMIT ?"
_GET: Final = f"{_COLUMNS} WHERE id = ?"
_CONTENT: Final = "SELECT body, kind, content_type FROM dead WHERE id = ?"
_DELETE: Final = "DELETE FROM dead WHERE id = ?"


class DeadLetter(NamedTuple):
    """A message that could not be delivered, and why.

    Args:
        sender: the full JID that sent it.
        msg_id: the msgId that the sender chose.
        destination: the JID to which it was sent.
        state: `REFUSED`, `FAILED` or `IN_DOUBT`.
        recipient: the name of the account to which it was sent, if any.
        outbox: its row number in the outbox, which is a part of the msgId that the device got.
        session: the full JID that received it, if any.
    """

    sender: str
    msg_id: str | None
    destination: str
    qos: int
    content: MessageBytes
    reason: str
    state: str = REFUSED
    recipient: str | None = None
    outbox: int | None = None
    session: str | None = None


class StoredDeadLetter(NamedTuple):
    """A dead letter without its content; `time` is in ms since 1970 UTC, `bytes` the size of its
    body."""

    row: int
    sender: str
    msg_id: str | None
    destination: str
    qos: int
    bytes: int
    reason: str
    time: int
    state: str
    recipient: str | None
    outbox: int | None
    session: str | None


def add(tx: Transaction, letter: DeadLetter, limit: Usage) -> None:
    """Store a dead letter and log it.

    Above `limit`, delete the oldest dead letters of the source that uses the largest part of it,
    and log each deletion. So no source can push out the dead letters of others.
    """
    sender, msg_id, destination, qos, content, reason, *rest = letter
    values = (sender, msg_id, destination, qos, *content, reason, tx.now.wall, *rest)
    row = (*values, sender.partition("/")[0])
    texts = sum(len(value.encode()) for value in row if isinstance(value, str))
    tx.run(_ADD, (*row, quota.ROW_OVERHEAD + len(content.body) + texts))
    tags = {"destination": destination} if letter.recipient is not None else {}
    name = "in_doubt" if letter.state == IN_DOUBT else "dead"
    _log(tx, name, sender, msg_id, reason, qos, tags)
    while True:
        messages, size = tx.row(_TOTAL)
        if messages <= limit.messages and (size <= limit.bytes or messages == 1):
            return
        evicted_sender, evicted_id, evicted_qos = tx.row(_OLDEST, limit)
        _log(tx, "dead_evicted", evicted_sender, evicted_id, "too many dead letters", evicted_qos)


def list_page(tx: Transaction, after: int, count: int) -> list[StoredDeadLetter]:
    """Return up to `count` dead letters with numbers above `after`, in order."""
    return [StoredDeadLetter(*row) for row in tx.rows(_LIST, (after, count))]


def find(tx: Transaction, row: int) -> StoredDeadLetter:
    """Return a dead letter; raise `SetupError` if it does not exist."""
    found = tx.row(_GET, (row,)) if row <= MAX_ROW else None
    if found is None:
        raise SetupError(f"dead letter {row} does not exist")
    return StoredDeadLetter(*found)


def content(tx: Transaction, row: int) -> MessageBytes:
    """Return the content of an existing dead letter."""
    return MessageBytes(*tx.row(_CONTENT, (row,)))


def requeue(tx: Transaction, row: int, *, may_repeat: bool) -> int:
    """Move a dead letter back into the outbox of its account; return its number there.

    A message that was not delivered is queued as a new message. A message in doubt is released
    again to the session that received it, whose device delivers it at most once; with `may_repeat`
    it is queued as a new message.

    Raises:
        SetupError: the message cannot be requeued.
    """
    found = find(tx, row)
    if found.recipient is None:
        raise SetupError(
            f"dead letter {row} was not for a device, so it cannot be requeued: drop it"
        )
    sender, msg_id, message = found.sender, found.msg_id, content(tx, row)
    size = quota.charge(msg_id or "", message.body)
    if found.state != IN_DOUBT or may_repeat:
        only = found.destination if "/" in found.destination else None
        source = sender.partition("/")[0]
        outgoing = OutgoingMessage(source, sender, msg_id, found.qos, message, size, only)
        number = outbox.add(tx, found.recipient, outgoing)
    elif found.qos == 2 and found.session is not None and found.outbox is not None:
        number = outbox.restore(
            tx, found.outbox, found.recipient, sender, msg_id, found.session, message, size
        )
    else:
        raise SetupError(
            f"dead letter {row} may have been delivered already; to send it again, add --may-repeat"
        )
    if number is None:
        raise SetupError(
            f"device {found.recipient!r} of dead letter {row} does not exist: "
            "add the device again, or drop the dead letter"
        )
    tx.run(_DELETE, (row,))
    _log_operation(tx, "requeued", found, "Notice")
    return number


def delete(tx: Transaction, row: int) -> None:
    """Delete a dead letter; raise `SetupError` if it does not exist."""
    found = find(tx, row)
    tx.run(_DELETE, (row,))
    _log_operation(tx, "dropped", found, "Warning")


def _log_operation(tx: Transaction, name: str, found: StoredDeadLetter, level: str) -> None:
    tags = {"destination": found.destination, "state": found.state}
    _log(tx, name, found.sender, found.msg_id, "by the operator", found.qos, tags, level)


def _log(
    tx: Transaction,
    name: str,
    sender: str,
    msg_id: str | None,
    reason: str,
    qos: int,
    tags: dict[str, str] | None = None,
    level: str = "Error",
) -> None:
    known = (tags or {}) | ({} if msg_id is None else {"msgId": msg_id})
    event = NewEvent("message", sender, name=name, level=level, text=reason, qos=qos, tags=known)
    events.append(tx, events.SYSTEM, event)
