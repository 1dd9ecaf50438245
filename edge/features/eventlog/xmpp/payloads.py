"""Decode payloads into events: sensor data (XEP-0323), JSON (XEP-0335) and log events (XEP-0337).

Each field of `<fields/>` and each reading of `<json/>` is an event in the lane of readings; each
`<log/>` is an event in the lane of logs. All details of a log event are kept: a detail for which
`NewEvent` has no field becomes a tag. If several tags have the same name, the second gets the
suffix `#2`, the third `#3`. The type of a tag that is not plain text is kept in the tag
`NAME:type`.

A payload is unreadable if it has a value that its specification does not define, or content for
which an event has no place. Elements and attributes of other namespaces are ignored (RFC 6120,
section 8.4).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final
from xml.etree.ElementTree import Element

from edge.engine.dispatch.hooks import Hooks, UnreadablePayload
from edge.engine.store import events
from edge.engine.store.events import NewEvent
from edge.features.eventlog import decoders
from edge.features.eventlog.rules import device_times
from edge.features.eventlog.rules.device_times import SHOWN
from edge.features.eventlog.rules.levels import EXTENTS, INFORMATIONAL, LEVELS
from edge.features.eventlog.rules.strict_json import InvalidJson
from edge.routing.xmpp import XmppHooks
from edge.xmpp.namespaces import EVENTLOG, JSON, SENSOR_DATA, clark
from edge.xmpp.stanza import has_text

# Sensor data

_NUMBER_FIELDS: Final = frozenset({"numeric", "int", "long", "boolean"})
TEXT_FIELDS: Final = frozenset(
    {"string", "date", "dateTime", "duration", "timeSpan", "time", "enum"}
)
_FIELDS: Final = {clark(SENSOR_DATA, kind): kind for kind in _NUMBER_FIELDS | TEXT_FIELDS}

_NODE: Final = clark(SENSOR_DATA, "node")
_TIMESTAMP: Final = clark(SENSOR_DATA, "timestamp")

_NUMERIC: Final = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")
_INTEGER: Final = re.compile(r"\s*[+-]?[0-9]+\s*")

_BOOLEANS: Final = {"true": 1.0, "1": 1.0, "false": 0.0, "0": 0.0}
_TEXT_ATTRIBUTES: Final = frozenset({"dataType", "module", "stringIds"})
"""Attributes of a field that become tags."""


def decode_sensor_data(fields: Element) -> list[tuple[str, NewEvent]]:
    """Decode `<fields/>` into one event per field; raise `UnreadablePayload` if one is invalid."""
    for text in fields.itertext():
        if not text.isspace():
            _refuse_text(fields)
    found: list[tuple[str, NewEvent]] = []
    for node in fields:
        if node.tag != _NODE:
            _refuse_unknown(node, fields)
            continue
        for timestamp in node:
            if timestamp.tag != _TIMESTAMP:
                _refuse_unknown(timestamp, node)
                continue
            time = timestamp.get("value")
            if time is not None and (fault := device_times.find_fault(time)):
                raise UnreadablePayload(fault)
            for field in timestamp:
                event = _field_event(field, node, time)
                found.append((events.READINGS, event))
    if not found:
        raise UnreadablePayload("the sensor data has no fields")
    return found


def _refuse_text(element: Element) -> None:
    """Refuse text in sensor data, except in elements of other namespaces."""
    if has_text(element):
        raise UnreadablePayload(f"text in <{_local(element)}/>, which may have elements only")
    for child in element:
        if _is_of_payload(child, element):
            _refuse_text(child)


def _refuse_unknown(child: Element, parent: Element) -> None:
    """Refuse an element that the specification does not define, except of another namespace."""
    if _is_of_payload(child, parent):
        text = f"<{_local(child)[:SHOWN]}/> is not an element of <{_local(parent)}/>"
        raise UnreadablePayload(text)


def _is_of_payload(child: Element, parent: Element) -> bool:
    return child.tag.rpartition("}")[0] == parent.tag.rpartition("}")[0]


def _local(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _field_event(field: Element, node: Element, timestamp: str | None) -> NewEvent:
    kind = _FIELDS.get(field.tag)
    if kind is None:
        raise UnreadablePayload(f"{_local(field)[:SHOWN]!r} is not a field of XEP-0323")
    attributes = field.attrib.copy()
    name, value = attributes.pop("name", ""), attributes.pop("value", None)
    unit = attributes.pop("unit", None)
    if not name or value is None:
        raise UnreadablePayload("a field has no name or no value")
    if len(field):
        raise UnreadablePayload(f"field {name!r} has content; its value is an attribute")
    tags = _tags(name, attributes, node, timestamp)
    if kind in _NUMBER_FIELDS:
        number = _number(kind, name, value)
        return NewEvent("reading", name=name, value=number, unit=unit, tags=tags)
    return NewEvent("reading", name=name, text=value, unit=unit, tags=tags)


def _tags(
    name: str, attributes: dict[str, str], node: Element, timestamp: str | None
) -> dict[str, str]:
    """Return the tags of a field: what its node and its other attributes say, and its quality
    flags."""
    tags = {}
    for key, text in node.attrib.items():
        if text and key[0] != "{":
            tags["node" if key == "nodeId" else key] = text
    if timestamp is not None:
        tags["timestamp"] = timestamp
    flags = ""
    for key, text in attributes.items():
        if key in _TEXT_ATTRIBUTES:
            tags[key] = text
        elif (flag := _BOOLEANS.get(text)) is not None:
            if flag:
                flags = f"{flags} {key}" if flags else key
        elif key[0] != "{":
            where = f"{key[:SHOWN]} of field {name!r}"
            raise UnreadablePayload(f"{where} is {text[:SHOWN]!r}, not a boolean")
    if flags:
        tags["flags"] = flags
    return tags


def _number(kind: str, name: str, value: str) -> float:
    number: float | None = None
    if kind == "boolean":
        number = _BOOLEANS.get(value)
    elif (_NUMERIC if kind == "numeric" else _INTEGER).fullmatch(value):
        number = float(value)
    if number is None or not math.isfinite(number):
        raise UnreadablePayload(f"field {name!r} is not a valid {kind}: {value!r}")
    return number


# JSON containers


def decode_json(container: Element) -> list[tuple[str, NewEvent]]:
    """Decode `<json/>` into one event per reading; raise `UnreadablePayload` if it is invalid."""
    if len(container):
        raise UnreadablePayload("invalid JSON container: it has child elements")
    try:
        return decoders.json_events(container.text or "")
    except InvalidJson as error:
        raise UnreadablePayload(f"invalid JSON container: {error}") from None


# Log events

_LEVELS: Final = frozenset(LEVELS)

_MESSAGE: Final = clark(EVENTLOG, "message")
_STACK_TRACE: Final = clark(EVENTLOG, "stackTrace")
_TAG: Final = clark(EVENTLOG, "tag")

_PLAIN_TEXT: Final = "xs:string"

_EVENT_ATTRIBUTES: Final = frozenset({"id", "type"})
"""Attributes of a log event that an event has columns for; all others become tags."""


def decode_log(log: Element) -> list[tuple[str, NewEvent]]:
    """Return the lane and event of a `<log/>`; raise `UnreadablePayload` if it is invalid."""
    attributes = log.attrib
    type_ = attributes.get("type", INFORMATIONAL)
    if type_ not in _LEVELS:
        raise UnreadablePayload(_unknown("type", type_, LEVELS))
    extent, timestamp = attributes.get("level"), attributes.get("timestamp")
    if extent is not None and extent not in EXTENTS:
        raise UnreadablePayload(_unknown("level", extent, EXTENTS))
    if timestamp is not None and (fault := device_times.find_fault(timestamp)):
        raise UnreadablePayload(fault)
    if has_text(log):
        raise UnreadablePayload("text in <log/>; the text of a log event is in <message/>")
    tags = {
        key: value
        for key, value in attributes.items()
        if value and key not in _EVENT_ATTRIBUTES and key[0] != "{"
    }
    text = _add_children(log, tags)
    event = NewEvent("log", name=attributes.get("id"), level=type_, text=text, tags=tags)
    return [(events.LOGS, event)]


def _unknown(name: str, value: str, allowed: Sequence[str]) -> str:
    return f"log {name} {value[:SHOWN]!r} is not one of XEP-0337: {', '.join(allowed)}"


def _add_children(log: Element, tags: dict[str, str]) -> str | None:
    """Add the tags and the stack trace of a log event to `tags`; return its text, if any."""
    text: str | None = None
    occurrences = dict.fromkeys(tags, 1)
    stack = ""
    seen = set()
    for child in log:
        tag = child.tag
        if tag == _TAG:
            _add_tag(child, tags, occurrences)
        elif tag not in (_MESSAGE, _STACK_TRACE):
            _refuse_unknown(child, log)
        elif tag in seen or len(child):
            name = _local(child)
            raise UnreadablePayload(f"<log/> has more than one <{name}/>, or elements in it")
        else:
            seen.add(tag)
            if tag == _MESSAGE:
                text = child.text or None
            else:
                stack = child.text or ""
    if stack:
        if attribute := tags.get("stackTrace"):
            tags["stackTrace#2"] = attribute
        tags["stackTrace"] = stack
    return text


def _add_tag(tag: Element, tags: dict[str, str], occurrences: dict[str, int]) -> None:
    name, type_ = tag.get("name"), tag.get("type", _PLAIN_TEXT)
    if name is None:
        raise UnreadablePayload("a <tag/> has no name")
    if len(tag) or (tag.text and not tag.text.isspace()):
        raise UnreadablePayload(f"tag {name!r} has content; its value is an attribute")
    number = occurrences[name] = occurrences.get(name, 0) + 1
    key = name if number == 1 else f"{name}#{number}"
    tags[key] = tag.get("value", "")
    if type_ != _PLAIN_TEXT:
        tags[f"{key}:type"] = type_


def register(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    xmpp = hooks.of(XmppHooks)
    xmpp.add(xmpp.event_payloads, clark(SENSOR_DATA, "fields"), decode_sensor_data)
    xmpp.add(xmpp.event_payloads, clark(JSON, "json"), decode_json)
    xmpp.add(xmpp.event_payloads, clark(EVENTLOG, "log"), decode_log)
    xmpp.advertise(SENSOR_DATA, JSON, EVENTLOG)
