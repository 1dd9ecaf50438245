"""Decode payloads into events: sensor data (XEP-0323), JSON (XEP-0335) and log events (XEP-0337).

Each field of `<fields/>` and each reading of `<json/>` is an event in the lane of readings; each
`<log/>` is an event in the lane of logs. All details of a log event are kept: a detail for which
`NewEvent` has no field becomes a tag. If several tags have the same name, the second gets the
suffix `#2`, the third `#3`. The type of a tag that is not plain text is kept in the tag
`NAME:type`.
"""

from __future__ import annotations

import math
import re
from typing import Final
from xml.etree.ElementTree import Element

from edge.engine import events
from edge.engine.events import NewEvent
from edge.engine.hooks import Hooks, UnreadablePayload
from edge.features.eventlog.rules import json_readings
from edge.features.eventlog.rules.levels import INFORMATIONAL, LEVELS
from edge.features.eventlog.rules.strict_json import InvalidJson
from edge.xmpp.namespaces import EVENTLOG, JSON, SENSOR_DATA, clark

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
_NOT_FLAGS: Final = frozenset(
    {"name", "value", "unit", "dataType", "module", "stringIds", "writable"}
)
"""Attributes of a field that are not quality flags."""


def decode_sensor_data(fields: Element) -> list[tuple[str, NewEvent]]:
    """Decode `<fields/>` into one event per field; raise `UnreadablePayload` if one is invalid."""
    found = [
        (events.READINGS, _field_event(field, node.get("nodeId"), timestamp.get("value")))
        for node in fields
        if node.tag == _NODE
        for timestamp in node
        if timestamp.tag == _TIMESTAMP
        for field in timestamp
    ]
    if not found:
        raise UnreadablePayload("the sensor data has no fields")
    return found


def _field_event(field: Element, node: str | None, timestamp: str | None) -> NewEvent:
    namespace, _, kind = field.tag.rpartition("}")
    name, value = field.get("name"), field.get("value")
    if namespace[1:] != SENSOR_DATA or kind not in _FIELDS:
        raise UnreadablePayload(f"{kind!r} is not a field of XEP-0323")
    if not name or value is None:
        raise UnreadablePayload("a field has no name or no value")
    tags = {key: text for key, text in (("node", node), ("timestamp", timestamp)) if text}
    flags = [
        flag
        for flag, text in field.attrib.items()
        if flag not in _NOT_FLAGS and _BOOLEANS.get(text)
    ]
    if flags:
        tags["flags"] = " ".join(flags)
    if kind in _NUMBER_FIELDS:
        number, unit = _number(kind, name, value), field.get("unit")
        return NewEvent("reading", name=name, value=number, unit=unit, tags=tags)
    return NewEvent("reading", name=name, text=value, tags=tags)


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

_ATTRIBUTE_TAGS: Final = (
    "timestamp",
    "level",
    "object",
    "subject",
    "facility",
    "module",
    "stackTrace",
)
"""Attributes of a log event that become tags; they replace a `<tag/>` of the same name."""


def decode_log(log: Element) -> list[tuple[str, NewEvent]]:
    """Return the lane and event of a `<log/>`; an unknown type raises `UnreadablePayload`."""
    type_ = log.get("type", INFORMATIONAL)
    if type_ not in _LEVELS:
        raise UnreadablePayload(f"log type {type_!r} is not one of XEP-0337")
    tags = _log_tags(log)
    attributes = log.attrib
    for name in _ATTRIBUTE_TAGS:
        if name in attributes and (value := attributes[name]):
            tags[name] = value
    if stack := log.findtext(_STACK_TRACE):
        tags["stackTrace"] = stack
    text = log.findtext(_MESSAGE)
    event = NewEvent("log", name=log.get("id"), level=type_, text=text or None, tags=tags)
    return [(events.LOGS, event)]


def _log_tags(log: Element) -> dict[str, str]:
    tags: dict[str, str] = {}
    occurrences: dict[str, int] = {}
    for tag in log.findall(_TAG):
        name, type_ = tag.get("name"), tag.get("type", _PLAIN_TEXT)
        if name is None:
            continue
        number = occurrences[name] = occurrences.get(name, 0) + 1
        key = name if number == 1 else f"{name}#{number}"
        tags[key] = tag.get("value", "")
        if type_ != _PLAIN_TEXT:
            tags[f"{key}:type"] = type_
    return tags


def register(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    hooks.add(hooks.event_payloads, clark(SENSOR_DATA, "fields"), decode_sensor_data)
    hooks.add(hooks.event_payloads, clark(JSON, "json"), decode_json)
    hooks.add(hooks.event_payloads, clark(EVENTLOG, "log"), decode_log)
    hooks.advertise(SENSOR_DATA, JSON, EVENTLOG)
