"""Parsing and normalisation of addresses (RFC 7622; local parts and domains by stringprep).

Nearly all addresses are ASCII. The profiles only prohibit some ASCII characters and change capital
letters, so regular expressions check these addresses. slixmpp's `JID` normalises other local parts
and domains by the profiles of stringprep (RFC 6122), which know the characters of Unicode 3.2 only;
it is imported when the first such address arrives, because it takes 7 MB. Resources, and so node
names, are prepared by PRECIS (RFC 7622, section 3.4), which allows later characters.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from edge.errors import ServiceError
from edge.precis import PrecisError, prepare_opaque

MAX_PLAIN_DOMAIN = 253
"""Maximum bytes of a domain name in the DNS."""
MAX_PART = 1023
"""Maximum bytes of a local part or resource (RFC 7622, section 3.1)."""
CACHED = 1024
"""Maximum number of addresses in each cache, two for each device of the largest gateway. A cache
takes at most 3 MB."""

_LOCAL = r"[!#$%()*+,\-.0-9;=?A-Z\[\\\]^_`a-z{|}~]{1,1023}"
"""The local parts in ASCII that nodeprep allows (RFC 6122, appendix A.5)."""
_RESOURCE = "[ -~]{1,1023}"
"""The resources in ASCII that resourceprep allows (RFC 6122, appendix B.5)."""
_LABEL = "(?![A-Za-z0-9-]{2}--)[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
"""A label of a domain in ASCII, except those that IDNA reserves (RFC 5890, section 2.3.1)."""
_ASCII_LOCAL = re.compile(_LOCAL)
_ASCII_RESOURCE = re.compile(_RESOURCE)
_PLAIN = re.compile(rf"(?:({_LOCAL})@)?({_LABEL}(?:\.{_LABEL})*)(?:/({_RESOURCE}))?")
_FULL_STOPS = re.compile("[\u3002\uff0e\uff61]")
"""Separators of domain labels other than `.` (RFC 3490, section 3.1); slixmpp replaces only one of
them by `.`."""


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


class JidError(AddressError):
    """An address is malformed."""

    def __init__(self, text: str) -> None:
        super().__init__(AddressReason.MALFORMED, text)


class Jid(NamedTuple):
    """A normalised address; `local` and `resource` are "" if absent."""

    local: str
    domain: str
    resource: str

    @property
    def bare(self) -> str:
        """The address without its resource."""
        return f"{self.local}@{self.domain}" if self.local else self.domain

    @property
    def full(self) -> str:
        """The whole address."""
        local, domain, resource = self
        bare = f"{local}@{domain}" if local else domain
        return f"{bare}/{resource}" if resource else bare

    def __str__(self) -> str:
        return self.full


@lru_cache(maxsize=CACHED)
def split(text: str) -> Jid:
    """Split an address that is normalised already into its parts."""
    bare, _, resource = text.partition("/")
    local, _, domain = bare.rpartition("@")
    return Jid(local, domain, resource)


@lru_cache(maxsize=CACHED)
def parse(text: str) -> Jid:
    """Parse and normalise an address.

    Raises:
        JidError: the address is empty, or a part is too long or has prohibited characters.
    """
    match = _PLAIN.fullmatch(text)
    if match is not None and len(match[2]) <= MAX_PLAIN_DOMAIN:
        return Jid((match[1] or "").lower(), match[2].lower(), match[3] or "")
    bare, slash, resource = text.partition("/")
    if not slash or resource.isascii():
        return _prepare(text)
    prepared = prepare_resource(resource)
    return parse(bare)._replace(resource=prepared)


def prepare_local(text: str) -> str:
    """Normalise a local part, such as the name of an account; raises `JidError`."""
    if text.isascii():
        if _ASCII_LOCAL.fullmatch(text) is None:
            raise JidError("invalid local part")
        return text.lower()
    jid = _prepare(f"{text}@localhost")
    if not jid.local or jid.resource or jid.domain != "localhost":
        raise JidError("invalid local part")
    return jid.local


def prepare_resource(text: str) -> str:
    """Normalise a resource, such as the one in a bind request; raises `JidError`."""
    if text.isascii():
        if _ASCII_RESOURCE.fullmatch(text) is None:
            raise JidError("invalid resource")
        return text
    try:
        prepared = prepare_opaque(text)
    except PrecisError as error:
        if not _is_stringprep_stable(text):
            raise JidError(f"invalid resource: {error}") from None
        prepared = text
    if len(prepared.encode()) > MAX_PART:
        raise JidError("invalid resource: it is too long")
    return prepared


def _is_stringprep_stable(text: str) -> bool:
    """Return whether a resource is one that the profile of stringprep accepts and does not change.

    Nodes and sessions with such names are in databases of older versions.
    """
    try:
        return _prepare(f"localhost/{text}").resource == text
    except JidError:
        return False


def _prepare(text: str) -> Jid:
    bare, slash, resource = text.partition("/")
    local, at, domain = bare.rpartition("@")
    bare = local + at + _FULL_STOPS.sub(".", domain)
    if bare.endswith(".."):
        raise JidError("the domain has an empty label")
    bare = bare.removesuffix(".")  # RFC 7622, section 3.2, which slixmpp does not follow
    if not bare:
        raise JidError("the domain is missing")
    text = bare + slash + resource
    from slixmpp.jid import JID

    try:
        jid = JID(text)
        stable = JID(jid.full) == jid
    except ValueError as error:  # InvalidJID is one, and so is what Unicode cannot encode
        raise JidError(str(error)) from error
    if not stable:  # 130 characters of later Unicode become capitals: U+1D2C is such an `A`
        raise JidError("the address has characters that cannot be normalised")
    return Jid(jid.local, jid.domain, jid.resource)
