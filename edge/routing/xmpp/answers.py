"""Answer stanzas with results and error stanzas.

Only the engine's router and the features' `xmpp` modules use this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from edge.engine.dispatch.hooks import Context, Work
from edge.engine.rules import access
from edge.engine.rules.access import Sender
from edge.engine.store.database import Transaction
from edge.errors import ServiceError
from edge.jid import AddressError, AddressReason
from edge.xmpp import PROTOCOL, replies, serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.stanza import Stanza

_ADDRESS_CONDITIONS: Final = {
    AddressReason.MALFORMED: "jid-malformed",
    AddressReason.REMOTE_DOMAIN: "remote-server-not-found",
    AddressReason.NOBODY: "service-unavailable",
    AddressReason.NO_NODE: "item-not-found",
    AddressReason.NO_MESSAGES: "not-acceptable",
}


def result(stanza: Stanza, sender: Sender, payload: bytes = b"") -> bytes:
    """Return the result that answers an iq."""
    attrs = stanza.attrs
    return serialize.iq_result(attrs["id"], sender.full, attrs.get("to"), payload)


def error(
    context: Context, stanza: Stanza, sender: Sender, error: ServiceError[Any] | StanzaError
) -> bytes:
    """Return the error stanza that answers an iq."""
    stanza_error_ = stanza_error(context, error)
    to = stanza.attrs.get("to")
    return replies.iq_error(stanza, stanza_error_, to=sender.full, from_=to)


def service_work(
    context: Context, stanza: Stanza, act: Callable[[Transaction, Sender], bytes | None]
) -> Work:
    """Return a unit of work that answers a request to the publish-subscribe service.

    A sender that may not use the gateway's services gets the error `forbidden`.

    Args:
        act: performs the request and returns the payload of the result, if it has one; raises
            `ServiceError` or `StanzaError` to refuse the request.
    """

    def work(tx: Transaction, sender: Sender) -> bytes:
        try:
            if not access.may_use_services(sender, context.trusted_domains):
                raise StanzaError("forbidden", echo=True)
            payload = act(tx, sender)
        except (ServiceError, StanzaError) as refusal:
            return error(context, stanza, sender, refusal)
        return result(stanza, sender, payload or b"")

    return work


def stanza_error(context: Context, error: ServiceError[Any] | StanzaError) -> StanzaError:
    """Return the stanza error for a service's error."""
    if isinstance(error, StanzaError):
        return error
    if isinstance(error, AddressError):
        return StanzaError(_ADDRESS_CONDITIONS[error.reason], error.text)
    found: StanzaError = context.hooks.error_mappings[PROTOCOL, type(error)](error)
    return found
