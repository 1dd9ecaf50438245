"""Handle messages to the gateway's services and to accounts.

A message to a service is delivered at QoS level 0 (at most once). Source: XEP QoS, "Unacknowledged
service"; RFC 6121, sections 5 and 8.5; RFC 6120, section 10.3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edge import jid
from edge.engine.dispatch import addresses, destinations
from edge.engine.dispatch.destinations import Rejection
from edge.engine.dispatch.encoding import encode_part, unpack
from edge.engine.dispatch.hooks import Context, Hooks, Message, UnreadablePayload, Work
from edge.engine.log import refusals
from edge.engine.rules.access import Sender
from edge.engine.store import message_counts
from edge.engine.store.database import MessageBytes, Transaction
from edge.features.messages import rules, service
from edge.features.messages.rules import MessageType
from edge.features.messages.service import (
    AccountMessage,
    Refusal,
    RefusalReason,
    StoredMessage,
)
from edge.jid import AddressError, AddressReason, Jid
from edge.routing.xmpp import XmppHooks, answers
from edge.xmpp import CONTENT_TYPE, PROTOCOL, containers, replies, serialize
from edge.xmpp.errors import FragmentError, StanzaError
from edge.xmpp.namespaces import CHAT_STATES, CLIENT, DELAY, OFFLINE, clark
from edge.xmpp.stanza import Stanza, parse_fragment, stamped, stamped_with

SESSION_FULL: Final = "the session cannot accept more stanzas now"
"""Text of the error for a stanza that a session has no room for."""

DELAY_ELEMENT: Final = clark(DELAY, "delay")

_CHAT_STATE: Final = f"{{{CHAT_STATES}}}"
_MESSAGE: Final = clark(CLIENT, "message")
_THREAD: Final = clark(CLIENT, "thread")

_STANZA_ERRORS: Final = {
    RefusalReason.NOBODY_AVAILABLE: ("service-unavailable", None),
    RefusalReason.OFFLINE_STORE_FULL: ("service-unavailable", "wait"),
    RefusalReason.DISK_FULL: ("resource-constraint", "wait"),
    RefusalReason.SESSION_FULL: ("resource-constraint", None),
}


def stanza_error(refusal: Refusal) -> StanzaError | None:
    """Return the stanza error for a refusal, or `None` if the message's sender gets no error."""
    if refusal.reason is None:
        return None
    condition, type_ = _STANZA_ERRORS[refusal.reason]
    text = f"the limit {refusal.rule} = {refusal.figure} is reached" if type_ is not None else ""
    if refusal.reason is RefusalReason.SESSION_FULL:
        text = SESSION_FULL
    return StanzaError(condition, text, type=type_)


def is_storable(names: Sequence[str]) -> bool:
    """Return whether a message with children of these names is stored (XEP-0160, section 3).

    A message that holds only a chat state (XEP-0085) is not stored, because the state is outdated
    by the time the message is delivered.
    """
    states = [name for name in names if name.startswith(_CHAT_STATE)]
    return not states or any(name != _THREAD for name in names if name not in states)


def handle(context: Context, stanza: Stanza) -> Work | bytes:
    """Handle a message; answer with a message of type `error` if it is refused.

    A message of type `error` is never answered, and services ignore it.
    """
    kind, to = rules.parse_type(stanza.attrs.get("type")), stanza.attrs.get("to")
    is_error = kind is MessageType.ERROR
    try:
        if addresses.classify(context.domain, to, "") in addresses.SERVICES:
            return b"" if is_error else _to_service(context, stanza)
        if not context.has_accounts:
            raise AddressError(AddressReason.NOBODY)
    except AddressError as error:
        refusal = answers.stanza_error(context, error)
        return b"" if is_error else _refused(context, stanza, "no_destination", refusal)
    if _has_forged_delay(context, stanza):
        forged = StanzaError("not-acceptable", "a <delay/> from the gateway is not allowed")
        return b"" if is_error else _refused(context, stanza, "malformed", forged)
    return _to_account(context, stanza, kind, None if to is None else jid.parse(to))


def _refused(context: Context, stanza: Stanza, rule: str, error: StanzaError) -> Work:
    return lambda tx, sender: _refuse(context, tx, stanza, sender, rule, error)


def _to_service(context: Context, stanza: Stanza) -> Work:
    destination, to = destinations.find(context, stanza.attrs["to"], jid.parse)

    def work(tx: Transaction, sender: Sender) -> bytes:
        message = Message(sender, to, stanza.raw, stanza.size, qos=0)
        rejection = destinations.hand_over(context, tx, destination, message)
        if rejection is None:
            message_counts.count(tx, 0, message_counts.DELIVERED)
            return b""
        error = _rejection_error(context, rejection)
        return _refuse(context, tx, stanza, sender, rejection.rule, error, rejection.figure)

    return work


def _rejection_error(context: Context, rejection: Rejection) -> StanzaError:
    if rejection.rule == destinations.UNTRUSTED:
        return StanzaError("not-allowed")
    if rejection.error is not None:
        return answers.stanza_error(context, rejection.error)
    if rejection.text:
        return StanzaError("not-acceptable", rejection.text)
    return StanzaError("resource-constraint")


def _to_account(context: Context, stanza: Stanza, kind: MessageType, address: Jid | None) -> Work:
    storable = is_storable([child.name for child in stanza.children])

    def work(tx: Transaction, sender: Sender) -> bytes:
        to = jid.split(sender.bare) if address is None else address
        full = to.full
        raw = stamped(stanza.with_stream_language, sender.full, full)
        message = AccountMessage(
            MessageBytes(raw), sender.full, full, kind, storable, acknowledged=stanza.acknowledged
        )
        refusal = service.send(context, tx, sender, to, message)
        if refusal is None:
            message_counts.count(tx, 0, message_counts.DELIVERED)
            return b""
        error = stanza_error(refusal)
        return _refuse(context, tx, stanza, sender, refusal.rule, error, refusal.figure)

    return work


def _refuse(
    context: Context,
    tx: Transaction,
    stanza: Stanza,
    sender: Sender,
    rule: str,
    error: StanzaError | None,
    figure: int | None = None,
) -> bytes:
    refusals.log(context, tx, sender, rule, figure)
    message_counts.count(tx, 0, message_counts.REFUSED)
    if error is None:
        return b""
    return replies.message_error(stanza, error, to=sender.full, from_=stanza.attrs.get("to"))


def _has_forged_delay(context: Context, stanza: Stanza) -> bool:
    """Return whether a message has a `<delay/>` from the gateway's domain (XEP-0203, section 5).

    A recipient would take it for the time at which the gateway stored the message.
    """
    return any(
        child.name == DELAY_ELEMENT and child.attrs.get("from", "").lower() == context.domain
        for child in stanza.children
    )


def read_operator_message(body: bytes, sender: str, to: str) -> AccountMessage:
    """Read a `<message/>` of the operator; raises `UnreadablePayload` if it is not one."""
    try:
        tree = parse_fragment(body)
    except FragmentError as error:
        raise UnreadablePayload(f"the message is not well-formed XML: {error}") from None
    if tree.tag != _MESSAGE:
        raise UnreadablePayload(f"{tree.tag} is not a <message/> in the namespace {CLIENT}")
    kind, content = rules.parse_type(tree.get("type")), MessageBytes(stamped(body, sender, to))
    return AccountMessage(content, sender, to, kind, storable=True, acknowledged=True)


def _encode_bytes(context: Context, message: MessageBytes) -> bytes:
    if message.kind:
        return encode_part(context, PROTOCOL, unpack(context, message))
    if message.content_type == CONTENT_TYPE:
        return message.body
    content = containers.element(message.body, message.content_type)
    return serialize.message(None, None, None, content)


def _encode_message(context: Context, message: AccountMessage) -> bytes:
    content = message.content
    if not isinstance(content, MessageBytes):
        return encode_part(context, PROTOCOL, content)
    stanza = _encode_bytes(context, content)
    if content.content_type == CONTENT_TYPE:  # it has its addresses
        return stanza
    return stamped(stanza, message.sender, message.to)


def _encode_stored(context: Context, message: StoredMessage) -> bytes:
    stanza = encode_part(context, PROTOCOL, message.content)
    if message.received is None:
        return stanza
    return stamped_with(stanza, message.sender, serialize.delay(context.domain, message.received))


def register(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    xmpp = hooks.of(XmppHooks)
    xmpp.add(xmpp.stanza_handlers, "message", handle)
    hooks.add(hooks.operator_messages, PROTOCOL, read_operator_message)
    hooks.encode(PROTOCOL, MessageBytes, _encode_bytes)
    hooks.encode(PROTOCOL, AccountMessage, _encode_message)
    hooks.encode(PROTOCOL, StoredMessage, _encode_stored)


def register_for_accounts(hooks: Hooks) -> None:
    """Advertise the offline store, if the gateway has one."""
    xmpp = hooks.of(XmppHooks)
    if hooks.stores_messages:
        xmpp.advertise(OFFLINE)
