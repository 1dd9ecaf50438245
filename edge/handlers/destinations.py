"""Where a stanza may go: the addresses of this gateway (RFC 6120, section 10)."""

from __future__ import annotations

from enum import Enum

from edge.wire import jid
from edge.wire.errors import StanzaError


class Place(Enum):
    """Whose address it is."""

    GATEWAY = "the gateway itself"
    OWN = "the account that the stanza comes from"
    ACCOUNT = "an account, perhaps"
    SESSION = "a session of an account, perhaps"


def place(domain: str, to: str | None, own: str) -> Place:
    """Tell whose address `to` is, for a stanza from the bare JID `own`; none at all is its own.

    Raises:
        StanzaError: there is nobody to take the stanza there (RFC 6120, section 10.5).
    """
    if to is None:
        return Place.OWN
    if to == domain:
        return Place.GATEWAY
    address = jid.parse(to)
    if address.domain != domain:
        raise StanzaError("remote-server-not-found", "this gateway serves its own domain alone")
    if not address.local:
        if address.resource:
            raise StanzaError("service-unavailable", "nobody is reached at this address")
        return Place.GATEWAY
    if address.resource:
        return Place.SESSION
    return Place.OWN if address.bare == own else Place.ACCOUNT


def check(domain: str, to: str | None) -> None:
    """Return if `to` is the gateway itself; no address at all is the gateway as well.

    Raises:
        StanzaError: there is nobody to take the stanza there (RFC 6120, section 10.5).
    """
    if to is not None and place(domain, to, "") is not Place.GATEWAY:
        raise StanzaError("service-unavailable", "nobody is reached at this address")


def error(domain: str, to: str | None) -> StanzaError | None:
    """Return what `check` would raise."""
    try:
        check(domain, to)
    except StanzaError as found:
        return found
    return None
