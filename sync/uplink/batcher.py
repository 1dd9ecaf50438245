"""Decide when the events of a lane are sealed: by number, size, age or urgency. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sync.segment.limits import MAX_EVENTS
from sync.uplink.interfaces import LaneState

_MAX_BYTES = 4 * 1024 * 1024  # bytes: a quarter of the largest file, for incompressible events


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The limits at which a segment is sealed."""

    events: int = 2_000
    """Events. More save little: 7.3 bytes per event, against 8.4 with 500 events."""

    seconds: float = 300.0
    """Longest wait of an event, in seconds: the delay of the centre's picture."""

    bytes: int = 1024 * 1024
    """Bytes before compression: what one upload may take of a slow link and of memory."""

    urgent: float = 10.0
    """Longest wait of an urgent event, in seconds, if nothing waits to be sent. Also the shortest
    time between two segments of a lane that are sealed because of urgent events."""

    def __post_init__(self) -> None:
        """Refuse limits with which nothing, or too much, would be sealed."""
        if not 1 <= self.events <= MAX_EVENTS:
            raise ValueError(f"events must be from 1 to {MAX_EVENTS}")
        if not 0 < self.seconds <= 86_400:
            raise ValueError("seconds must be above 0 and at most 86400")
        if not 1 <= self.bytes <= _MAX_BYTES:
            raise ValueError(f"bytes must be from 1 to {_MAX_BYTES}")
        if not 0 < self.urgent <= 86_400:
            raise ValueError("urgent must be above 0 and at most 86400")


class Seal(NamedTuple):
    """The decision to seal the lane now."""


class WaitUntil(NamedTuple):
    """The decision to check the lane again at a service second; None: when it has an event."""

    moment: float | None


def decide(
    state: LaneState, limits: BatchLimits, now: float, *, idle: bool = False
) -> Seal | WaitUntil:
    """Decide what to do with a lane at the service second `now`.

    Urgent events are sealed early only if the link is `idle`: no other segment waits to be sent.
    """
    if state.oldest is None:
        return WaitUntil(None)
    if state.events >= limits.events or state.bytes >= limits.bytes:
        return Seal()
    due = state.oldest + limits.seconds
    if state.urgent is not None:
        soon = state.urgent + limits.urgent
        due = min(due, soon if idle or soon > now else now + limits.urgent)
    return Seal() if due <= now else WaitUntil(due)
