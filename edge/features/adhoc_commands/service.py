"""Ad-hoc commands: what features register, and whether a session may continue a command.

A feature registers a command by `hooks.of(Commands).register`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from edge.engine.dispatch.hooks import Context, Hooks, Registry
from edge.engine.rules.access import Sender
from edge.engine.store.database import Transaction
from edge.errors import ServiceError
from edge.features.adhoc_commands import store
from edge.features.adhoc_commands.store import add as add
from edge.features.adhoc_commands.store import delete as delete

_MAX_ID_LENGTH: Final = 64


class FieldType(Enum):
    """The kinds of values of a field."""

    TEXT = "one line of text"
    LINES = "lines of text"
    BOOLEAN = "`1` or `0`"


class FormField(NamedTuple):
    """A field of a form or of a result; `label` is its description for people."""

    name: str
    label: str = ""
    type: FieldType = FieldType.TEXT
    values: Sequence[str] = ()
    required: bool = False


Form: TypeAlias = Mapping[str, list[str]]
"""The values of a submitted form, by field."""


class CommandResult(NamedTuple):
    """The result of an ad-hoc command: a note for people, fields with details, and a table.

    Attributes:
        rows: the rows of the table, with a text for each of its `columns`.
        failed: whether the command did not do what was asked.
    """

    text: str
    fields: Sequence[FormField] = ()
    columns: Sequence[FormField] = ()
    rows: Iterable[tuple[str, ...]] = ()
    failed: bool = False


class AdHocCommand(NamedTuple):
    """An ad-hoc command with a form of these fields; without fields, it completes when it is
    started.

    Attributes:
        name: what it acts on, `#` and a verb, such as `queue#show`.
        label: what it does, for people.
        act: executes the command with a submitted form, for a trusted sender. It checks further
            rights, such as the ownership of a node, and raises `ServiceError` before it changes
            anything.
    """

    name: str
    label: str
    fields: Sequence[FormField]
    act: Callable[[Context, Transaction, Sender, Form], CommandResult]


@dataclass(eq=False)
class Commands(Registry):
    """The commands that features have registered, by name; the publish-subscribe service offers
    them."""

    by_name: dict[str, AdHocCommand] = field(default_factory=dict)

    def register(self, command: AdHocCommand) -> None:
        """Register a command."""
        self.add(self.by_name, command.name, command)


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
