"""What goes wrong, and when, from a seed: the plan of one simulated device's misfortunes.

A plan is asked at each moment of each message, and answers with a fault or none. With the same seed
the same moments get the same answers; how the moments of a device interleave with the network is
the network's business, so two runs are alike and not identical.
"""

from __future__ import annotations

import random
from collections import Counter
from enum import Enum
from typing import Final

from firmware_sim.courier import Moment


class Fault(Enum):
    """A misfortune; the value is its name in the verdict."""

    CUT = "connections cut"
    RESET = "connections reset"
    LOSE_ANSWER = "answers lost"
    LOSE_REQUEST = "requests lost"
    RESTART = "devices restarted"


_AT: Final[dict[Moment, tuple[Fault, ...]]] = {
    # Between the offer and `received`: the offer arrives, or does not, and nobody hears of it.
    Moment.OFFERED: (Fault.LOSE_ANSWER, Fault.LOSE_REQUEST, Fault.RESET, Fault.RESTART),
    # Between `received` and the release.
    Moment.RECEIVED: (Fault.CUT, Fault.RESET, Fault.RESTART),
    # Between the release and its result.
    Moment.RELEASED: (Fault.LOSE_ANSWER, Fault.LOSE_REQUEST, Fault.RESET, Fault.RESTART),
    Moment.ENDED: (Fault.CUT, Fault.RESTART),
}


class FaultPlan:
    """The faults of one device.

    Args:
        seed: of the run.
        device: its name, so that each has misfortunes of its own.
        rate: the part of its moments that get a fault, 0 to 1.
        slow: seconds, the most that one chunk is late; about one in ten is.
    """

    def __init__(self, seed: int, device: str, rate: float, slow: float = 0.05) -> None:
        self._random = random.Random(f"{seed}/{device}")  # noqa: S311 - repeatable, not secret
        self._rate = rate
        self._slow = slow
        self.happened: Counter[Fault] = Counter()
        """How often each fault was given out."""

    def at(self, moment: Moment) -> Fault | None:
        """Say what goes wrong at this moment, if anything."""
        if self._random.random() >= self._rate:
            return None
        fault = self._random.choice(_AT[moment])
        self.happened[fault] += 1
        return fault

    def delay(self) -> float:
        """Say by how many seconds the next chunk is late."""
        if self._rate == 0.0 or self._random.random() >= 0.1:
            return 0.0
        return self._random.uniform(0.0, self._slow)
