"""Plan the faults of one simulated device from a seed: their kinds and times.

The seed selects the messages with a fault, the kind of fault, and the step of the message at which
it occurs. So two runs with the same seed have the same faults. The modules `link` and `actor`
implement the faults.
"""

from __future__ import annotations

import random
from collections import Counter
from enum import Enum
from typing import Final

from firmware_sim.device.sender_loop import DeliveryStep


class Fault(Enum):
    """A kind of fault; the value is its name in the verdict."""

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
    """The planned faults of one device, of a fraction `rate` (0 to 1) of its messages.

    The same seed and name of a device give the same faults.
    """

    def __init__(self, seed: int, device: str, rate: float) -> None:
        self._key = f"{seed}/{device}"
        self.rate = rate
        """The fraction of the device's messages with a fault, 0 to 1."""
        self._over: set[int] = set()
        self._delays = random.Random(f"{self._key}/delay")  # noqa: S311 - repeatable, not secret
        self.happened: Counter[Fault] = Counter()
        """The number of faults that `at` returned, by kind."""

    def at(self, moment: DeliveryStep, number: int) -> Fault | None:
        """Return the fault at this step of a message, or None; a message has at most one fault."""
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
        """Return the delay of the next chunk of data, in seconds; mostly 0."""
        if self._delays.random() >= _SLOW:
            return 0.0
        return self._delays.uniform(0.0, _LATEST_S)
