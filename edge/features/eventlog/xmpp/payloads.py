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
from collections.abc import Container, Mapping, Sequence
from typing import Final
from xml.etree.ElementTree import Element

from edge.engine import events
from edge.engine.events import NewEvent
from edge.engine.hooks import Hooks, UnreadablePayload
from edge.features.eventlog.rules import device_times, json_readings
from edge.features.eventlog.rules.device_times import SHOWN
from edge.features.eventlog.rules.levels import EXTENTS, INFORMATIONAL, LEVELS
from edge.features.eventlog.rules.strict_json import InvalidJson
from edge.xmpp.namespaces import EVENTLOG, JSON, SENSOR_DATA, clark
from edge.xmpp.stanza import has_text

# Sensor data

_NUMBER_FIELDS: Final = frozenset({"numeric", "int", "long", "boolean"})
TEXT_FIELDS: Final = frozenset(
    {"string", "date", "dateTime", "duration", "timeSpan", "time", "enum"}
)
_FIELDS: Final = _NUMBER_FIELDS | TEXT_FIELDS

_NODE: Final = clark(SENSOR_DATA, "node")
_TIMESTAMP: Final = clark(SENSOR_DATA, "timestamp")

_NUMERIC: Final = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")
_INTEGER: Final = re.compile(r"\s*[+-]?[0-9]+\s*")

_BOOLEANS: Final = {"true": 1.0, "1": 1.0, "false": 0.0, "0": 0.0}
_EVENT_ATTRIBUTES: Final = frozenset({"name", "value", "unit"})
"""Attributes of a field that an event has columns for."""

_TEXT_ATTRIBUTES: Final = frozenset({"dataType", "module", "stringIds"})
"""Attributes of a field that become tags; all others are quality flags."""


def decode_sensor_data(fields: Element) -> list[tuple[str, NewEvent]]:
    """Decode `<fields/>` into one event per field; raise `UnreadablePayload` if one is invalid."""
    found = [
        (events.READINGS, _field_event(field, node, _time(timestamp)))
        for node in _children(fields, _NODE)
        for timestamp in _children(node, _TIMESTAMP)
        for field in _children(timestamp)
    ]
    if not found:
        raise UnreadablePayload("the sensor data has no fields")
    return found


def _children(parent: Element, tag: str | None = None) -> Element | list[Element]:
    """Return the children of an element that have a tag, or all.

    Raises:
        UnreadablePayload: the element has text, or another child in the namespace of the payload.
    """
    if has_text(parent):
        raise UnreadablePayload(f"text in <{_local(parent)}/>, which may have elements only")
    if tag is None:
        return parent
    found = [child for child in parent if child.tag == tag]
    if len(found) < len(parent):
        _refuse_unknown(parent, (tag,))
    return found


def _refuse_unknown(parent: Element, known: Container[str]) -> None:
    namespace = parent.tag.rpartition("}")[0]
    for child in parent:
        if child.tag not in known and child.tag.rpartition("}")[0] == namespace:
            text = f"<{_local(child)[:SHOWN]}/> is not an element of <{_local(parent)}/>"
            raise UnreadablePayload(text)


def _local(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _time(timestamp: Element) -> str | None:
    value = timestamp.get("value")
    if value is not None and (fault := device_times.find_fault(value)):
        raise UnreadablePayload(fault)
    return value


def _field_event(field: Element, node: Element, timestamp: str | None) -> NewEvent:
    namespace, _, kind = field.tag.rpartition("}")
    attributes = field.attrib
    name, value = attributes.get("name"), attributes.get("value")
    if namespace[1:] != SENSOR_DATA or kind not in _FIELDS:
        raise UnreadablePayload(f"{kind[:SHOWN]!r} is not a field of XEP-0323")
    if not name or value is None:
        raise UnreadablePayload("a field has no name or no value")
    if len(field) or has_text(field):
        raise UnreadablePayload(f"field {name!r} has content; its value is an attribute")
    tags = _node_tags(node)
    if timestamp is not None:
        tags["timestamp"] = timestamp
    _add_attributes(name, attributes, tags)
    unit = attributes.get("unit")
    if kind in _NUMBER_FIELDS:
        number = _number(kind, name, value)
        return NewEvent("reading", name=name, value=number, unit=unit, tags=tags)
    return NewEvent("reading", name=name, text=value, unit=unit, tags=tags)


def _add_attributes(name: str, attributes: Mapping[str, str], tags: dict[str, str]) -> None:
    """Add the quality flags of a field, and other attributes without a column, to its tags."""
    flags = []
    for key, text in attributes.items():
        if key in _EVENT_ATTRIBUTES or key.startswith("{"):
            continue
        if key in _TEXT_ATTRIBUTES:
            tags[key] = text
        elif (flag := _BOOLEANS.get(text)) is None:
            raise UnreadablePayload(f"{key} of field {name!r} is {text[:SHOWN]!r}, not a boolean")
        elif flag:
            flags.append(key)
    if flags:
        tags["flags"] = " ".join(flags)


def _node_tags(node: Element) -> dict[str, str]:
    tags = {}
    for key, text in node.attrib.items():
        if text and not key.startswith("{"):
            tags["node" if key == "nodeId" else key] = text
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
        found = json_readings.parse(container.text or "")
    except InvalidJson as error:
        raise UnreadablePayload(f"invalid JSON container: {error}") from None
    return [
        (
            events.READINGS,
            NewEvent("reading", name=name, value=value, unit=unit, text=text, tags=tags),
        )
        for name, value, unit, text, tags in found
    ]


# Log events

_LEVELS: Final = frozenset(LEVELS)

_MESSAGE: Final = clark(EVENTLOG, "message")
_STACK_TRACE: Final = clark(EVENTLOG, "stackTrace")
_TAG: Final = clark(EVENTLOG, "tag")

_PLAIN_TEXT: Final = "xs:string"

_CHILDREN: Final = frozenset({_MESSAGE, _STACK_TRACE, _TAG})

_EVENT_LOG_ATTRIBUTES: Final = frozenset({"id", "type"})
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
    _refuse_unknown(log, _CHILDREN)
    tags = {
        key: value
        for key, value in attributes.items()
        if value and key not in _EVENT_LOG_ATTRIBUTES and not key.startswith("{")
    }
    stack = _text(log, _STACK_TRACE)
    if stack:
        if trace := tags.get("stackTrace"):
            tags["stackTrace#2"] = trace
        tags["stackTrace"] = stack
    _add_tags(log, tags)
    text = _text(log, _MESSAGE)
    event = NewEvent("log", name=attributes.get("id"), level=type_, text=text, tags=tags)
    return [(events.LOGS, event)]


def _unknown(name: str, value: str, allowed: Sequence[str]) -> str:
    return f"log {name} {value[:SHOWN]!r} is not one of XEP-0337: {', '.join(allowed)}"


def _text(log: Element, tag: str) -> str | None:
    """Return the text of the child with a tag, or `None` if it is missing or empty."""
    found = log.findall(tag)
    if not found:
        return None
    if len(found) > 1 or len(found[0]):
        text = f"<log/> has more than one <{_local(found[0])}/>, or elements in it"
        raise UnreadablePayload(text)
    return found[0].text or None


def _add_tags(log: Element, tags: dict[str, str]) -> None:
    """Add the tags of a log event to those that its attributes have become."""
    occurrences = dict.fromkeys(tags, 1)
    for tag in log.findall(_TAG):
        name, type_ = tag.get("name"), tag.get("type", _PLAIN_TEXT)
        if name is None:
            raise UnreadablePayload("a <tag/> has no name")
        if len(tag) or has_text(tag):
            raise UnreadablePayload(f"tag {name!r} has content; its value is an attribute")
        number = occurrences[name] = occurrences.get(name, 0) + 1
        key = name if number == 1 else f"{name}#{number}"
        tags[key] = tag.get("value", "")
        if type_ != _PLAIN_TEXT:
            tags[f"{key}:type"] = type_


def register(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    hooks.add(hooks.event_payloads, clark(SENSOR_DATA, "fields"), decode_sensor_data)
    hooks.add(hooks.event_payloads, clark(JSON, "json"), decode_json)
    hooks.add(hooks.event_payloads, clark(EVENTLOG, "log"), decode_log)
    hooks.advertise(SENSOR_DATA, JSON, EVENTLOG)
