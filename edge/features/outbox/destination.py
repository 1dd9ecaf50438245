"""Accounts as destinations: a message to an account is appended to its outbox."""

from __future__ import annotations

from typing import Final

from edge.engine.dispatch.addresses import AddressKind
from edge.engine.dispatch.hooks import Acceptance, Contents, Context, Hooks, Message, Plan
from edge.engine.rules import access
from edge.engine.rules.access import Relation, Sender
from edge.engine.rules.quota import ExceededLimit
from edge.engine.store.database import Transaction
from edge.features.accounts import service as accounts
from edge.features.outbox import service
from edge.features.outbox.service import OutboxError, OutgoingMessage, Reason
from edge.jid import Jid


class AccountDestination:
    """An account as the destination of messages, which wait in its outbox."""

    kind: Final = AddressKind.ACCOUNT

    def acceptance(self, context: Context, tx: Transaction, sender: Sender, to: Jid) -> Acceptance:
        """Return whether the sender may reach the account and whether the account exists."""
        relation = accounts.find_relation(tx, sender, to.local)
        allowed = access.may_hand_over(sender, relation, context.trust)
        error = OutboxError(Reason.NO_ACCOUNT) if relation is Relation.NOBODY else None
        return Acceptance(allowed, error)

    def room_to_hold(
        self, context: Context, tx: Transaction, message: Message
    ) -> ExceededLimit | None:
        """Return the limit of the outbox that the message would exceed, if any."""
        sender, to = message.sender, message.to
        return service.exceeded_limit(context, tx, to.local, sender.bare, message.size)

    def read(self, _context: Context, _message: Message) -> Contents:
        """Return nothing: the recipient reads the message."""
        return Contents([])

    def check(
        self, context: Context, tx: Transaction, message: Message, _contents: Contents
    ) -> ExceededLimit | None:
        """Return the limit that the message would exceed, if it has no room reserved by custody."""
        return None if message.since is not None else self.room_to_hold(context, tx, message)

    def deliver(
        self,
        context: Context,
        tx: Transaction,
        message: Message,
        _contents: Contents,
        _plan: Plan | None,
    ) -> str:
        """Append the message to the account's outbox and send what can be sent; return ""."""
        sender, size = message.sender, message.size
        outgoing = OutgoingMessage(
            sender.bare, sender.full, message.msg_id, message.qos, message.content, size
        )
        service.enqueue(context, tx, message.to.local, outgoing)
        return ""


def register_for_accounts(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    hooks.add(hooks.destinations, AddressKind.ACCOUNT, AccountDestination())
