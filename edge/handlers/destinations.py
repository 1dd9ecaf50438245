"""Where a stanza may go: the addresses of this gateway."""

from __future__ import annotations

from edge.wire import jid
from edge.wire.errors import StanzaError


def check(domain: str, to: str | None) -> None:
    """Return if `to` is the gateway itself; no address at all is the gateway as well.

    Raises:
        StanzaError: there is nobody to take the stanza there (RFC 6120, section 10.5).
    """
    if to is None or to == domain:
        return
    address = jid.parse(to)
    if address.domain != domain:
        raise StanzaError("remote-server-not-found", "this gateway serves its own domain alone")
    if address.local or address.resource:
        raise StanzaError("service-unavailable", "nobody is reached at this address")


def error(domain: str, to: str | None) -> StanzaError | None:
    """Return what `check` would raise."""
    try:
        check(domain, to)
    except StanzaError as found:
        return found
    return None
