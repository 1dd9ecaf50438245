"""Change passwords, record when an account was online, and let other features read accounts."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from edge.credentials import Credentials
from edge.engine.dispatch.hooks import Context, Hooks
from edge.engine.log import refusals
from edge.engine.log.refusals import CHANGED
from edge.engine.rules import access
from edge.engine.rules.access import Sender
from edge.engine.store.database import Transaction
from edge.errors import ServiceError
from edge.features.accounts.store import accounts, last_seen
from edge.features.accounts.store.accounts import is_active as is_active
from edge.features.accounts.store.accounts import list_names as list_names
from edge.features.accounts.store.accounts import status as status
from edge.features.accounts.store.relations import find_relation as find_relation
from edge.features.accounts.store.relations import forget_relations as forget_relations


class Reason(Enum):
    """Reasons to refuse an operation on an account."""

    NOT_ALLOWED = "an account can change only its own password, and only if it has one"


class AccountError(ServiceError[Reason]):
    """The refusal of an operation on an account."""


def change_password(
    context: Context, tx: Transaction, sender: Sender, name: str, keys: Iterable[Credentials]
) -> None:
    """Replace the password of the account `name`, and log the change.

    `keys` are derived from the new password.

    A device that logs in by certificate alone has no password on purpose, and cannot set one.

    Raises:
        AccountError: `name` is not the sender's own account, or the account has no password.
    """
    relation = find_relation(tx, sender, name)
    account = accounts.find(tx, sender.account)
    has_password = account is not None and account.password
    if not access.may_change_password(sender, relation, password=has_password):
        refusals.log(context, tx, sender, "password")
        raise AccountError(Reason.NOT_ALLOWED)
    accounts.set_credentials(tx, name, keys)
    refusals.log(context, tx, sender, CHANGED)


def note_session(_context: Context, tx: Transaction, sender: Sender) -> None:
    """Record that a session of the sender's account begins or ends."""
    last_seen.note(tx, sender.account)


def register(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    hooks.on_session_bound.append(note_session)
    hooks.on_session_end.append(note_session)
