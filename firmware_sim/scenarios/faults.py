"""What goes wrong, and when, from a seed: the plan of one simulated device's misfortunes.

The seed alone settles which messages meet with a fault, with which, and at which moment of their
life; so two runs with one seed suffer the same. What such a fault cuts through is left to chance,
as it is with real ones. It only plans: `link` and the scenario carry it out.
"""

from __future__ import annotations

import random
from collections import Counter
from enum import Enum
from typing import Final

from firmware_sim.device.sender_loop import Moment


class Fault(Enum):
    """A misfortune; the value is its name in the verdict."""

    CUT = "connections cut"
    RESET = "connections reset"
    LOSE_ANSWER = "answers lost"
    LOSE_REQUEST = "requests lost"
    END_REQUESTS = "connections half-closed towards the gateway"
    END_ANSWERS = "connections half-closed towards the device"
    RESTART = "devices restarted"


_AT: Final[dict[Moment, tuple[Fault, ...]]] = {
    # Between the offer and `received`: the offer arrives, or does not, and nobody hears of it.
    Moment.OFFERED: (Fault.LOSE_ANSWER, Fault.LOSE_REQUEST, Fault.RESET, Fault.RESTART),
    # Between `received` and the release.
    Moment.RECEIVED: (Fault.CUT, Fault.RESET, Fault.END_ANSWERS, Fault.RESTART),
    # Between the release and its result.
    Moment.RELEASED: (Fault.LOSE_ANSWER, Fault.LOSE_REQUEST, Fault.RESET, Fault.RESTART),
    Moment.ENDED: (Fault.CUT, Fault.END_REQUESTS, Fault.RESTART),
}
_MOMENTS: Final = tuple(_AT)
_SLOW: Final = 0.1  # the part of chunks that are late
_LATEST_S: Final = 0.05  # by how much, at most


class FaultPlan:
    """The faults of one device.

    Args:
        seed: of the run.
        device: its name, so that each has misfortunes of its own.
        rate: the part of its messages that meet with a fault, 0 to 1.
    """

    def __init__(self, seed: int, device: str, rate: float) -> None:
        self._key = f"{seed}/{device}"
        self.rate = rate
        """The part of its messages that meet with one."""
        self._over: set[int] = set()
        self._delays = random.Random(f"{self._key}/delay")  # noqa: S311 - repeatable, not secret
        self.happened: Counter[Fault] = Counter()
        """How often each fault was given out."""

    def at(self, moment: Moment, number: int) -> Fault | None:
        """Say what goes wrong at this moment of that message, if anything; each goes wrong once."""
        chance = random.Random(f"{self._key}/{number}")  # noqa: S311 - repeatable, not secret
        if chance.random() >= self.rate or moment is not chance.choice(_MOMENTS):
            return None
        if number in self._over:
            return None
        self._over.add(number)
        fault = chance.choice(_AT[moment])
        self.happened[fault] += 1
        return fault

    def delay(self) -> float:
        """Say by how many seconds the next chunk is late; most are not."""
        if self._delays.random() >= _SLOW:
            return 0.0
        return self._delays.uniform(0.0, _LATEST_S)
