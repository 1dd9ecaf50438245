"""The kinds of addresses that a gateway serves (RFC 6120, section 10)."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import Final

from edge.xmpp import jid
from edge.xmpp.errors import StanzaError
from edge.xmpp.jid import Jid

PUBSUB: Final = "pubsub"
"""The label before the gateway's domain in the address of the publish-subscribe service."""


@lru_cache(maxsize=4)
def pubsub_service(domain: str) -> str:
    """Return the address of the publish-subscribe service of a gateway's domain."""
    return f"{PUBSUB}.{domain}"


class AddressKind(Enum):
    """What an address belongs to. That an account, session or node exists is not certain."""

    GATEWAY = "the gateway itself"
    OWN = "the account that the stanza comes from"
    ACCOUNT = "another account"
    SESSION = "a session of an account"
    SERVICE = "the publish-subscribe service"
    NODE = "a node of that service"


SERVICES: Final = (AddressKind.GATEWAY, AddressKind.SERVICE, AddressKind.NODE)
"""The kinds that belong to no account."""


def classify(domain: str, to: str | None, own: str) -> AddressKind:
    """Return the kind of address `to` is for a stanza from the bare JID `own`.

    No address is the sender's own account.

    Raises:
        StanzaError: the address is malformed or nobody has it (RFC 6120, section 10.5).
    """
    if to is None:
        return AddressKind.OWN
    if to == domain:
        return AddressKind.GATEWAY
    address = jid.parse(to)
    found = kind_of(domain, address)
    return AddressKind.OWN if found is AddressKind.ACCOUNT and address.bare == own else found


def kind_of(domain: str, address: Jid) -> AddressKind:
    """Return the kind of a parsed address; raises `StanzaError` if nobody has it."""
    if address.domain == pubsub_service(domain) and not address.local:
        return AddressKind.NODE if address.resource else AddressKind.SERVICE
    if address.domain != domain:
        raise StanzaError("remote-server-not-found", "this gateway serves only its own domain")
    if not address.local:
        if address.resource:
            raise nobody()
        return AddressKind.GATEWAY
    return AddressKind.SESSION if address.resource else AddressKind.ACCOUNT


def nobody() -> StanzaError:
    """Return the error for an address that nobody has."""
    return StanzaError("service-unavailable", "nobody is reached at this address")
