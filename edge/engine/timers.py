"""What falls due, and when: the units of work that time brings.

The process holds one alarm, for the earliest; what is not done in one ring, because there is much
of it, is due again at once.
"""

from __future__ import annotations

from edge.config.limits import Limits
from edge.engine import events, refusal_log
from edge.engine.database import Transaction
from edge.engine.events import NewEvent
from edge.features.custody.store import held as custody
from edge.features.custody.store.held import Held


def ring(tx: Transaction, limits: Limits) -> None:
    """Do what is due, and ask for the alarm for what is due next."""
    for row in custody.expired(tx, limits.held_ttl):
        drop_held(tx, custody.remove(tx, row), "expired", "its sender never asked for delivery")
    refusal_log.close_windows(tx, limits.refusal_window)
    arm(tx, limits)


def arm(tx: Transaction, limits: Limits) -> None:
    """Ask for the alarm for what is due next, if anything is."""
    since = custody.first_since(tx)
    if since is not None:
        tx.wake_at(since + limits.held_ttl)
    due = refusal_log.first_due(tx)
    if due is not None:
        tx.wake_at(due)


def drop_held(tx: Transaction, held: Held, name: str, reason: str) -> None:
    """Log that a message left custody without being delivered."""
    tags = {"msgId": held.msg_id, "destination": held.destination}
    event = NewEvent(
        "message", held.sender, name=name, level="Warning", text=reason, qos=2, tags=tags
    )
    events.append(tx, events.SYSTEM, event)
