"""JSON containers (XEP-0335): the readings in a `<json/>` become events in their lane.

What JSON has to be to hold readings is `rules.json_readings`'. A container stands for itself here:
as the payload of a message or of an item, with nothing around it that would say more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge.handlers.feature import Feature, Unreadable
from edge.rules import json_readings
from edge.rules.strict_json import BadJson
from edge.store import events
from edge.store.events import NewEvent
from edge.wire.namespaces import JSON, clark

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


def decode(container: Element) -> list[tuple[str, NewEvent]]:
    """Turn a `<json/>` into one event a reading; raises `Unreadable` where it holds anything
    else."""
    if len(container):
        raise Unreadable("a JSON container has elements, and no text alone")
    try:
        found = json_readings.read(container.text or "")
    except BadJson as error:
        raise Unreadable(f"a JSON container is not taken: {error}") from None
    return [
        (
            events.READINGS,
            NewEvent("reading", name=name, value=value, unit=unit, text=text, tags=tags),
        )
        for name, value, unit, text, tags in found
    ]


FEATURE = Feature(contents={clark(JSON, "json"): decode}, advertises=(JSON,))
