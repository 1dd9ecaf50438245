"""Content types of payloads (RFC 9110, section 8.3)."""

from __future__ import annotations

from typing import Final

import msgspec

JSON: Final = "application/json"
TEXT: Final = "text/plain"
XML: Final = "application/xml"
UNKNOWN: Final = "application/octet-stream"
"""The type of a payload whose sender says nothing of it."""


def media_type(content_type: str) -> str:
    """Return a content type in lower case and without parameters; `JSON` also for other types with
    the syntax of JSON (RFC 6839, section 3.1)."""
    found = content_type.partition(";")[0].strip().lower()
    return JSON if found.endswith("+json") else found


def is_utf8(content_type: str) -> bool:
    """Return whether the parameters of a content type allow that the payload is UTF-8."""
    parameters = content_type.partition(";")[2].lower()
    return "charset" not in parameters or "utf-8" in parameters


def find(payload: bytes, content_type: str) -> str:
    """Return the content type of a payload; of one whose sender says nothing of it, what it looks
    like: JSON, or text in UTF-8."""
    if content_type != UNKNOWN:
        return content_type
    if is_json(payload):
        return JSON
    try:
        payload.decode()
    except UnicodeDecodeError:
        return UNKNOWN
    return TEXT


def is_json(payload: bytes) -> bool:
    """Return whether a payload is a JSON value."""
    try:
        msgspec.json.decode(payload, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
