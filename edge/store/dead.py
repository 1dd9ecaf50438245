"""Messages that could not be delivered, kept for the operator within a bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from edge.store import events
from edge.store.events import NewEvent

if TYPE_CHECKING:
    from edge.rules.quota import Usage
    from edge.store.database import Transaction

_BURY: Final = """
INSERT INTO dead (sender, msg_id, destination, qos, body, bytes, reason, time)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
_TOTAL: Final = "SELECT messages, bytes FROM dead_total"
_OLDEST: Final = (
    "DELETE FROM dead WHERE id = (SELECT min(id) FROM dead) RETURNING sender, msg_id, qos"
)


class Letter(NamedTuple):
    """A dead message: whom from, where to, at which level, and why it went nowhere."""

    sender: str
    msg_id: str | None
    destination: str
    qos: int
    body: bytes
    reason: str


def bury(tx: Transaction, letter: Letter, limit: Usage) -> None:
    """Keep a dead message and log it; at `limit` the oldest ones go, which is logged too."""
    sender, msg_id, destination, qos, body, reason = letter
    values = (sender, msg_id, destination, qos, body, len(body), reason, tx.now.wall)
    tx.run(_BURY, values)
    _log(tx, "dead", sender, msg_id, reason, qos)
    while True:
        messages, size = tx.row(_TOTAL)
        if messages <= limit.messages and (size <= limit.bytes or messages == 1):
            return
        gone_sender, gone_id, gone_qos = tx.row(_OLDEST)
        _log(tx, "dead_evicted", gone_sender, gone_id, "too many dead messages", gone_qos)


def _log(
    tx: Transaction, name: str, sender: str, msg_id: str | None, reason: str, qos: int
) -> None:
    tags = {} if msg_id is None else {"msgId": msg_id}
    event = NewEvent("message", sender, name=name, level="Error", text=reason, qos=qos, tags=tags)
    events.append(tx, events.SYSTEM, event)
