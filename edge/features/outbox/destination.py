"""Accounts as the destination of messages: what is for a bare JID goes into its outbox.

Who may hand messages over is decided in `rules.access`, how many in `rules.quota`; `outbox` hands
them on. A message is not looked into: that is for the device. Plain messages are `message`'s.
"""

from __future__ import annotations

from typing import Final

from edge.config.limits import Limits
from edge.engine import access, quota
from edge.engine.access import Relation, Sender
from edge.engine.addresses import AddressKind
from edge.engine.database import Transaction
from edge.engine.hooks import Contents, Context, Hooks, Message, Standing
from edge.engine.quota import ExceededLimit, Usage, WaitingUsage
from edge.features.accounts.store import relations
from edge.features.messages.xmpp.messages import DELAY_ELEMENT
from edge.features.outbox import xmpp as sending
from edge.features.outbox.store import outbox
from edge.xmpp.errors import FragmentError, StanzaError
from edge.xmpp.jid import Jid
from edge.xmpp.stanza import parse_fragment


class Box:
    """An account's outbox as the destination of messages."""

    def standing(self, context: Context, tx: Transaction, sender: Sender, to: Jid) -> Standing:
        """Tell who may not reach the account nothing, and who may whether it is there."""
        relation = relations.find_relation(tx, sender, to.local)
        allowed = access.may_hand_over(sender, relation, context.xmpp.trust)
        error = StanzaError("service-unavailable") if relation is Relation.NOBODY else None
        return Standing(allowed, error)

    def room_to_hold(
        self, context: Context, tx: Transaction, message: Message
    ) -> ExceededLimit | None:
        """Look for room in the outbox, for what is held as for what is there."""
        mine, waiting = outbox.usage(tx, message.to.local, message.sender.bare)
        room = _room(context.limits)
        return quota.exceeded_waiting_limit(quota.OUTBOX_LIMITS, message.size, mine, waiting, room)

    def recipient(self, to: Jid) -> str | None:
        """It is of the account."""
        return to.local

    def read(self, context: Context, body: bytes, _to: Jid) -> Contents:
        """Leave the message to the device; but nobody else may tell a delay of the gateway's."""
        forged = _forges_delay(context, body)
        return Contents([], "only the gateway tells a delay of its own" if forged else "")

    def room_now(
        self, context: Context, tx: Transaction, message: Message, _contents: Contents
    ) -> ExceededLimit | None:
        """Look for room, if that was not charged when the message was offered."""
        return None if message.since is not None else self.room_to_hold(context, tx, message)

    def deliver(
        self, context: Context, tx: Transaction, message: Message, _contents: Contents
    ) -> None:
        """Put the message at the end of the line, and send what may be sent."""
        account, sender = message.to.local, message.sender
        of = sender.bare, sender.full, message.msg_id, message.qos
        outbox.add(tx, account, *of, message.body, message.size)
        tx.wake_at(tx.now.service + context.limits.outbox_ttl)
        sending.pump(context, tx, account)


def _room(limits: Limits) -> WaitingUsage:
    return WaitingUsage(
        Usage(limits.outbox_messages_per_account, limits.outbox_bytes_per_account),
        Usage(limits.outbox_messages_per_source, limits.outbox_bytes_per_source),
        Usage(limits.outbox_messages, limits.outbox_bytes),
    )


def _forges_delay(context: Context, body: bytes) -> bool:
    """Tell whether a message brings a delay that only this gateway may tell (XEP-0203)."""
    if b"delay" not in body and b"&#" not in body:
        return False
    try:
        tree = parse_fragment(body)
    except FragmentError:
        return False
    return any(
        child.tag == DELAY_ELEMENT and child.get("from", "").lower() == context.domain
        for child in tree
    )


NEEDS_ACCOUNTS: Final = True


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    hooks.destination(AddressKind.ACCOUNT, Box())
