"""Decode payloads into events by their content types, whatever the protocol that brought them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from edge import content_types
from edge.config.options import Readings
from edge.engine.dispatch.hooks import Contents, unreadable
from edge.engine.store import events
from edge.engine.store.events import NewEvent
from edge.features.eventlog.rules import json_readings, reading_rules
from edge.features.eventlog.rules.json_readings import Reading
from edge.features.eventlog.rules.reading_rules import ReadingRule
from edge.features.eventlog.rules.strict_json import InvalidJson


def decode(payload: bytes, content_type: str) -> Contents:
    """Return the events in a payload that is no XML, or why it cannot be decoded; nothing if there
    are no events in payloads of its content type."""
    if content_types.media_type(content_type) != content_types.JSON:
        return Contents([])
    return _decode(payload, json_readings.parse)


def decode_by_rule(options: Readings, topic: str, payload: bytes) -> Contents:
    """Return the events that a rule selects in a payload of any content type which was published to
    `topic`, or why it cannot be decoded."""
    rule = ReadingRule(options.fields, options.name, options.unit, options.time)
    return _decode(payload, lambda text: reading_rules.read(rule, topic, text))


def _decode(payload: bytes, read: Callable[[str], list[Reading]]) -> Contents:
    try:
        return Contents(_events(read(payload.decode())))
    except UnicodeDecodeError:
        return unreadable("invalid JSON: it is not UTF-8")
    except InvalidJson as error:
        return unreadable(f"invalid JSON: {error}")


def json_events(text: str) -> list[tuple[str, NewEvent]]:
    """Return one event per reading in a JSON text, with its lane; raises `InvalidJson`."""
    return _events(json_readings.parse(text))


def _events(readings: Iterable[Reading]) -> list[tuple[str, NewEvent]]:
    return [
        (
            events.READINGS,
            NewEvent("reading", name=name, value=value, unit=unit, text=text, tags=tags),
        )
        for name, value, unit, text, tags in readings
    ]
