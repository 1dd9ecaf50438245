"""Target: addresses, which may be any text, including text that has no Unicode encoding.

- Only `JidError` is raised.
- What is accepted is normalised: parsed again it is the same, each part and the whole.
- The parts are limited, and have no characters of another part.
- Local parts and resources alone are judged as they are within an address.
"""

from __future__ import annotations

import unicodedata
from typing import Final

from edge import jid
from edge.jid import Jid, JidError

MAX_BYTES: Final = 4096

PART_BYTES: Final = 1023
"""RFC 7622, section 3.1: no part has more."""
_NOT_IN_LOCAL: Final = frozenset("\"&'/:<>@ ")
_NOT_IN_DOMAIN: Final = frozenset("/@ ")
_NOT_TEXT: Final = frozenset({"Cc", "Cs"})


def check(data: bytes) -> None:
    """Parse a text as an address, a local part and a resource."""
    text = data.decode("utf-8", "surrogateescape")
    _check_address(text)
    _check_local(text)
    _check_resource(text)


def _check_address(text: str) -> None:
    try:
        address = jid.parse(text)
    except JidError:
        return
    assert address.domain
    for part in address:
        assert len(part.encode()) <= PART_BYTES
        assert _NOT_TEXT.isdisjoint(map(unicodedata.category, part))
    assert _NOT_IN_LOCAL.isdisjoint(address.local)
    assert _NOT_IN_DOMAIN.isdisjoint(address.domain)
    assert jid.parse(address.full) == address
    assert jid.parse(address.bare) == Jid(address.local, address.domain, "")


def _check_local(text: str) -> None:
    try:
        local = jid.prepare_local(text)
    except JidError:
        return
    assert jid.prepare_local(local) == local
    assert jid.parse(f"{text}@gw.example") == Jid(local, "gw.example", "")
    assert jid.parse(f"{local}@gw.example") == Jid(local, "gw.example", "")


def _check_resource(text: str) -> None:
    try:
        resource = jid.prepare_resource(text)
    except JidError:
        return
    assert resource
    assert jid.prepare_resource(resource) == resource
    assert jid.parse(f"gw.example/{text}") == Jid("", "gw.example", resource)
