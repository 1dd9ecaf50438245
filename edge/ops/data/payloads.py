"""Read the payloads of items and messages for people and programs, by their content types."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any, Final, NamedTuple

from edge import content_types
from edge.xmpp.payloads import unwrap

XML: Final = ""
"""The content type of payloads that are XML elements."""


class Payload(NamedTuple):
    """A payload: as it was published, its content type, and its content if this is text or JSON.

    `payload` is in base64 if `encoding` says so, because the bytes are no text.
    """

    payload: str
    content_type: str = XML
    text: str | None = None
    json: Any = None
    encoding: str | None = None

    @property
    def short(self) -> str:
        """Return the payload for people, on one line unless its text has several lines."""
        if self.text is not None:
            return self.text
        return self.payload if self.json is None else json.dumps(self.json, ensure_ascii=False)

    def fields(self) -> dict[str, Any]:
        """Return the payload as JSON fields: `payload`, and the others if present."""
        found = {name: value for name, value in self._asdict().items() if value is not None}
        if not self.content_type:
            del found["content_type"]
        return found


def read(payload: bytes, content_type: str = XML) -> Payload:
    """Read the payload of an item; an empty payload has an empty text."""
    try:
        whole = payload.decode("utf-8" if content_types.is_utf8(content_type) else "ascii")
    except UnicodeDecodeError:
        return Payload(b64encode(payload).decode(), content_type, encoding="base64")
    media_type = content_types.media_type(content_types.find(payload, content_type))
    content = whole
    if not content_type:
        media_type, content = unwrap(whole)
    if media_type == content_types.JSON:
        try:
            return Payload(whole, content_type, json=json.loads(content))
        except (ValueError, RecursionError):
            media_type = content_types.TEXT
    is_text = media_type.startswith("text/") or not payload
    return Payload(whole, content_type, content if is_text else None)
