"""Building of error replies to stanzas."""

from __future__ import annotations

from edge.xmpp import serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.stanza import Stanza


def iq_error(
    request: Stanza, error: StanzaError, *, to: str | None = None, from_: str | None = None
) -> bytes:
    """Build the error reply to an iq (RFC 6120, section 8.3).

    Args:
        request: the refused iq, whose id the reply repeats.
        to: the JID of the request's sender.
        from_: the JID that the request was sent to.
    """
    payload = request.payload
    content = error.instead
    if not content and error.echo and payload is not None:
        content = payload.raw
    content += serialize.stanza_error(error)
    return serialize.stanza("iq", "error", request.attrs.get("id"), to, from_, content)


def message_error(
    request: Stanza, error: StanzaError, *, to: str | None = None, from_: str | None = None
) -> bytes:
    """Build the error reply to a message, without the message's content; the arguments are those of
    `iq_error`."""
    content = serialize.stanza_error(error)
    return serialize.stanza("message", "error", request.attrs.get("id"), to, from_, content)
