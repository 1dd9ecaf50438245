"""Encode notifications of events as messages with a `<log/>` (XEP-0337)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edge.engine.dispatch.hooks import Context, Hooks
from edge.engine.store.events import NewEvent
from edge.features.eventlog.messages import EventNotification
from edge.features.eventlog.rules.levels import INFORMATIONAL
from edge.xmpp import PROTOCOL, serialize
from edge.xmpp.namespaces import EVENTLOG

_FACILITY: Final = "fieldpost"
"""The facility of log events: the type of program that sends them (XEP-0337, section 5.6)."""

_EXTENTS: Final = {
    "Debug": "Minor",
    "Informational": "Minor",
    "Notice": "Minor",
    "Warning": "Medium",
    "Error": "Major",
    "Critical": "Major",
    "Alert": "Major",
    "Emergency": "Major",
}
"""The extent (XEP-0337, attribute `level`) of each level of events."""

_CAUSED_BY_SOURCE: Final = frozenset({"limit", "message"})
"""Kinds of events that are caused by the event's source rather than by the gateway."""

_MAX_LONG_DIGITS: Final = 18
"""Number of digits that an `xs:long` can always hold."""


def _encode(context: Context, notification: EventNotification) -> bytes:
    to, id, event, time = notification
    attrs = {"to": to, "from": context.domain, "id": id, "type": "normal", "xml:lang": "en"}
    return serialize.tag("message", attrs, _content(context, event, time))


def _content(context: Context, event: NewEvent, wall: int) -> bytes:
    """Return the `<log/>`, and a body for clients that show messages only."""
    source = event.source or context.domain
    target = (event.tags or {}).get("destination", "") if event.kind == "message" else ""
    level = event.level or INFORMATIONAL
    attrs = {
        "timestamp": serialize.timestamp(wall),
        "id": event.name,
        "type": level,
        "level": _EXTENTS[level],
        "object": target or event.topic or source,
        "subject": source if event.kind in _CAUSED_BY_SOURCE else context.domain,
        "facility": _FACILITY,
        "module": event.kind,
    }
    text = serialize.escape(_summary(event, source, target))
    tags = b"".join(
        serialize.tag("tag", {"name": name, "value": value, "type": type_})
        for name, value, type_ in _tags(event)
    )
    content = serialize.tag("message", content=text) + tags
    log = serialize.tag("log", attrs, content, xmlns=EVENTLOG)
    return serialize.tag("body", content=text) + log


def _summary(event: NewEvent, source: str, target: str) -> str:
    summary, item = f"{event.name} at {source}", (event.tags or {}).get("item")
    if event.kind == "limit":
        summary = f"{event.name} refused {event.value or 1:.0f} from {source}"
    elif event.kind == "message" and event.topic is None:
        summary = f"{event.name}: a message from {source}" + (f" to {target}" if target else "")
    elif event.topic is not None:  # an event of a node, perhaps of an item
        summary = f"{event.name} of {item}" if item else f"{event.name}"
        summary += f" at {event.topic}"
        summary += f", from {event.source}" if event.source else ""
    if event.kind != "limit" and event.value is not None:
        summary += f": {event.value:g} {event.unit or ''}".rstrip()
    return f"{summary} ({event.text})" if event.text else summary


def _tags(event: NewEvent) -> Iterator[tuple[str, str, str]]:
    """Yield the details of an event: names, values and their types (XEP-0337, section 5.10)."""
    if event.value is not None and event.kind == "limit":
        yield "count", f"{event.value:.0f}", "xs:long"
    elif event.value is not None:
        yield "value", repr(event.value), "xs:double"
    if event.unit:
        yield "unit", event.unit, "xs:string"
    if event.qos is not None:
        yield "qos", str(event.qos), "xs:int"
    for name, value in (event.tags or {}).items():
        is_long = value.isascii() and value.isdigit() and len(value) <= _MAX_LONG_DIGITS
        yield name, value, "xs:long" if is_long else "xs:string"


def register(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    hooks.encode(PROTOCOL, EventNotification, _encode)
