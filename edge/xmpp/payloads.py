"""Make messages from typed text, and read the contents of messages and items, as XMPP writes them.

Text is in a body (RFC 6121, section 5.2.3), or in the element of `containers` if another protocol
published it, and JSON in a container (XEP-0335).
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from typing import Final, Literal, NamedTuple, TypeAlias
from xml.sax.saxutils import escape

from edge import content_types
from edge.errors import FieldpostError
from edge.xmpp.namespaces import CLIENT, CONTENT, JSON, PUBSUB, clark

Format: TypeAlias = Literal["text", "json", "xml"]

_MESSAGE: Final = clark(CLIENT, "message")
_BODY: Final = clark(CLIENT, "body")
_ITEM: Final = clark(PUBSUB, "item")
_CONTAINER: Final = clark(JSON, "json")

_CONTENT_TYPES: Final = {
    _BODY: content_types.TEXT,
    _CONTAINER: content_types.JSON,
    clark(CONTENT, "text"): content_types.TEXT,
}


class PayloadError(FieldpostError):
    """A text cannot be sent in the chosen format, or an item does not have exactly one payload."""


def message(typed: str, format: Format) -> str:
    """Return a `<message/>` with a payload.

    Args:
        typed: text for a body, a JSON value, or XML: an element, or a whole `<message/>`.

    Raises:
        PayloadError: `typed` is not JSON, not one XML element, or contains characters that XML
            forbids.
    """
    if format == "text":
        content = f"<body>{escape(typed)}</body>"
    elif format == "json":
        check_json(typed)
        content = f"<json xmlns='{JSON}'>{escape(typed)}</json>"
    else:
        root = _parse(typed)
        if root.tag in ("message", _MESSAGE):
            return typed if root.tag != "message" else _with_namespace(typed)
        content = typed
    whole = f"<message xmlns='{CLIENT}'>{content}</message>"
    _parse(whole)
    return whole


def check_json(typed: str) -> None:
    """Raise `PayloadError` if a text is not a JSON value."""
    try:
        json.loads(typed)
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"this is not JSON: {error}") from None


def _with_namespace(typed: str) -> str:
    before, name, after = typed.partition("<message")
    return f"{before}{name} xmlns='{CLIENT}'{after}"


def unwrap(payload: str) -> tuple[str, str]:
    """Return the media type and the content of an item's payload: text, or the JSON of a container.
    Other XML has the type "" and is its own content."""
    try:
        root = _parse(payload)
    except PayloadError:  # several elements
        return "", payload
    media_type = _CONTENT_TYPES.get(root.tag, "")
    return media_type, (root.text or "") if media_type else payload


def payload_of(message: str) -> str:
    """Return the payload of a message: its JSON container, or its body, or else all its content."""
    root = _parse(message)
    for name in (_CONTAINER, _BODY):
        found = root.find(name)
        if found is not None:
            return write(found)
    return "".join(map(write, root))


class Item(NamedTuple):
    """An item to publish: its ItemID, empty if it has none, and its payload."""

    id: str
    payload: ET.Element


def read_item(message: str) -> Item:
    """Read the item in a message: its only element, or an `<item/>` with a payload.

    Raises:
        PayloadError: the message does not contain exactly one element.
    """
    found, id = list(_parse(message)), ""
    if len(found) == 1 and found[0].tag == _ITEM:
        found, id = list(found[0]), found[0].get("id", "")
    if len(found) != 1:
        raise PayloadError("an item must have exactly one payload element")
    return Item(id, found[0])


def write(element: ET.Element) -> str:
    """Return an element as XML text."""
    return ET.tostring(element, encoding="unicode")


def _parse(text: str) -> ET.Element:
    if "<!" in text:
        raise PayloadError("XML with a document type, a comment or CDATA cannot be sent")
    try:
        return ET.fromstring(text)  # noqa: S314 - without a document type, hence without entities
    except ET.ParseError as error:
        raise PayloadError(f"this is not one XML element: {error}") from None
