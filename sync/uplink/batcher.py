"""Decide when the events of a lane are sealed: by number, size, age or urgency. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from sync.segment.limits import MAX_EVENTS
from sync.uplink.interfaces import LaneState

_MAX_BYTES = 4 * 1024 * 1024  # bytes: a quarter of the largest file, for incompressible events


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The limits at which a segment is sealed."""

    events: int = 2_000
    """Maximum number of events in a segment. More would save little: an event takes 7.3 bytes in a
    segment of 2,000 events, and 8.4 bytes in one of 500."""

    seconds: float = 300.0
    """Longest time in seconds from the writing of an event to its sealing."""

    bytes: int = 1024 * 1024
    """Maximum bytes of a segment's events, uncompressed, to limit its upload time and memory."""

    urgent: float = 10.0
    """Longest time in seconds from the writing of an urgent event to its sealing, if no segment
    waits to be sent. Also the shortest time between two segments of a lane that are sealed because
    of urgent events."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for a limit outside its range."""
        if not 1 <= self.events <= MAX_EVENTS:
            raise ValueError(f"events must be from 1 to {MAX_EVENTS}")
        if not 0 < self.seconds <= 86_400:
            raise ValueError("seconds must be above 0 and at most 86400")
        if not 1 <= self.bytes <= _MAX_BYTES:
            raise ValueError(f"bytes must be from 1 to {_MAX_BYTES}")
        if not 0 < self.urgent <= 86_400:
            raise ValueError("urgent must be above 0 and at most 86400")


def seal_time(
    state: LaneState, limits: BatchLimits, now: float, *, idle: bool = False
) -> float | None:
    """Return the service second at which to seal or re-check a lane; None if all events are sealed.

    Urgent events are sealed early only if the link is `idle`: no other segment waits to be sent.
    """
    if state.oldest is None:
        return None
    if state.events >= limits.events or state.bytes >= limits.bytes:
        return now
    due = state.oldest + limits.seconds
    if state.urgent is not None:
        soon = state.urgent + limits.urgent
        due = min(due, soon if idle or soon > now else now + limits.urgent)
    return due
