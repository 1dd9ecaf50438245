"""Delivery requests to devices, and their answers.

A request's `from` is the original sender or, for an item of a node, the publish-subscribe service;
its `to` is the device's session. Its id and msgId are the gateway's own and stay the
same when it is repeated. `<received/>` is accepted in any namespace. Source: XEP QoS, "Use Cases".
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from xml.etree.ElementTree import Element

from edge import jid
from edge.engine.dispatch.addresses import AddressKind
from edge.engine.dispatch.encoding import encode_part
from edge.engine.dispatch.hooks import Contents, Context, Hooks, Message, Work
from edge.engine.rules.access import Sender
from edge.engine.store.database import Transaction
from edge.features.outbox import service
from edge.features.outbox.rules import Input
from edge.features.outbox.service import (
    MAX_ERROR_TEXT,
    Answer,
    DeliveryFailure,
    DeviceError,
    FailureReason,
    OutboxError,
    PlainMessage,
    QosRequest,
    Reason,
    RequestKind,
)
from edge.jid import JidError
from edge.routing.xmpp import XmppHooks, iq_ids
from edge.xmpp import CONTENT_TYPE, PROTOCOL, serialize
from edge.xmpp.embedded import as_client_stanza
from edge.xmpp.errors import STANZA_CONDITIONS, STANZA_TYPES, FragmentError, StanzaError
from edge.xmpp.namespaces import CLIENT, DELAY, QOS, STANZA_ERRORS, clark
from edge.xmpp.stanza import Child, Stanza, parse_fragment, stamped, stamped_with

_ID_KINDS: Final = {
    RequestKind.ASSURED: "a",
    RequestKind.ACKNOWLEDGED: "k",
    RequestKind.DELIVER: "d",
}
"""The letter for each type of request in the ids of its iqs (`kind` in `iq_ids`)."""

_REQUESTS: Final = {kind: request for request, kind in _ID_KINDS.items()}

_CONDITIONS_OF_REASONS: Final = {Reason.NO_ACCOUNT: "service-unavailable"}

_DELAY: Final = clark(DELAY, "delay")
_ERROR: Final = clark(CLIENT, "error")
_ERROR_TEXT: Final = clark(STANZA_ERRORS, "text")
_CONDITIONS: Final = {clark(STANZA_ERRORS, name): name for name in STANZA_CONDITIONS}


# Requests


def _encode_request(context: Context, request: QosRequest) -> bytes:
    kind, epoch, row, sender, to, session, namespace, content, _is_repeated = request
    before_id, after_id, end = _payload_parts(kind, namespace or QOS)
    msg_id = b"" if kind is RequestKind.ACKNOWLEDGED else f"{epoch}-{row}".encode()
    message = b""
    if content is not None:
        message = stamped(encode_part(context, PROTOCOL, content), sender, to)
    id = iq_ids.make(epoch, _ID_KINDS[kind], row)
    payload = b"%b%b%b%b%b" % (before_id, msg_id, after_id, message, end)
    return serialize.iq_set(id, session, sender, payload)


@lru_cache(maxsize=16)
def _payload_parts(kind: RequestKind, namespace: str) -> tuple[bytes, bytes, bytes]:
    """Return the bytes of a request before its msgId, after it, and after the message."""
    if kind is RequestKind.DELIVER:
        return b"<deliver%b msgId='" % serialize.attribute("xmlns", namespace), b"'/>", b""
    # with a prefix, because the message is in the default namespace
    declaration = serialize.attribute("xmlns:qos", namespace)
    if kind is RequestKind.ACKNOWLEDGED:
        return b"<qos:acknowledged%b>" % declaration, b"", b"</qos:acknowledged>"
    return b"<qos:assured%b msgId='" % declaration, b"'>", b"</qos:assured>"


def _encode_plain(context: Context, message: PlainMessage) -> bytes:
    delay = serialize.delay(context.domain, message.received)
    body = as_client_stanza(encode_part(context, PROTOCOL, message.content))
    return stamped_with(body, message.sender, delay, message.to)


# Answers


def handle_answer(context: Context, stanza: Stanza) -> Work | bytes:
    """Handle the answer to an iq sent from the outbox; relay an answer to any other iq."""
    request_id, to = iq_ids.parse(stanza.attrs.get("id", "")), stanza.attrs.get("to")
    if request_id is None or to is None:
        return b""
    try:
        addressee = jid.parse(to).full
    except JidError:
        return b""
    epoch, kind, row = request_id
    request = _REQUESTS[kind]
    event, failure = _read_answer(stanza, request, f"{epoch}-{row}")
    answer = Answer(request, epoch, row, addressee, event, failure)

    def work(tx: Transaction, sender: Sender) -> bytes:
        if service.handle_answer(context, tx, sender, answer):
            return b""
        relay = context.hooks.of(XmppHooks).other_answer(context, stanza)
        return relay if isinstance(relay, bytes) else relay(tx, sender)

    return work


def _read_answer(
    stanza: Stanza, request: RequestKind, msg_id: str
) -> tuple[Input, DeliveryFailure | None]:
    if stanza.attrs.get("type") == "error":
        error = _read_error(stanza)
        event = Input.WAIT_ERROR if error.type == "wait" else Input.FINAL_ERROR
        return event, _device_failure(error)
    if request is not RequestKind.ASSURED:
        return Input.RESULT, None
    payload = stanza.payload
    if (
        payload is not None
        and payload.name.rpartition("}")[2] == "received"
        and payload.attrs.get("msgId") == msg_id
    ):
        return Input.RECEIVED, None
    text = "the device answered the offer without <received/>"
    return Input.FINAL_ERROR, _device_failure(StanzaError("undefined-condition", text))


def _device_failure(error: StanzaError) -> DeliveryFailure:
    device_error = DeviceError(error.condition, error.type, error.text)
    return DeliveryFailure(FailureReason.DEVICE_ERROR, str(error), device_error)


def _read_error(stanza: Stanza) -> StanzaError:
    found = next((child for child in stanza.children if child.name == _ERROR), None)
    if found is None:
        return StanzaError("undefined-condition", "the device sent an error without a condition")
    names = (_CONDITIONS.get(child.name) for child in found.children)
    condition = next((name for name in names if name is not None), "undefined-condition")
    type_ = found.attrs.get("type", "")
    return StanzaError(condition, _error_text(found), type=type_ if type_ in STANZA_TYPES else None)


def _error_text(error: Child) -> str:
    found = next((child for child in error.children if child.name == _ERROR_TEXT), None)
    return "" if found is None else (found.tree().text or "")[:MAX_ERROR_TEXT]


# Messages to accounts


def read_message(context: Context, message: Message, parsed: Element | None) -> Contents:
    """Report an error if a message has a forged `<delay/>`; its contents are not read."""
    forged = _has_forged_delay(context, message.body, parsed)
    return Contents([], "a <delay/> from the gateway is not allowed" if forged else "")


def _has_forged_delay(context: Context, body: bytes, parsed: Element | None) -> bool:
    """Return whether a message has a `<delay/>` from the gateway's domain (XEP-0203)."""
    if b"delay" not in body and b"&#" not in body:
        return False
    try:
        tree = parse_fragment(body) if parsed is None else parsed
    except FragmentError:
        return False
    return any(
        child.tag == _DELAY and child.get("from", "").lower() == context.domain for child in tree
    )


def register_for_accounts(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    xmpp = hooks.of(XmppHooks)
    hooks.add(hooks.readers, (CONTENT_TYPE, AddressKind.ACCOUNT), read_message)
    hooks.error_mapping(
        PROTOCOL, OutboxError, lambda error: StanzaError(_CONDITIONS_OF_REASONS[error.reason])
    )
    hooks.encode(PROTOCOL, QosRequest, _encode_request)
    hooks.encode(PROTOCOL, PlainMessage, _encode_plain)
    for kind in _REQUESTS:
        xmpp.add(xmpp.iq_answers, kind, handle_answer)
