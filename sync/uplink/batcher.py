"""When a lane's events become a segment: by their number, their size, their age or their urgency.

Pure: knows no clock, no store and no format. The sealer asks it with what these say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sync.segment.limits import MAX_EVENTS
from sync.uplink.interfaces import LaneState

_MAX_BYTES = 4 * 1024 * 1024  # bytes: a quarter of the largest file, for what does not compress


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """At which bounds a segment is sealed."""

    events: int = 2_000
    """Events: a larger segment is hardly smaller an event (7.3 bytes against 8.4 at 500)."""

    seconds: float = 300.0
    """Seconds that an event waits at most: how late the centre's picture may be."""

    bytes: int = 1024 * 1024
    """Bytes before compression: what one upload may take of a slow link and of memory."""

    urgent: float = 10.0
    """Seconds that an urgent event waits at most where the link is idle; and as what follows it
    waits as long, a lane is sealed no more often for that."""

    def __post_init__(self) -> None:
        """Refuse bounds under which nothing, or too much, would be sealed."""
        if not 1 <= self.events <= MAX_EVENTS:
            raise ValueError(f"events: 1 to {MAX_EVENTS}")
        if not 0 < self.seconds <= 86_400:
            raise ValueError("seconds: above 0, at most a day")
        if not 1 <= self.bytes <= _MAX_BYTES:
            raise ValueError(f"bytes: 1 to {_MAX_BYTES}")
        if not 0 < self.urgent <= 86_400:
            raise ValueError("urgent: seconds above 0, at most a day")


class Seal(NamedTuple):
    """The lane is to be sealed now."""


class WaitUntil(NamedTuple):
    """The lane is to be looked at again at this service second; None: when it has an event."""

    moment: float | None


def decide(
    state: LaneState, limits: BatchLimits, now: float, *, idle: bool = False
) -> Seal | WaitUntil:
    """Say what to do with a lane at the service second `now`.

    `idle`: nothing waits to be sent, so that a small segment takes the link from nobody.
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
