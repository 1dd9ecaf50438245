"""A gateway's simulated wall clock, with offset, drift, steps and lost synchronisation.

A moment is a true time, in seconds since the simulation began.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """A clock that is `skew` seconds ahead at first, and gains `drift` seconds per second.

    `start` is milliseconds since 1970 UTC. `steps` are pairs of a moment and the seconds by which
    the clock is set forward. `lost` are the periods (begin, end) in which it is not synchronised.
    """

    start: int
    skew: float = 0.0
    drift: float = 0.0
    steps: tuple[tuple[float, float], ...] = ()
    lost: tuple[tuple[float, float], ...] = ()

    def wall(self, moment: float) -> int:
        """Return the clock's time at `moment`, in milliseconds since 1970 UTC."""
        ahead = self.skew + self.drift * moment
        for at, seconds in self.steps:
            if at <= moment:
                ahead += seconds
        return self.start + round((moment + ahead) * 1000)

    def synchronised(self, moment: float) -> bool:
        """Return whether the clock is synchronised at `moment`."""
        return not any(begin <= moment < end for begin, end in self.lost)
