"""Begin and end ad-hoc commands, and check whether a session may continue one."""

from __future__ import annotations

from enum import Enum
from typing import Final

from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.hooks import AdHocCommand, Context, Hooks
from edge.errors import ServiceError
from edge.features.adhoc_commands import store
from edge.features.adhoc_commands.store import add as add
from edge.features.adhoc_commands.store import delete as delete

_MAX_ID_LENGTH: Final = 64


class Reason(Enum):
    """Reasons why a command cannot continue."""

    UNKNOWN_ID = "this session has not started the command with this sessionid"
    EXPIRED = "the command was started too long ago: start it again"
    INVALID_FORM = "the form is invalid"


class CommandError(ServiceError[Reason]):
    """The refusal to continue a command."""

    def __init__(self, reason: Reason, text: str = "") -> None:
        super().__init__(reason, text or reason.value)


def check(
    context: Context, tx: Transaction, sender: Sender, command: AdHocCommand, id: str
) -> None:
    """Raise `CommandError` unless the session has started this command and it has not expired."""
    started = None
    if len(id) <= _MAX_ID_LENGTH:
        started = store.find(tx, id, sender.generation)
    if started is None or started.command != command.name:
        raise CommandError(Reason.UNKNOWN_ID)
    if tx.now.service - started.since > context.limits.command_time:
        raise CommandError(Reason.EXPIRED)


def on_session_end(_context: Context, tx: Transaction, sender: Sender) -> None:
    """Forget all commands that a session has started."""
    store.delete_all(tx, sender.generation)


def register_for_accounts(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    hooks.on_session_end.append(on_session_end)
