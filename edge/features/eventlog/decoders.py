"""Decode payloads into events by their content types, whatever the protocol that brought them."""

from __future__ import annotations

from edge import content_types
from edge.engine.dispatch.hooks import Contents, unreadable
from edge.engine.store import events
from edge.engine.store.events import NewEvent
from edge.features.eventlog.rules import json_readings
from edge.features.eventlog.rules.strict_json import InvalidJson


def decode(payload: bytes, content_type: str) -> Contents:
    """Return the events in a payload that is no XML, or why it cannot be decoded; nothing if there
    are no events in payloads of its content type."""
    if content_types.media_type(content_type) != content_types.JSON:
        return Contents([])
    try:
        return Contents(json_events(payload.decode()))
    except UnicodeDecodeError:
        return unreadable("invalid JSON: it is not UTF-8")
    except InvalidJson as error:
        return unreadable(f"invalid JSON: {error}")


def json_events(text: str) -> list[tuple[str, NewEvent]]:
    """Return one event per reading in a JSON text, with its lane; raises `InvalidJson`."""
    return [
        (
            events.READINGS,
            NewEvent("reading", name=name, value=value, unit=unit, text=text, tags=tags),
        )
        for name, value, unit, text, tags in json_readings.parse(text)
    ]
