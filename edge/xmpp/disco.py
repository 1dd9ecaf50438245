"""Build the answers of service discovery (XEP-0030) and entity capabilities (XEP-0115)."""

from __future__ import annotations

from base64 import b64encode
from functools import lru_cache
from hashlib import sha1
from typing import Final

from edge.xmpp import serialize
from edge.xmpp.namespaces import CAPS

NODE: Final = "urn:x-fieldpost"
"""The name of this software in entity capabilities (XEP-0115, section 4)."""

SERVER: Final = {"category": "server", "type": "im", "name": "Fieldpost"}
COMPONENT: Final = {"category": "component", "type": "generic", "name": "Fieldpost"}


def describe(identity: dict[str, str], features: tuple[str, ...]) -> bytes:
    """Return an identity and its features, for a `<query/>` of disco#info."""
    listed = b"".join(serialize.tag("feature", {"var": name}) for name in features)
    return serialize.tag("identity", identity) + listed


def query(namespace: str, content: bytes, node: str | None = None) -> bytes:
    """Return the `<query/>` of an answer."""
    return serialize.tag("query", {"node": node}, content, xmlns=namespace)


@lru_cache(maxsize=8)
def verification_string(features: tuple[str, ...], *, component: bool = False) -> str:
    """Return the verification string of the gateway (XEP-0115, section 5.1).

    Args:
        component: whether the gateway is a component of another server.
    """
    own = COMPONENT if component else SERVER
    identity = f"{own['category']}/{own['type']}//{own['name']}<"
    text = identity + "".join(f"{feature}<" for feature in sorted(features))
    return b64encode(sha1(text.encode(), usedforsecurity=False).digest()).decode()


def capabilities(features: tuple[str, ...], *, component: bool = False) -> bytes:
    """Return the gateway's capabilities, for stream features or a component's presence.

    Source: XEP-0115, sections 4 and 6.3. The arguments are those of `verification_string`.
    """
    ver = verification_string(features, component=component)
    return serialize.tag("c", {"hash": "sha-1", "node": NODE, "ver": ver}, xmlns=CAPS)
