"""The iqs of quality of service: `assured`, `deliver` and `acknowledged` (XEP QoS)."""

from __future__ import annotations

from typing import Final

from edge import jid
from edge.engine.dispatch import destinations
from edge.engine.dispatch.hooks import Context, Hooks, Work
from edge.engine.log import refusals
from edge.engine.rules.access import Sender
from edge.engine.store.database import Transaction
from edge.errors import ServiceError
from edge.features.custody import service
from edge.features.custody.rules import Reason
from edge.features.custody.service import CustodyError
from edge.routing.xmpp import XmppHooks, answers
from edge.xmpp import PROTOCOL, serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import CLIENT, QOS_ALL, clark
from edge.xmpp.stanza import Child, Stanza

CONDITIONS: Final = {
    Reason.CONFLICT: "conflict",
    Reason.NOT_ALLOWED: "not-allowed",
    Reason.NO_ROOM: "resource-constraint",
    Reason.NOT_HELD: "item-not-found",
    Reason.ELSEWHERE: "unexpected-request",
}
"""The stanza error for each reason of `CustodyError`."""

_RECEIVED: Final = {
    clark(name, "assured"): f"<received xmlns='{name}'".encode() for name in QOS_ALL
}
"""The beginning of the answer to an `<assured/>`, by the name of that element."""

_MESSAGES: Final = frozenset(clark(name, "message") for name in (CLIENT, *QOS_ALL))


def assured(context: Context, stanza: Stanza) -> Work:
    """Take a message into custody."""
    try:
        msg_id, message = _msg_id(context, stanza), _embedded(stanza)
    except StanzaError as malformed:
        return _malformed(context, stanza, malformed)
    to, offered = stanza.attrs.get("to"), message.raw
    body = _kept(stanza, message) if to and "@" in to else offered
    target = destinations.find(context, to, jid.parse)
    request = service.request(target, body, message.parsed, msg_id, offered)

    def work(tx: Transaction, sender: Sender) -> bytes:
        try:
            service.offer(context, tx, sender, request)
        except ServiceError as error:
            return answers.error(context, stanza, sender, error)
        start = _RECEIVED[stanza.children[0].name]
        payload = start + serialize.attribute("msgId", msg_id) + b"/>"
        return answers.result(stanza, sender, payload)

    return work


def deliver(context: Context, stanza: Stanza) -> Work:
    """Deliver a message that is in custody."""
    try:
        msg_id = _msg_id(context, stanza)
        request = stanza.children[0]
        if request.children or request.has_other_content():
            raise StanzaError("bad-request", "a <deliver/> must be empty")
    except StanzaError as malformed:
        return _malformed(context, stanza, malformed)

    def work(tx: Transaction, sender: Sender) -> bytes:
        try:
            service.deliver(context, tx, sender, msg_id)
        except ServiceError as error:
            return answers.error(context, stanza, sender, error)
        return answers.result(stanza, sender)

    return work


def acknowledged(context: Context, stanza: Stanza) -> Work:
    """Handle `acknowledged`: deliver the message before the answer acknowledges it."""
    try:
        message = _embedded(stanza)
    except StanzaError as malformed:
        return _malformed(context, stanza, malformed)
    to, offered = stanza.attrs.get("to"), message.raw
    body = _kept(stanza, message) if to and "@" in to else offered
    target = destinations.find(context, to, jid.parse)
    request = service.request(target, body, message.parsed)

    def work(tx: Transaction, sender: Sender) -> bytes:
        try:
            service.acknowledge(context, tx, sender, request)
        except ServiceError as error:
            return answers.error(context, stanza, sender, error)
        return answers.result(stanza, sender)

    return work


def refuse_get(_context: Context, _stanza: Stanza) -> bytes:
    """Refuse an iq of type get: QoS requests change messages in custody, so they must be sets."""
    raise StanzaError("feature-not-implemented", "quality of service requires an iq of type set")


def _msg_id(context: Context, stanza: Stanza) -> str:
    msg_id = stanza.children[0].attrs.get("msgId", "")
    limit = context.limits.msgid_bytes
    if not msg_id or len(msg_id.encode()) > limit:
        raise StanzaError("bad-request", f"msgId must have 1 to {limit} bytes")
    return msg_id


def _embedded(stanza: Stanza) -> Child:
    payload = stanza.children[0]
    if len(payload.children) != 1 or payload.children[0].name not in _MESSAGES:
        raise StanzaError("bad-request", "exactly one embedded message is expected")
    message = payload.children[0]
    if message.parsed is None and payload.has_other_content():  # else it is the only content
        raise StanzaError("bad-request", "text beside the embedded message is not allowed")
    return message


def _kept(stanza: Stanza, message: Child) -> bytes:
    """Return a message for an account as it is kept: one without a language, with that of its iq or
    stream (RFC 6120, section 8.1.5).

    It is the same message if it is offered again in a stream of another language.
    """
    return message.raw_with_language(stanza.lang)


def _malformed(context: Context, stanza: Stanza, malformed: StanzaError) -> Work:
    error = malformed.with_traceback(None)  # its frames would keep it, and it keeps its frames

    def work(tx: Transaction, sender: Sender) -> bytes:
        refusals.log(context, tx, sender, "malformed")
        return answers.error(context, stanza, sender, error)

    return work


def _stanza_error(error: CustodyError) -> StanzaError:
    return StanzaError(CONDITIONS[error.reason], error.text)


def register(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    xmpp = hooks.of(XmppHooks)
    for namespace in QOS_ALL:
        for name, handler in (
            ("assured", assured),
            ("deliver", deliver),
            ("acknowledged", acknowledged),
        ):
            xmpp.add(xmpp.any_iqs, ("set", clark(namespace, name)), handler)
            xmpp.add(xmpp.any_iqs, ("get", clark(namespace, name)), refuse_get)
    hooks.error_mapping(PROTOCOL, CustodyError, _stanza_error)
    xmpp.advertise(*QOS_ALL)
