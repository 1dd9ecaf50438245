"""Time as the rules see it.

Deadlines count service seconds: the time that the gateway was running, saved regularly and
continued after a restart. A wall clock that jumps moves no deadline. Events are stamped with the
wall clock and with whether it was synchronised. Reading the clocks themselves is not done here.
"""

from __future__ import annotations

from typing import NamedTuple


class Now(NamedTuple):
    """One moment: `service` in seconds of service, `wall` in milliseconds since 1970 UTC."""

    service: float
    wall: int
    synchronised: bool


class ServiceClock:
    """Turns a monotonic clock (seconds) into service seconds, continuing what was saved."""

    __slots__ = ("_offset",)

    def __init__(self, saved: float, monotonic: float) -> None:
        self._offset = saved - monotonic

    def at(self, monotonic: float) -> float:
        """Service seconds at this reading of the monotonic clock."""
        return self._offset + monotonic
