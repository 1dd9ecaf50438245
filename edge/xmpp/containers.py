"""Encode payloads of other content types as elements, and read them from these elements.

docs/reference/protocol.md lists which element a content type gets. A payload that its element could
not carry byte for byte is encoded as base64.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from base64 import b64decode, b64encode

from edge import content_types
from edge.xmpp import serialize
from edge.xmpp.namespaces import CONTENT, JSON, clark

_JSON = clark(JSON, "json")
_TEXT = clark(CONTENT, "text")
_DATA = clark(CONTENT, "data")


def element(payload: bytes, content_type: str) -> bytes:
    """Return a payload as XML: unchanged if its content type is "", else as an element; empty if
    there is no payload."""
    if not (content_type and payload):
        return payload
    content_type = content_types.find(payload, content_type)
    media_type = content_types.media_type(content_type)
    text = _text(payload) if content_types.is_utf8(content_type) else None
    if text is not None and media_type == content_types.TEXT:
        return serialize.tag("text", {"type": content_type}, serialize.escape(text), xmlns=CONTENT)
    if text is not None and media_type == content_types.JSON and content_types.is_json(payload):
        return serialize.tag("json", content=serialize.escape(text), xmlns=JSON)
    return serialize.tag("data", {"type": content_type}, b64encode(payload), xmlns=CONTENT)


def _text(payload: bytes) -> str | None:
    """Return a payload as text; `None` if it is no UTF-8 or has characters that XML cannot have."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return None
    return text if serialize.is_text(text) else None


def read(payload: bytes) -> tuple[bytes, str]:
    """Return the payload and the content type that an element of XMPP stands for: those from which
    `element` makes it, or else its XML. The element has been parsed before."""
    root = ET.fromstring(payload)  # noqa: S314 - streams have no document type
    text = root.text or ""
    if root.tag == _JSON:
        return text.encode(), content_types.JSON
    if root.tag == _TEXT:
        return text.encode(), root.get("type", content_types.TEXT)
    if root.tag == _DATA:
        try:
            return b64decode(text, validate=True), root.get("type", content_types.UNKNOWN)
        except ValueError:
            pass  # a device has published it, and may write into it what it likes
    return payload, content_types.XML
