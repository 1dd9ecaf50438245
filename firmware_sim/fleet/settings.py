"""The settings of a simulated fleet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from firmware_sim.fleet.faults import FAULTS

DAY_S: Final = 86_400.0
"""Seconds per day."""

MAX_GATEWAYS: Final = 99_999
"""Maximum number of gateways: their plans and the truth are in memory, some 50 KB of each."""

MAX_DAYS: Final = 366
"""Maximum number of days: reports show longer delays and ages as unknown."""


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """Settings for `gateways` gateways over `days` days, from `start` (ms since 1970 UTC).

    `seed` selects all random values. `readings` is the number of readings that a gateway
    receives per day. `heartbeat` (interval) and `seal` (age of a segment) are in seconds. `faults`
    are names in `FAULTS`; each affects `per_fault` gateways.
    """

    gateways: int
    days: int
    seed: int
    start: int
    readings: int = 4_000
    heartbeat: float = 60.0
    seal: float = 300.0
    faults: frozenset[str] = field(default=frozenset(FAULTS))
    per_fault: int = 1

    @property
    def length(self) -> float:
        """Duration of the simulated time, in seconds."""
        return self.days * DAY_S

    @property
    def end(self) -> int:
        """The end of the simulated time, in milliseconds since 1970 UTC."""
        return self.start + round(self.length * 1000)
