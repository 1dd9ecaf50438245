"""Readings of sensors (XEP-0323): each field of a `<fields/>` becomes an event in their lane."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final
from xml.etree.ElementTree import Element

from edge.engine import events
from edge.engine.events import NewEvent
from edge.engine.hooks import Hooks, UnreadablePayload
from edge.xmpp.namespaces import SENSOR_DATA, clark

NUMBERS: Final = frozenset({"numeric", "int", "long", "boolean"})
TEXTS: Final = frozenset({"string", "date", "dateTime", "duration", "timeSpan", "time", "enum"})

KINDS: Final = NUMBERS | TEXTS

_NODE: Final = clark(SENSOR_DATA, "node")
_TIMESTAMP: Final = clark(SENSOR_DATA, "timestamp")

_NUMERIC: Final = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")
_INTEGER: Final = re.compile(r"\s*[+-]?[0-9]+\s*")
"""As XML Schema writes them: `float` would take more, and `nan` and `inf` too."""

_TRUTH: Final = {"true": 1.0, "1": 1.0, "false": 0.0, "0": 0.0}
_NOT_FLAGS: Final = frozenset(
    {"name", "value", "unit", "dataType", "module", "stringIds", "writable"}
)
"""Attributes of a field that say something else than its quality of service."""


def decode(fields: Element) -> list[tuple[str, NewEvent]]:
    """Turn a `<fields/>` into one event a field; raises `Unreadable` for a value that is none."""
    found = [
        (events.READINGS, _event(field, node.get("nodeId"), timestamp.get("value")))
        for node in fields
        if node.tag == _NODE
        for timestamp in node
        if timestamp.tag == _TIMESTAMP
        for field in timestamp
    ]
    if not found:
        raise UnreadablePayload("it holds no field of sensor data")
    return found


def _event(field: Element, node: str | None, timestamp: str | None) -> NewEvent:
    namespace, _, kind = field.tag.rpartition("}")
    name, value = field.get("name"), field.get("value")
    if namespace[1:] != SENSOR_DATA or kind not in KINDS:
        raise UnreadablePayload(f"{kind!r} is not a field of XEP-0323")
    if not name or value is None:
        raise UnreadablePayload("a field has no name or no value")
    tags = {key: text for key, text in (("node", node), ("timestamp", timestamp)) if text}
    if flags := " ".join(_flags(field)):
        tags["flags"] = flags
    if kind in NUMBERS:
        number, unit = _number(kind, name, value), field.get("unit")
        return NewEvent("reading", name=name, value=number, unit=unit, tags=tags)
    return NewEvent("reading", name=name, text=value, tags=tags)


def _number(kind: str, name: str, value: str) -> float:
    number: float | None = None
    if kind == "boolean":
        number = _TRUTH.get(value)
    elif (_NUMERIC if kind == "numeric" else _INTEGER).fullmatch(value):
        number = float(value)
    if number is None or not math.isfinite(number):
        raise UnreadablePayload(f"a field holds no {kind}: {name!r} is {value!r}")
    return number


def _flags(field: Element) -> Iterator[str]:
    return (
        name for name, value in field.attrib.items() if name not in _NOT_FLAGS and _TRUTH.get(value)
    )


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    hooks.event_payload(clark(SENSOR_DATA, "fields"), decode)
    hooks.advertise(SENSOR_DATA)
