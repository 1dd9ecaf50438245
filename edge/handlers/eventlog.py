"""Log events of devices (XEP-0337): a `<log/>` becomes an event in the lane of logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from edge.handlers.feature import Feature, Unreadable
from edge.store import events
from edge.store.events import NewEvent
from edge.wire.namespaces import EVENTLOG, clark

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

TYPES: Final = frozenset(
    {
        "Debug",
        "Informational",
        "Notice",
        "Warning",
        "Error",
        "Critical",
        "Alert",
        "Emergency",
    }
)

_PLAIN: Final = ("timestamp", "level", "object", "subject", "facility", "module")
"""Attributes that become tags under their own name, whatever `<tag/>` has that name."""


def decode(log: Element) -> list[tuple[str, NewEvent]]:
    """Turn a `<log/>` into one event; raises `Unreadable` for a type not of XEP-0337."""
    type_ = log.get("type", "Informational")
    if type_ not in TYPES:
        raise Unreadable(f"log type {type_!r} is not one of XEP-0337")
    tags = {
        name: tag.get("value", "")
        for tag in log.iterfind(clark(EVENTLOG, "tag"))
        if (name := tag.get("name")) is not None
    }
    tags |= {name: value for name in _PLAIN if (value := log.get(name))}
    if stack := log.findtext(clark(EVENTLOG, "stackTrace")):
        tags["stackTrace"] = stack
    text = log.findtext(clark(EVENTLOG, "message"))
    event = NewEvent("log", name=log.get("id"), level=type_, text=text or None, tags=tags)
    return [(events.LOGS, event)]


FEATURE = Feature(contents={clark(EVENTLOG, "log"): decode}, advertises=(EVENTLOG,))
