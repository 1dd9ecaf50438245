"""The kinds of addresses that a gateway serves (RFC 6120, section 10)."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import Final

from edge import jid
from edge.jid import AddressError, AddressReason, Jid

PUBSUB: Final = "pubsub"
"""The label before the gateway's domain in the address of the publish-subscribe service."""


@lru_cache(maxsize=4)
def pubsub_service(domain: str) -> str:
    """Return the address of the publish-subscribe service of a gateway's domain."""
    return f"{PUBSUB}.{domain}"


def account_of(address: str) -> str:
    """Return the bare address of the account that an address belongs to, or ""."""
    bare = address.partition("/")[0]
    return bare if "@" in bare else ""


class AddressKind(Enum):
    """The kind of entity that an address names; the entity need not exist."""

    __hash__ = object.__hash__  # `Enum.__hash__` is slow: it is written in Python

    GATEWAY = "the gateway itself"
    OWN = "the sender's own account"
    ACCOUNT = "another account"
    SESSION = "a session of an account"
    SERVICE = "the publish-subscribe service"
    NODE = "a node of that service"


SERVICES: Final = (AddressKind.GATEWAY, AddressKind.SERVICE, AddressKind.NODE)
"""The kinds that belong to no account."""


def classify(domain: str, to: str | None, own: str) -> AddressKind:
    """Return the kind of `to`, an address to which the account `own` (a bare JID) sends.

    `None` is the sender's own account.

    Raises:
        AddressError: the address is malformed or nobody has it (RFC 6120, section 10.5).
    """
    if to is None:
        return AddressKind.OWN
    if to == domain:
        return AddressKind.GATEWAY
    address = jid.parse(to)
    found = kind_of(domain, address)
    return AddressKind.OWN if found is AddressKind.ACCOUNT and address.bare == own else found


def kind_of(domain: str, address: Jid) -> AddressKind:
    """Return the kind of a parsed address; raises `AddressError` if nobody has it."""
    if address.domain == pubsub_service(domain) and not address.local:
        return AddressKind.NODE if address.resource else AddressKind.SERVICE
    if address.domain != domain:
        text = f"{AddressReason.REMOTE_DOMAIN.value}, {domain}, and not {address.domain}"
        raise AddressError(AddressReason.REMOTE_DOMAIN, text)
    if not address.local:
        if address.resource:
            raise AddressError(AddressReason.NOBODY)
        return AddressKind.GATEWAY
    return AddressKind.SESSION if address.resource else AddressKind.ACCOUNT
