"""Encode the reports of failures to the senders of messages, as messages of type `error`.

A report has the error that the sender would have got at QoS level 0, with the id of its message, an
`<assured/>` or `<acknowledged/>` with the msgId, and a `<delay/>` if it was stored.
"""

from __future__ import annotations

from typing import Final

from edge.engine.dispatch.hooks import Context, Hooks
from edge.features.outbox.service import DeliveryFailure, FailureReason, FailureReport
from edge.xmpp import CONTENT_TYPE, PROTOCOL, serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import QOS
from edge.xmpp.stanza import id_of

_STANZA_ERRORS: Final = {
    FailureReason.NO_ANSWER: "recipient-unavailable",
    FailureReason.SESSIONS_LOST: "recipient-unavailable",
    FailureReason.EXPIRED: "recipient-unavailable",
    FailureReason.DEVICE_REMOVED: "service-unavailable",
    FailureReason.REFUSED: "not-acceptable",
}


def _encode(context: Context, report: FailureReport) -> bytes:
    error = _stanza_error(report.failure)
    if report.in_doubt:
        text = f"in doubt: it may have been delivered ({error.text or error.condition})"
        error = StanzaError(error.condition, text, type=error.type)
    name = "assured" if report.qos == 2 else "acknowledged"
    content = serialize.tag(name, {"msgId": report.msg_id or None}, xmlns=QOS)
    content += serialize.stanza_error(error)
    if report.stored is not None:
        content += serialize.delay(context.domain, report.stored)
    return serialize.message("error", report.destination, report.to, content, report.id)


def _stanza_error(failure: DeliveryFailure) -> StanzaError:
    if failure.device_error is not None:
        condition, type_, text = failure.device_error
        return StanzaError(condition, text, type=type_)
    return StanzaError(_STANZA_ERRORS[failure.reason], failure.text)


def register(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    hooks.encode(PROTOCOL, FailureReport, _encode)
    hooks.add(hooks.message_ids, CONTENT_TYPE, id_of)
