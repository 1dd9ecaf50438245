"""The settings of a simulated fleet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from firmware_sim.fleet.faults import FAULTS

DAY_S: Final = 86_400.0
"""Seconds of a day."""

MAX_GATEWAYS: Final = 999
"""Gateways at most: their names have three digits."""

MAX_DAYS: Final = 366
"""Days at most: a year is more than any report looks at."""


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """A fleet of `gateways` over `days`, from `start` (ms since 1970 UTC), made from `seed`.

    `readings` is how many values a gateway's sensors send in a day; `heartbeat` and `seal` are in
    seconds. `faults` are names of `FAULTS`.
    """

    gateways: int
    days: int
    seed: int
    start: int
    readings: int = 4_000
    heartbeat: float = 60.0
    seal: float = 300.0
    faults: frozenset[str] = field(default=frozenset(FAULTS))

    @property
    def length(self) -> float:
        """Duration of the simulated time, in seconds."""
        return self.days * DAY_S

    @property
    def end(self) -> int:
        """The end of the simulation, in ms since 1970 UTC."""
        return self.start + round(self.length * 1000)
