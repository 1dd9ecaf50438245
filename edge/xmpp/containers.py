"""Encode payloads of other content types as elements.

docs/reference/protocol.md lists which element a content type gets. A payload that its element could
not carry byte for byte is encoded as base64.
"""

from __future__ import annotations

from base64 import b64encode

import msgspec

from edge import content_types
from edge.xmpp import serialize
from edge.xmpp.namespaces import CONTENT, JSON


def element(payload: bytes, content_type: str) -> bytes:
    """Return a payload as XML: unchanged if its content type is "", else as an element; empty if
    there is no payload."""
    if not (content_type and payload):
        return payload
    media_type = content_types.media_type(content_type)
    text = _text(payload) if content_types.is_utf8(content_type) else None
    if text is not None and media_type == content_types.TEXT:
        return serialize.tag("text", {"type": content_type}, serialize.escape(text), xmlns=CONTENT)
    if text is not None and media_type == content_types.JSON and _is_json(payload):
        return serialize.tag("json", content=serialize.escape(text), xmlns=JSON)
    return serialize.tag("data", {"type": content_type}, b64encode(payload), xmlns=CONTENT)


def _text(payload: bytes) -> str | None:
    """Return a payload as text; `None` if it is no UTF-8 or has characters that XML cannot have."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return None
    return text if serialize.is_text(text) else None


def _is_json(payload: bytes) -> bool:
    try:
        msgspec.json.decode(payload, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
