"""Re-route messages that a session did not receive and that are not stored in a table.

A session can end without acknowledging its messages (XEP-0198, section 5), or stay bound and have
no room for them. Plain messages are then routed again, or stored; if that is impossible, their
senders get an error. The senders of relayed requests get an error. All others are dropped, such as
results, errors and presence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeGuard

from edge.engine.dispatch.addresses import account_of
from edge.engine.dispatch.encoding import source_of
from edge.engine.dispatch.hooks import Context, Hooks
from edge.engine.log.refusals import log_source
from edge.engine.sessions import sessions
from edge.engine.store.database import MessageBytes, SentMessage, Transaction
from edge.features.accounts import service as accounts
from edge.features.messages import rules, service
from edge.features.messages.rules import MessageType, Outcome, Route
from edge.features.messages.service import AccountMessage, ReturnedMessages
from edge.features.messages.xmpp.iq_relay import RelayedIq
from edge.features.messages.xmpp.messages import SESSION_FULL, stanza_error
from edge.xmpp import PROTOCOL, serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.stanza import id_of

_UNAVAILABLE: Final = StanzaError("recipient-unavailable")


class ReturnedError(NamedTuple):
    """The error with which a message or a request is returned to the session that sent it."""

    returned: AccountMessage | RelayedIq
    error: StanzaError

    @property
    def sender(self) -> str:
        """Return the address that did not receive the stanza."""
        return self.returned.to


def _is_request(message: SentMessage) -> TypeGuard[RelayedIq]:
    return isinstance(message, RelayedIq) and message.is_request


def _is_message(message: SentMessage) -> TypeGuard[AccountMessage]:
    return isinstance(message, AccountMessage) and message.kind is not MessageType.ERROR


# After a session ended


def reroute_unacknowledged(
    context: Context, tx: Transaction, messages: Iterable[SentMessage]
) -> None:
    """Re-route the messages that one ended session did not receive, in order."""
    returned = ReturnedMessages(context, tx)
    for message in messages:
        convert = context.hooks.returned.get(type(message))
        if convert is not None:
            message = convert(context, message)
        if _is_request(message):
            _send_error(tx, message, _UNAVAILABLE)
        elif _is_message(message):
            _reroute(context, tx, message, returned)
    returned.finish()


def _reroute(
    context: Context, tx: Transaction, message: AccountMessage, returned: ReturnedMessages
) -> None:
    bound = sessions.of_account(tx, account_of(message.to))
    exists = accounts.is_active(tx, message.account)
    route = rules.reroute(message.kind, bound, exists=exists)
    refusal = returned.deliver(message._replace(returned=True), route)
    if refusal is not None:
        _refuse(context, tx, message, refusal.rule, refusal.figure, stanza_error(refusal))


def reject(tx: Transaction, message: SentMessage) -> None:
    """Send an error to the sender of a message or request that is lost because it cannot be stored.

    It was for a session that has ended or has no room for it. Results, errors and presence are
    dropped.
    """
    if _is_request(message):
        _send_error(tx, message, _UNAVAILABLE)
    elif _is_message(message):
        error = StanzaError("resource-constraint", "the gateway cannot store it now")
        _send_error(tx, message, error)


def _refuse(
    context: Context,
    tx: Transaction,
    message: AccountMessage,
    rule: str,
    figure: int | None,
    error: StanzaError | None,
) -> None:
    log_source(context, tx, message.sender.partition("/")[0], rule, figure)
    if error is not None:
        _send_error(tx, message, error)


def _send_error(tx: Transaction, message: AccountMessage | RelayedIq, error: StanzaError) -> None:
    sender = sessions.find(tx, message.sender)
    if sender is not None:
        tx.send(sender.generation, ReturnedError(message, error))


def _encode_error(_context: Context, message: ReturnedError) -> bytes:
    returned, error = message
    if isinstance(returned, RelayedIq):
        name, id = "iq", id_of(returned.stanza)
    else:
        content = returned.content
        name, id = "message", id_of(content.body) if isinstance(content, MessageBytes) else None
    attrs = {"type": "error", "id": id, "to": returned.sender, "from": returned.to}
    return serialize.tag(name, attrs, serialize.stanza_error(error))


# When a session has no room


def reroute_overflow(
    context: Context, tx: Transaction, generation: int, messages: Iterable[SentMessage]
) -> None:
    """Store or refuse messages, in order, because the send queue of a bound session is full.

    If the gateway stores messages, a chat or normal message to the account's bare JID is stored, to
    be sent later. To keep the order, later ones that this transaction was about to send to the
    session are stored, too. The sender of any other message, or of a request, gets an error.
    """
    recipient = sessions.sender(tx, generation)
    if recipient is None:
        reroute_unacknowledged(context, tx, messages)
        return
    for message in (*messages, *_withdraw_account_messages(tx, generation)):
        _reroute_overflow(context, tx, message)
    service.flush_to_best(context, tx, recipient.account)


def _withdraw_account_messages(tx: Transaction, generation: int) -> Iterator[AccountMessage]:
    for send in tx.withdraw_sends(generation):
        if send.receipt is None and _is_to_account(send.message):
            yield send.message
        else:
            tx.send(*send)


def _is_to_account(message: SentMessage) -> TypeGuard[AccountMessage]:
    return (
        isinstance(message, AccountMessage)
        and message.kind in service.STORED_TYPES
        and "/" not in message.to
    )


def _reroute_overflow(context: Context, tx: Transaction, message: SentMessage) -> None:
    if _is_to_account(message) and context.hooks.stores_messages:
        refusal = service.deliver(context, tx, message, Route(Outcome.STORE))
        if refusal is not None:
            _refuse(context, tx, message, refusal.rule, refusal.figure, stanza_error(refusal))
        return
    log_source(
        context, tx, source_of(message), service.NO_ROOM, context.limits.unacknowledged_bytes
    )
    if _is_request(message) or _is_message(message):
        _send_error(tx, message, StanzaError("resource-constraint", SESSION_FULL))


def register(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    hooks.encode(PROTOCOL, ReturnedError, _encode_error)
    hooks.on_unacknowledged_messages.append(reroute_unacknowledged)
    hooks.on_overflow.append(reroute_overflow)
    hooks.on_rejected_message.append(reject)
