"""Make messages from an operator's input, and read the payloads of messages and items."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from xml.sax.saxutils import escape

from edge.errors import FieldpostError
from edge.xmpp.namespaces import CLIENT, JSON, PUBSUB, clark

Format: TypeAlias = Literal["text", "json", "xml"]

_MESSAGE: Final = clark(CLIENT, "message")
_BODY: Final = clark(CLIENT, "body")
_ITEM: Final = clark(PUBSUB, "item")
_CONTAINER: Final = clark(JSON, "json")


class PayloadError(FieldpostError):
    """A text cannot be sent in the chosen format, or an item does not have exactly one payload."""


class Payload(NamedTuple):
    """A payload: its XML, and the text of a body or the value of a JSON container (XEP-0335)."""

    xml: str
    text: str | None = None
    json: Any = None

    @property
    def short(self) -> str:
        """Return the payload for people, on one line unless its text has several lines."""
        if self.text is not None:
            return self.text
        return self.xml if self.json is None else json.dumps(self.json, ensure_ascii=False)

    def fields(self) -> dict[str, Any]:
        """Return the payload as JSON fields: `payload` (XML), and `text` or `json` if present."""
        found: dict[str, Any] = {"payload": self.xml}
        if self.text is not None:
            found["text"] = self.text
        if self.json is not None:
            found["json"] = self.json
        return found


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
        try:
            json.loads(typed)
        except (ValueError, RecursionError) as error:
            raise PayloadError(f"this is not JSON: {error}") from None
        content = f"<json xmlns='{JSON}'>{escape(typed)}</json>"
    else:
        root = _parse(typed)
        if root.tag in ("message", _MESSAGE):
            return typed if root.tag != "message" else _with_namespace(typed)
        content = typed
    whole = f"<message xmlns='{CLIENT}'>{content}</message>"
    _parse(whole)
    return whole


def _with_namespace(typed: str) -> str:
    before, name, after = typed.partition("<message")
    return f"{before}{name} xmlns='{CLIENT}'{after}"


def read(xml: str) -> Payload:
    """Read the payload of an item from its XML; an empty payload has an empty text."""
    if not xml:
        return Payload("", "")
    return _read(xml, _parse(xml))


def read_message(xml: str) -> Payload:
    """Read the payload of a message: its JSON container, or its body, or else all its content."""
    root = _parse(xml)
    for name in (_CONTAINER, _BODY):
        found = root.find(name)
        if found is not None:
            return _read(write(found), found)
    return Payload("".join(map(write, root)))


class Item(NamedTuple):
    """An item to publish: its ItemID, empty if it has none, and its payload."""

    id: str
    payload: ET.Element


def read_item(xml: str) -> Item:
    """Read the item in a message: its only element, or an `<item/>` with a payload.

    Raises:
        PayloadError: the message does not contain exactly one element.
    """
    found, id = list(_parse(xml)), ""
    if len(found) == 1 and found[0].tag == _ITEM:
        found, id = list(found[0]), found[0].get("id", "")
    if len(found) != 1:
        raise PayloadError("an item must have exactly one payload element")
    return Item(id, found[0])


def write(element: ET.Element) -> str:
    """Return an element as XML text."""
    return ET.tostring(element, encoding="unicode")


def _read(xml: str, root: ET.Element) -> Payload:
    if root.tag == _BODY:
        return Payload(xml, root.text or "")
    if root.tag == _CONTAINER:
        try:
            return Payload(xml, None, json.loads(root.text or ""))
        except ValueError:
            return Payload(xml, root.text or "")
    return Payload(xml)


def _parse(text: str) -> ET.Element:
    if "<!" in text:
        raise PayloadError("XML with a document type, a comment or CDATA cannot be sent")
    try:
        return ET.fromstring(text)  # noqa: S314 - without a document type, hence without entities
    except ET.ParseError as error:
        raise PayloadError(f"this is not one XML element: {error}") from None
