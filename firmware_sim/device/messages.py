"""Format log events (XEP-0337) and sensor data (XEP-0323), and check messages from callers."""

from __future__ import annotations

import html
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
"""The event types of XEP-0337, section 3.1."""

_ID: Final = re.compile(r'<message(?: [^\s=]+="[^"]*")*? id="([^"]*)"')
_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_IN_CONTENT: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;", "\r": "&#13;"}
)
_IN_ATTRIBUTES: Final = _IN_CONTENT | str.maketrans({"\t": "&#9;", "\n": "&#10;"})


def log(
    event: str,
    text: str,
    *,
    type_: str = "Informational",
    tags: Mapping[str, str | int | float] | None = None,
    timestamp: datetime | None = None,
) -> str:
    """Format a log event (XEP-0337).

    Args:
        event: the event id, which identifies the type of event, such as `Entered`.
        text: the message for people.
        type_: one of `TYPES`.
        tags: short values by name.
        timestamp: time of the event, with a time zone; now if omitted.

    Raises MessageRefused if the type is unknown, or a value has characters that XML forbids.
    """
    if type_ not in TYPES:
        raise MessageRefused(f"{type_!r} is not an event type; choose one of {', '.join(TYPES)}")
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
    """Format one momentary field of sensor data (XEP-0323).

    Args:
        name: the field's name, such as `temperature`.
        value: a number, boolean or text, sent as a numeric, boolean or string field.
        unit: the unit of a number; ignored for other values.
        node: the sensor node that was read, if the device has several.
        timestamp: time of the reading, with a time zone; now if omitted.

    Raises MessageRefused if a number is not finite, or a value has characters that XML forbids.
    """
    root = ET.Element(f"{{{CLIENT}}}message")
    fields = ET.SubElement(root, f"{{{SENSOR_DATA}}}fields", {"seqnr": "1", "done": "true"})
    owner = ET.SubElement(fields, f"{{{SENSOR_DATA}}}node", {"nodeId": node})
    when = ET.SubElement(owner, f"{{{SENSOR_DATA}}}timestamp", {"value": _stamp(timestamp)})
    flags = {"name": name, "momentary": "true", "automaticReadout": "true"}
    kind, rest = _typed(value, unit)
    ET.SubElement(when, f"{{{SENSOR_DATA}}}{kind}", {**flags, **rest})
    return write(root)


def normalize(text: str) -> str:
    """Check a caller's `<message/>`, and return its text as it is stored and sent.

    `to` and `from` are removed, because those of the enclosing iq apply (quality of service
    ProtoXEP, Security Considerations). Raises MessageRefused if the text is not well-formed, has a
    document type, or is no `<message/>`.
    """
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise MessageRefused("a stanza must not have a document type")
    try:
        root = ET.fromstring(text)  # noqa: S314 - the caller's own text, without entities
    except ET.ParseError as error:
        raise MessageRefused(f"not well-formed XML: {error}") from error
    if root.tag == "message":
        _place(root)
    if root.tag != f"{{{CLIENT}}}message":
        raise MessageRefused(f"the stanza is {root.tag}, not a <message/> of {CLIENT}")
    for name in ("to", "from"):
        root.attrib.pop(name, None)
    return write(root)


def add_recipient(text: str, to: str) -> str:
    """Add the attribute `to` to the text of a message from `write` or `normalize`."""
    return f'<message to="{_escape(to)}"{text.removeprefix("<message")}'


def with_id(text: str, id_: str) -> tuple[str, str]:
    """Return the text of a message from `write` or `normalize`, and its id; add one if missing."""
    match = _ID.match(text)
    if match is not None:
        return text, html.unescape(match[1])
    return f'<message id="{_escape(id_)}"{text.removeprefix("<message")}', id_


def write(root: ET.Element) -> str:
    """Return an element as XML text with all namespaces declared, to embed it anywhere.

    Raises MessageRefused if a name or value has characters that XML forbids.
    """
    text = "".join(_pieces(root, ""))
    if _FORBIDDEN.search(text):
        raise MessageRefused("the message has a character that XML forbids")
    return text


def _place(element: ET.Element) -> None:
    """Put an element and its descendants without a namespace into the namespace `jabber:client`."""
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
    """Escape text for an attribute or, with `keep`, an element (then keep tabs and line feeds)."""
    return text.translate(_IN_CONTENT if keep else _IN_ATTRIBUTES)
