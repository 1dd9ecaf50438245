"""Compute and write a device's entity capabilities (XEP-0115)."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from typing import Final
from xml.sax.saxutils import quoteattr

NODE: Final = "urn:fieldpost:firmware"
"""The URI of the library. Service discovery requests are for the node `NODE#HASH` (XEP-0115)."""

_NAMESPACE: Final = "http://jabber.org/protocol/caps"


def verification(identities: Iterable[tuple[str, str, str, str]], features: Iterable[str]) -> str:
    """Compute the SHA-1 verification string of identities and features (XEP-0115, 5.1).

    An identity is (category, type, language, name); the last two can be empty.
    """
    parts = ["/".join(identity) for identity in sorted(identities)]
    parts += sorted(features)
    text = "".join(f"{part}<" for part in parts)
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).digest()
    return base64.b64encode(digest).decode()


def presence(ver: str, priority: int) -> str:
    """Format available presence with the result of `verification` and a priority (-128 to 127)."""
    caps = f"<c xmlns='{_NAMESPACE}' hash='sha-1' node='{NODE}' ver={quoteattr(ver)}/>"
    return f"<presence><priority>{priority}</priority>{caps}</presence>"
