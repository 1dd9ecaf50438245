"""Messages that could not be delivered, kept for the operator within a bound.

One that was refused or has failed was not delivered. One in doubt may have been: its device has it,
or had it, and never said what it did. What an operator does with them is done here too, so that it
is one transaction; the running gateway sends what was requeued when it sees the change.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edge.engine import events
from edge.engine.database import Transaction
from edge.engine.events import NewEvent
from edge.engine.quota import Usage
from edge.errors import SetupError
from edge.features.custody.store import held
from edge.features.outbox.store import outbox

REFUSED: Final = "refused"
FAILED: Final = "failed"
IN_DOUBT: Final = "in doubt"

_BURY: Final = """
INSERT INTO dead (
    sender, msg_id, destination, qos, body, bytes, reason, time, state, recipient, outbox, session,
    source
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_TOTAL: Final = "SELECT messages, bytes FROM dead_total"
_OLDEST: Final = """
DELETE FROM dead WHERE id = (
    SELECT min(id) FROM dead
    GROUP BY source ORDER BY max(count(*) * 1.0 / ?, sum(bytes) * 1.0 / ?) DESC, min(id) LIMIT 1
) RETURNING sender, msg_id, qos
"""
_LIST: Final = """
SELECT id, sender, msg_id, destination, qos, bytes, reason, time, state, recipient, outbox, session
FROM dead WHERE id > ? ORDER BY id LIMIT ?
"""
_GET: Final = """
SELECT id, sender, msg_id, destination, qos, bytes, reason, time, state, recipient, outbox, session
FROM dead WHERE id = ?
"""
_BODY: Final = "SELECT body FROM dead WHERE id = ?"
_DROP: Final = "DELETE FROM dead WHERE id = ?"


class DeadLetter(NamedTuple):
    """A message that died: whom from, where to, at which level, and why it went nowhere.

    `recipient` is the account that it was for, by name; `outbox` its number there, which is a part
    of its msgId on the wire, and `session` the full JID that has received it.
    """

    sender: str
    msg_id: str | None
    destination: str
    qos: int
    body: bytes
    reason: str
    state: str = REFUSED
    recipient: str | None = None
    outbox: int | None = None
    session: str | None = None


class StoredDeadLetter(NamedTuple):
    """A dead message as it is listed, without its body; `time` in ms since 1970 UTC."""

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
    """Keep a dead message and log it. At `limit` others go, which is logged too: the oldest of the
    source that takes most of it, so that nobody pushes out what is of others."""
    sender, msg_id, destination, qos, body, reason, *rest = letter
    values = (sender, msg_id, destination, qos, body, len(body), reason, tx.now.wall)
    tx.run(_BURY, (*values, *rest, sender.partition("/")[0]))
    tags = {"destination": destination} if letter.recipient is not None else {}
    name = "in_doubt" if letter.state == IN_DOUBT else "dead"
    _log(tx, name, sender, msg_id, reason, qos, tags)
    while True:
        messages, size = tx.row(_TOTAL)
        if messages <= limit.messages and (size <= limit.bytes or messages == 1):
            return
        gone_sender, gone_id, gone_qos = tx.row(_OLDEST, limit)
        _log(tx, "dead_evicted", gone_sender, gone_id, "too many dead messages", gone_qos)


def list_page(tx: Transaction, after: int, count: int) -> list[StoredDeadLetter]:
    """Return dead messages with numbers above `after`, in order: `count` at most."""
    return [StoredDeadLetter(*row) for row in tx.rows(_LIST, (after, count))]


def find(tx: Transaction, row: int) -> StoredDeadLetter:
    """Return one dead message; raises `SetupError` if there is none of that number."""
    found = tx.row(_GET, (row,))
    if found is None:
        raise SetupError(f"there is no dead message {row}")
    return StoredDeadLetter(*found)


def body(tx: Transaction, row: int) -> bytes:
    """Return the body of a dead message; raises `SetupError` if there is none of that number."""
    found = tx.row(_BODY, (row,))
    if found is None:
        raise SetupError(f"there is no dead message {row}")
    return bytes(found[0])


def requeue(tx: Transaction, row: int, *, may_repeat: bool) -> int:
    """Put a dead message back into the outbox of its account; returns its number there.

    One that was not delivered is a new message. Of one in doubt, the session that has received it
    is told again to deliver it, which does nothing twice; if `may_repeat`, it is a new message.

    Raises:
        SetupError: it cannot be put back, and why, in one line.
    """
    found = find(tx, row)
    if found.recipient is None:
        raise SetupError(f"message {row} was for the gateway itself, which cannot read it")
    number = None
    if found.state != IN_DOUBT or may_repeat:
        number = _anew(tx, found, found.recipient)
    elif found.qos == 2 and found.session is not None and found.outbox is not None:
        number = _again(tx, found, found.recipient, found.session, found.outbox)
    else:
        raise SetupError(f"message {row} may have been delivered: --may-repeat sends it anew")
    if number is None:
        raise SetupError(f"message {row} was for device {found.recipient!r}, which does not exist")
    tx.run(_DROP, (row,))
    _log_done(tx, "requeued", found, "Notice")
    return number


def _anew(tx: Transaction, found: StoredDeadLetter, recipient: str) -> int | None:
    content, source = body(tx, found.row), found.sender.partition("/")[0]
    size = held.charge(found.msg_id or "", content)
    message = source, found.sender, found.msg_id, found.qos, content, size
    only = found.destination if "/" in found.destination else None  # it was for one session alone
    return outbox.add(tx, recipient, *message, only=only)


def _again(
    tx: Transaction, found: StoredDeadLetter, recipient: str, session: str, number: int
) -> int | None:
    content = body(tx, found.row)
    size = held.charge(found.msg_id or "", content)
    message = found.sender, found.msg_id, session, content, size
    return outbox.restore(tx, number, recipient, *message)


def delete(tx: Transaction, row: int) -> None:
    """Forget a dead message; raises `SetupError` if there is none of that number."""
    found = find(tx, row)
    tx.run(_DROP, (row,))
    _log_done(tx, "dropped", found, "Warning")


def _log_done(tx: Transaction, name: str, found: StoredDeadLetter, level: str) -> None:
    tags = {"destination": found.destination, "state": found.state}
    reason = "by the operator"
    _log(tx, name, found.sender, found.msg_id, reason, found.qos, tags, level)


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
