"""The XML of what a device says: logs (XEP-0337), sensor data (XEP-0323), other messages.

It makes text and checks text. How it is sent, stored or addressed is not its business.
"""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from firmware_sim.device.errors import MessageRefused

CLIENT: Final = "jabber:client"
EVENT_LOG: Final = "urn:xmpp:eventlog"
SENSOR_DATA: Final = "urn:xmpp:iot:sensordata"
_XML: Final = "http://www.w3.org/XML/1998/namespace"

TYPES: Final = (
    "Debug",
    "Informational",
    "Notice",
    "Warning",
    "Error",
    "Critical",
    "Alert",
    "Emergency",
)
"""The types of an event by XEP-0337, section 3.1."""

_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ESCAPES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"}
_ESCAPES_TOO: Final = {"\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}


def log(
    event: str,
    text: str,
    *,
    type_: str = "Informational",
    tags: Mapping[str, str | int | float] | None = None,
    timestamp: datetime | None = None,
) -> str:
    """Write an event of the log (XEP-0337).

    Args:
        event: its id, which names the kind of event.
        text: what people read.
        type_: one of `TYPES`.
        tags: small values by name.
        timestamp: when it happened, with a time zone; now if left out.

    Raises:
        MessageRefused: the type is unknown, or a value has characters that XML forbids.
    """
    if type_ not in TYPES:
        raise MessageRefused(f"{type_!r} is not a type of event; these are: {', '.join(TYPES)}")
    root = ET.Element(f"{{{CLIENT}}}message")
    attributes = {"timestamp": _stamp(timestamp), "id": event, "type": type_}
    entry = ET.SubElement(root, f"{{{EVENT_LOG}}}log", attributes)
    ET.SubElement(entry, f"{{{EVENT_LOG}}}message").text = text
    for name, value in (tags or {}).items():
        ET.SubElement(entry, f"{{{EVENT_LOG}}}tag", {"name": name, "value": str(value)})
    return write(root)


def reading(
    name: str,
    value: float | str | bool,
    *,
    unit: str = "",
    node: str = "",
    timestamp: datetime | None = None,
) -> str:
    """Write one momentary field of sensor data (XEP-0323).

    Args:
        name: of the field, such as `temperature`.
        value: a number, a truth or a text, which choose numeric, boolean and string.
        unit: of a number.
        node: what was read, where the device has several.
        timestamp: when it was read, with a time zone; now if left out.

    Raises:
        MessageRefused: a number is not finite, or a value has characters that XML forbids.
    """
    root = ET.Element(f"{{{CLIENT}}}message")
    fields = ET.SubElement(root, f"{{{SENSOR_DATA}}}fields", {"seqnr": "1", "done": "true"})
    owner = ET.SubElement(fields, f"{{{SENSOR_DATA}}}node", {"nodeId": node})
    when = ET.SubElement(owner, f"{{{SENSOR_DATA}}}timestamp", {"value": _stamp(timestamp)})
    flags = {"name": name, "momentary": "true", "automaticReadout": "true"}
    kind, rest = _typed(value, unit)
    ET.SubElement(when, f"{{{SENSOR_DATA}}}{kind}", {**flags, **rest})
    return write(root)


def checked(text: str) -> str:
    """Check a caller's `<message/>` and write it in the one form that is stored and sent.

    `to` and `from` are left out, since the iq's hold (ProtoXEP, Security Considerations).

    Raises:
        MessageRefused: it is not well-formed, has a document type, or is no `<message/>`.
    """
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise MessageRefused("a stanza has no document type")
    try:
        root = ET.fromstring(text)  # noqa: S314 - the caller's own text, without entities
    except ET.ParseError as error:
        raise MessageRefused(f"not well-formed XML: {error}") from error
    if root.tag == "message":
        _place(root)
    if root.tag != f"{{{CLIENT}}}message":
        raise MessageRefused(f"a <message/> of {CLIENT} is wanted, not {root.tag}")
    for name in ("to", "from"):
        root.attrib.pop(name, None)
    return write(root)


def addressed(text: str, to: str) -> str:
    """Address a message, as `write` or `checked` wrote it, so that it can be sent as a stanza."""
    return f'<message to="{_escape(to)}"{text.removeprefix("<message")}'


def write(root: ET.Element) -> str:
    """Write an element so that it means the same wherever it is put: each namespace in its place.

    Raises:
        MessageRefused: a name or value has characters that XML forbids.
    """
    text = "".join(_pieces(root, ""))
    if _FORBIDDEN.search(text):
        raise MessageRefused("a character that XML forbids")
    return text


def _place(element: ET.Element) -> None:
    """Put an element without a namespace, and its children without one, where a stanza is."""
    if not element.tag.startswith("{"):
        element.tag = f"{{{CLIENT}}}{element.tag}"
        for child in element:
            _place(child)


def _typed(value: float | str | bool, unit: str) -> tuple[str, dict[str, str]]:
    if isinstance(value, bool):
        return "boolean", {"value": "true" if value else "false"}
    if isinstance(value, str):
        return "string", {"value": value}
    if not math.isfinite(value):
        raise MessageRefused(f"a reading must be finite, not {value}")
    return "numeric", {"value": repr(value), "unit": unit}


def _stamp(when: datetime | None) -> str:
    moment = (when or datetime.now(UTC)).astimezone(UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _pieces(element: ET.Element, outer: str) -> list[str]:
    namespace, name = _split(element.tag)
    attributes = "" if namespace == outer else f' xmlns="{_escape(namespace)}"'
    attributes += "".join(
        _attribute(number, key, value) for number, (key, value) in enumerate(element.items())
    )
    inner = [_escape(element.text or "", keep=True)]
    for child in element:
        inner += _pieces(child, namespace)
        inner.append(_escape(child.tail or "", keep=True))
    content = "".join(inner)
    return [f"<{name}{attributes}>{content}</{name}>" if content else f"<{name}{attributes}/>"]


def _attribute(number: int, key: str, value: str) -> str:
    namespace, name = _split(key)
    if not namespace:
        return f' {name}="{_escape(value)}"'
    if namespace == _XML:
        return f' xml:{name}="{_escape(value)}"'
    prefix = f"a{number}"
    return f' xmlns:{prefix}="{_escape(namespace)}" {prefix}:{name}="{_escape(value)}"'


def _split(tag: str) -> tuple[str, str]:
    namespace, _, name = tag.rpartition("}")
    return namespace.removeprefix("{"), name


def _escape(text: str, *, keep: bool = False) -> str:
    """Escape for an attribute, or, with `keep`, for text, where tabs and line ends stay."""
    escapes = {**_ESCAPES, "\r": "&#13;"} if keep else {**_ESCAPES, **_ESCAPES_TOO}
    return "".join(escapes.get(character, character) for character in text)
