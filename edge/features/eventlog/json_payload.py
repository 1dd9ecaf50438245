"""JSON containers (XEP-0335): the readings in a `<json/>` become events in their lane.

What JSON has to be to hold readings is `rules.json_readings`'. A container stands for itself here:
as the payload of a message or of an item, with nothing around it that would say more.
"""

from __future__ import annotations

from xml.etree.ElementTree import Element

from edge.engine import events
from edge.engine.events import NewEvent
from edge.engine.hooks import Hooks, UnreadablePayload
from edge.features.eventlog.rules import json_readings
from edge.features.eventlog.rules.strict_json import InvalidJson
from edge.xmpp.namespaces import JSON, clark


def decode(container: Element) -> list[tuple[str, NewEvent]]:
    """Turn a `<json/>` into one event a reading; raises `Unreadable` where it holds anything
    else."""
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


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    hooks.event_payload(clark(JSON, "json"), decode)
    hooks.advertise(JSON)
