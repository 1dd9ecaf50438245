"""Log events of devices (XEP-0337): a `<log/>` becomes an event in the lane of logs.

All that it says is kept: what has no field of its own is a tag, under its own name. A tag of a name
that is there before has `#2` behind its name, the next one `#3`. The type of a tag, where it is
not that of plain text, is the tag `NAME:type`.
"""

from __future__ import annotations

from collections import Counter
from typing import Final
from xml.etree.ElementTree import Element

from edge.engine import events
from edge.engine.events import NewEvent
from edge.engine.hooks import Hooks, UnreadablePayload
from edge.features.eventlog.rules.levels import LEVELS
from edge.xmpp.namespaces import EVENTLOG, clark

TYPES: Final = frozenset(LEVELS)

TEXT: Final = "xs:string"
"""The type of a tag that names none."""

_PLAIN: Final = ("timestamp", "level", "object", "subject", "facility", "module", "stackTrace")
"""Attributes that become tags under their own name, whatever `<tag/>` has that name."""


def decode(log: Element) -> list[tuple[str, NewEvent]]:
    """Turn a `<log/>` into one event; raises `Unreadable` for a type not of XEP-0337."""
    type_ = log.get("type", "Informational")
    if type_ not in TYPES:
        raise UnreadablePayload(f"log type {type_!r} is not one of XEP-0337")
    tags = _tags(log)
    tags |= {name: value for name in _PLAIN if (value := log.get(name))}
    if stack := log.findtext(clark(EVENTLOG, "stackTrace")):
        tags["stackTrace"] = stack
    text = log.findtext(clark(EVENTLOG, "message"))
    event = NewEvent("log", name=log.get("id"), level=type_, text=text or None, tags=tags)
    return [(events.LOGS, event)]


def _tags(log: Element) -> dict[str, str]:
    tags: dict[str, str] = {}
    times: Counter[str] = Counter()
    for tag in log.iterfind(clark(EVENTLOG, "tag")):
        name, type_ = tag.get("name"), tag.get("type", TEXT)
        if name is None:
            continue
        times[name] += 1
        key = name if times[name] == 1 else f"{name}#{times[name]}"
        tags[key] = tag.get("value", "")
        if type_ != TEXT:
            tags[f"{key}:type"] = type_
    return tags


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    hooks.event_payload(clark(EVENTLOG, "log"), decode)
    hooks.advertise(EVENTLOG)
