"""Types for events without sequence numbers, and for the streams of events of a lane."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sync.segment import NO_TAGS


class EventRow(NamedTuple):
    """The fields of `sync.segment.Event` without `seq`, in the same order."""

    time: int
    clock: bool
    kind: str
    source: str | None = None
    topic: str | None = None
    name: str | None = None
    value: float | None = None
    unit: str | None = None
    level: str | None = None
    text: str | None = None
    qos: int | None = None
    latency_ms: int | None = None
    tags: Mapping[str, str] = NO_TAGS


Timed = tuple[float, EventRow]
"""A true moment, in seconds since the simulation began, and the event at this moment."""

Stream = Iterator[Timed]
"""Events with their true moments, earliest first."""
