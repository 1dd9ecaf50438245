"""Reading and verification of entity capabilities (XEP-0115, sections 4, 5.1 and 5.4)."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeVar
from xml.etree.ElementTree import Element

from edge.xmpp.namespaces import CAPS, DATA_FORMS, DISCO_INFO, XML, clark
from edge.xmpp.stanza import Stanza, parse_fragment

_T = TypeVar("_T")

HASHES: Final = {
    "sha-1": "sha1",
    "sha-224": "sha224",
    "sha-256": "sha256",
    "sha-384": "sha384",
    "sha-512": "sha512",
}
"""The accepted hash functions, by their names in XEP-0115; without `md2` and `md5`."""

PARTS: Final = 1000
"""Maximum identities, features and form values, added up, in an answer to disco#info; an answer
with more counts as ill-formed. No device has so many."""

END: Final = "<"
"""The character that ends each part of the hashed text."""

_C: Final = clark(CAPS, "c")
_FORM_TYPE: Final = "FORM_TYPE"
_LANG: Final = clark(XML, "lang")
_IDENTITY: Final = clark(DISCO_INFO, "identity")
_FEATURE: Final = clark(DISCO_INFO, "feature")
_FORM: Final = clark(DATA_FORMS, "x")
_FIELD: Final = clark(DATA_FORMS, "field")
_VALUE: Final = clark(DATA_FORMS, "value")


class Caps(NamedTuple):
    """The capabilities that a presence announces: hash function, software, and the hash."""

    hash: str
    node: str
    ver: str


class Info(NamedTuple):
    """An answer to disco#info.

    Attributes:
        features: as received.
        text: the text to hash; None if the answer is ill-formed (XEP-0115, section 5.4).
    """

    features: tuple[str, ...]
    text: str | None


class _IllFormed(Exception):
    """An answer to disco#info has duplicates (XEP-0115, section 5.4)."""


def announced(attrs: Mapping[str, str]) -> Caps | None:
    """Return the capabilities in the attributes of a `<c/>`; None if an attribute is missing, as in
    the legacy format."""
    hash_, node, ver = (attrs.get(name, "") for name in Caps._fields)
    return Caps(hash_, node, ver) if hash_ and node and ver else None


def announced_by(presence: Stanza) -> Caps | None:
    """Return the capabilities that a presence announces, if it announces any."""
    found = (announced(child.attrs) for child in presence.children if child.name == _C)
    return next(found, None)


def announced_in(presence: bytes | None) -> Caps | None:
    """Return the capabilities that a presence, given as bytes, announces, if any."""
    if presence is None:
        return None
    found = (announced(child.attrib) for child in parse_fragment(presence).iterfind(_C))
    return next(found, None)


def read(query: Element) -> Info:
    """Read the `<query/>` of an answer to disco#info (XEP-0115, sections 5.1 and 5.4)."""
    features = tuple(feature.get("var", "") for feature in query.iterfind(_FEATURE))
    try:
        parts = [*_identities(query), *sorted(_unique(features)), *_forms(query)]
        text = "".join(f"{part}{END}" for part in parts) if len(parts) <= PARTS else None
    except _IllFormed:
        text = None
    return Info(features, text)


def verifies(text: str, caps: Caps) -> bool:
    """Return whether a text has the hash in `caps`; false for an unknown hash function."""
    name = HASHES.get(caps.hash)
    if name is None:
        return False
    digest = b64encode(hashlib.new(name, text.encode(), usedforsecurity=False).digest())
    return digest.decode() == caps.ver


def parts(text: str) -> frozenset[str]:
    """Return the parts of a hashed text: identities, features and form values.

    A hash proves only the parts: two answers with the same hash can divide the same parts
    differently between identities, features and forms.
    """
    return frozenset(text.split(END))


def _identities(query: Element) -> list[str]:
    found = [
        (one.get("category", ""), one.get("type", ""), one.get(_LANG, ""), one.get("name", ""))
        for one in query.iterfind(_IDENTITY)
    ]
    return ["/".join(identity) for identity in sorted(_unique(found))]


def _forms(query: Element) -> list[str]:
    """Return the parts of the forms that have a `FORM_TYPE` (XEP-0115, section 5.1, step 7)."""
    typed = [
        (type_, form) for form in query.iterfind(_FORM) if (type_ := _type_of(form)) is not None
    ]
    _unique([type_ for type_, _form in typed])
    found: list[str] = []
    for type_, form in sorted(typed, key=lambda pair: pair[0]):
        found.append(type_)
        fields = [field for field in form.iterfind(_FIELD) if field.get("var") != _FORM_TYPE]
        for field in sorted(fields, key=lambda field: field.get("var", "")):
            found += [field.get("var", ""), *sorted(_values(field))]
    return found


def _type_of(form: Element) -> str | None:
    for field in form.iterfind(_FIELD):
        if field.get("var") == _FORM_TYPE and field.get("type") == "hidden":
            values = set(_values(field))
            if len(values) > 1:
                raise _IllFormed
            return values.pop() if values else None
    return None


def _values(field: Element) -> list[str]:
    return [value.text or "" for value in field.iterfind(_VALUE)]


def _unique(found: Iterable[_T]) -> list[_T]:
    listed = list(found)
    if len(set(listed)) < len(listed):
        raise _IllFormed
    return listed
