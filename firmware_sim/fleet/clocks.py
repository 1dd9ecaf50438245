"""A gateway's wall clock: what it shows at each true moment, and whether it is synchronised.

True moments are seconds since the simulation began.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """A clock that is `skew` seconds ahead, gains `drift` seconds in a second, and is set.

    `start` is ms since 1970 UTC. At each of `steps` (moment, seconds) it is set by that much.
    During `lost` (begin, end) it is not synchronised.
    """

    start: int
    skew: float = 0.0
    drift: float = 0.0
    steps: tuple[tuple[float, float], ...] = ()
    lost: tuple[tuple[float, float], ...] = ()

    def wall(self, moment: float) -> int:
        """Return what the clock shows, in ms since 1970 UTC."""
        ahead = self.skew + self.drift * moment
        for at, seconds in self.steps:
            if at <= moment:
                ahead += seconds
        return self.start + round((moment + ahead) * 1000)

    def synchronised(self, moment: float) -> bool:
        """Return whether the clock is synchronised."""
        return not any(begin <= moment < end for begin, end in self.lost)
