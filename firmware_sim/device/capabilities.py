"""What a device announces of itself with its presence (XEP-0115), so that a gateway need not ask.

Pure functions; `incoming` sends what they make, and answers who asks what the hash stands for.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from typing import Final, NamedTuple
from xml.sax.saxutils import quoteattr

NODE: Final = "urn:fieldpost:firmware"
"""Names the software; with the hash it names the node that service discovery is asked for."""

_NAMESPACE: Final = "http://jabber.org/protocol/caps"


class Identity(NamedTuple):
    """An identity of service discovery (XEP-0030)."""

    category: str
    type: str
    lang: str = ""
    name: str = ""


DEVICE: Final = Identity("client", "bot")
"""What a device is: a client that no person sits at."""


def verification(identities: Iterable[Identity], features: Iterable[str]) -> str:
    """Make the verification string of identities and features (XEP-0115, 5.1), by SHA-1."""
    parts = ["/".join(identity) for identity in sorted(identities)]
    parts += sorted(features)
    text = "".join(f"{part}<" for part in parts)
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).digest()
    return base64.b64encode(digest).decode()


def presence(ver: str, priority: int) -> str:
    """Write available presence with that verification string.

    Args:
        ver: as `verification` made it.
        priority: -128 to 127 (RFC 6121, 4.7.2.3).
    """
    caps = f"<c xmlns='{_NAMESPACE}' hash='sha-1' node='{NODE}' ver={quoteattr(ver)}/>"
    return f"<presence><priority>{priority}</priority>{caps}</presence>"
