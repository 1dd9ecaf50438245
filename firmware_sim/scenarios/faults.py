"""Plan the faults of one simulated device from a seed: what goes wrong, and when.

The seed decides which messages meet a fault, which one, and at which step, so two runs with one
seed meet the same faults. `link` and the scenarios carry them out.
"""

from __future__ import annotations

import random
from collections import Counter
from enum import Enum
from typing import Final

from firmware_sim.device.sender_loop import DeliveryStep


class Fault(Enum):
    """A fault; the value is its name in the verdict."""

    CUT = "connections cut"
    RESET = "connections reset"
    LOSE_ANSWER = "answers lost"
    LOSE_REQUEST = "requests lost"
    END_REQUESTS = "connections half-closed towards the gateway"
    END_ANSWERS = "connections half-closed towards the device"
    RESTART = "devices restarted"


_AT: Final[dict[DeliveryStep, tuple[Fault, ...]]] = {
    # Between the offer and `received`: the offer arrives, or does not, and nobody hears of it.
    DeliveryStep.OFFERED: (Fault.LOSE_ANSWER, Fault.LOSE_REQUEST, Fault.RESET, Fault.RESTART),
    # Between `received` and the release.
    DeliveryStep.RECEIVED: (Fault.CUT, Fault.RESET, Fault.END_ANSWERS, Fault.RESTART),
    # Between the release and its result.
    DeliveryStep.RELEASED: (Fault.LOSE_ANSWER, Fault.LOSE_REQUEST, Fault.RESET, Fault.RESTART),
    DeliveryStep.ENDED: (Fault.CUT, Fault.END_REQUESTS, Fault.RESTART),
}
_MOMENTS: Final = tuple(_AT)
_SLOW: Final = 0.1  # the part of chunks that are late
_LATEST_S: Final = 0.05  # by how much, at most


class FaultPlan:
    """The faults of one device.

    Args:
        seed: of the run.
        device: its name, so that each device has its own faults.
        rate: the share of its messages that meet a fault, 0 to 1.
    """

    def __init__(self, seed: int, device: str, rate: float) -> None:
        self._key = f"{seed}/{device}"
        self.rate = rate
        """The share of its messages that meet a fault."""
        self._over: set[int] = set()
        self._delays = random.Random(f"{self._key}/delay")  # noqa: S311 - repeatable, not secret
        self.happened: Counter[Fault] = Counter()
        """Number of times that each fault was returned."""

    def at(self, moment: DeliveryStep, number: int) -> Fault | None:
        """Return the fault at this step of a message, if any; each occurs once."""
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
        """Return the delay of the next chunk in seconds; mostly 0."""
        if self._delays.random() >= _SLOW:
            return 0.0
        return self._delays.uniform(0.0, _LATEST_S)
