"""The errors of XMPP for the reasons and faults of the transport core and of the store."""

from __future__ import annotations

from typing import Final, NamedTuple

from edge.engine.dispatch.outputs import EndReason
from edge.errors import StoreBusy, StoreError, StoreFull
from edge.xmpp.errors import StanzaError, StreamError

DISK_FULL: Final = "the gateway's disk is full"

_TEXTS: Final = {"database_bytes": "the limit database_bytes is reached"}


class _End(NamedTuple):
    """A stream error, and the reason that the event log gives if it is not the condition."""

    condition: str
    text: str = ""
    event_name: str = ""


_ENDS: Final = {
    EndReason.REVOKED: _End("not-authorized", "the account was revoked"),
    EndReason.REPLACED: _End("conflict", "replaced by a new session", "replaced"),
    EndReason.EVICTED: _End("resource-constraint", event_name="evicted"),
    EndReason.MEMORY: _End("resource-constraint"),
    EndReason.UNREAD: _End("resource-constraint", "too many stanzas were not read"),
    EndReason.STALLED: _End("connection-timeout", "the peer does not read"),
    EndReason.UNACKNOWLEDGED: _End("resource-constraint", "too many stanzas were not acknowledged"),
    EndReason.SILENT: _End("connection-timeout", "the peer does not acknowledge"),
    EndReason.MOVED: _End("conflict", "resumed by another connection"),
    EndReason.UNBOUND: _End("connection-timeout", "no session was bound in time"),
    EndReason.CROWDED: _End("resource-constraint", "too many unauthenticated connections"),
    EndReason.DISPLACED: _End("resource-constraint", "replaced by a newer connection"),
    EndReason.SHUTDOWN: _End("system-shutdown"),
}


def stream_error(reason: EndReason) -> StreamError:
    """Return the stream error of a connection that the gateway ends."""
    end = _ENDS[reason]
    return StreamError(end.condition, end.text)


def event_name(reason: EndReason) -> str:
    """Return the reason that the event log gives for the end of a session."""
    end = _ENDS[reason]
    return end.event_name or end.condition


def stanza_error(error: StoreError) -> StanzaError:
    """Return the stanza error for a store error; its type `wait` lets the peer try again."""
    if isinstance(error, StoreFull):
        return StanzaError("resource-constraint", _TEXTS.get(error.rule, DISK_FULL))
    if isinstance(error, StoreBusy):
        return StanzaError("resource-constraint", "the gateway's database is busy")
    return StanzaError("internal-server-error", type="wait")
