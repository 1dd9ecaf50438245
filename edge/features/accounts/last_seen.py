"""Record when each account last had a session."""

from __future__ import annotations

from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.hooks import Context, Hooks
from edge.features.accounts.store import last_seen


def note(_context: Context, tx: Transaction, sender: Sender) -> None:
    """Record that a session of the sender's account begins or ends."""
    last_seen.note(tx, sender.account)


def register(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    hooks.on_session_bound.append(note)
    hooks.on_session_end.append(note)
