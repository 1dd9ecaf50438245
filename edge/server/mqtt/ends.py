"""The reason codes for the reasons and faults of the transport core and of the store."""

from __future__ import annotations

from typing import Final

from edge.engine.dispatch.outputs import EndReason
from edge.engine.rules.quota import ExceededLimit
from edge.errors import StoreBusy, StoreError, StoreFull
from edge.mqtt.decode import REASONS
from edge.mqtt.packets import ConnAck
from edge.mqtt.reasons import Reason
from edge.server.login import BindRefusal

_ENDS: Final = {
    EndReason.REVOKED: Reason.NOT_AUTHORIZED,
    EndReason.REPLACED: Reason.SESSION_TAKEN_OVER,
    EndReason.EVICTED: Reason.QUOTA_EXCEEDED,
    EndReason.MEMORY: Reason.QUOTA_EXCEEDED,
    EndReason.UNREAD: Reason.QUOTA_EXCEEDED,
    EndReason.STALLED: Reason.UNSPECIFIED_ERROR,
    EndReason.UNACKNOWLEDGED: Reason.QUOTA_EXCEEDED,
    EndReason.SILENT: Reason.KEEP_ALIVE_TIMEOUT,
    EndReason.MOVED: Reason.SESSION_TAKEN_OVER,
    EndReason.UNBOUND: Reason.MAXIMUM_CONNECT_TIME,
    EndReason.CROWDED: Reason.SERVER_BUSY,
    EndReason.DISPLACED: Reason.SERVER_BUSY,
    EndReason.SHUTDOWN: Reason.SERVER_SHUTTING_DOWN,
}


def end_reason(reason: EndReason) -> Reason:
    """Return the reason code of a DISCONNECT by the gateway."""
    return _ENDS[reason]


def refusal_reason(reason: Reason) -> Reason:
    """Return the reason code of a CONNACK for the end of a log-in; some codes are not for it."""
    return reason if reason in REASONS[ConnAck] else Reason.SERVER_UNAVAILABLE


def store_reason(error: StoreError) -> Reason:
    """Return the reason code for a request whose unit of work has failed."""
    if isinstance(error, StoreFull):
        return Reason.QUOTA_EXCEEDED
    return Reason.SERVER_BUSY if isinstance(error, StoreBusy) else Reason.UNSPECIFIED_ERROR


def bind_reason(refusal: BindRefusal) -> Reason:
    """Return the reason code of a CONNACK for a session that could not be bound."""
    if isinstance(refusal, ExceededLimit):
        return Reason.QUOTA_EXCEEDED
    if isinstance(refusal, EndReason):
        return end_reason(refusal)
    return Reason.SERVER_UNAVAILABLE
