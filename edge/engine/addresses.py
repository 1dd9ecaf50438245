"""The kinds of addresses that a gateway serves (RFC 6120, section 10)."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import Final

from edge.errors import ServiceError
from edge.xmpp import jid
from edge.xmpp.jid import Jid, JidError

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
    OWN = "the account that the stanza comes from"
    ACCOUNT = "another account"
    SESSION = "a session of an account"
    SERVICE = "the publish-subscribe service"
    NODE = "a node of that service"


SERVICES: Final = (AddressKind.GATEWAY, AddressKind.SERVICE, AddressKind.NODE)
"""The kinds that belong to no account."""


class AddressReason(Enum):
    """Reasons why nothing can be delivered to an address."""

    MALFORMED = "the address is malformed"
    REMOTE_DOMAIN = "this gateway serves only its own domain"
    NOBODY = "nobody is reached at this address"
    NO_NODE = "there is no such node"
    NO_MESSAGES = "this address does not accept messages"


class AddressError(ServiceError[AddressReason]):
    """Nothing can be delivered to an address."""

    def __init__(self, reason: AddressReason, text: str = "") -> None:
        super().__init__(reason, text or reason.value)


def classify(domain: str, to: str | None, own: str) -> AddressKind:
    """Return the kind of `to`, the address of a stanza that the account `own` (a bare JID) sends.

    A stanza without `to` is for the sender's own account.

    Raises:
        AddressError: the address is malformed or nobody has it (RFC 6120, section 10.5).
    """
    if to is None:
        return AddressKind.OWN
    if to == domain:
        return AddressKind.GATEWAY
    address = parse(to)
    found = kind_of(domain, address)
    return AddressKind.OWN if found is AddressKind.ACCOUNT and address.bare == own else found


def parse(text: str) -> Jid:
    """Parse and normalise an address; raises `AddressError` if it is malformed."""
    try:
        return jid.parse(text)
    except JidError as error:
        raise AddressError(AddressReason.MALFORMED, error.text) from None


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
