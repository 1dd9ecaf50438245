"""Plan a custody run from a seed: the sender, level and recipient of each message.

A message is identified by its source (the sender's full JID) and its number among
this sender's messages, from 1.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from firmware_sim.scenarios.gateway_process import DOMAIN
from firmware_sim.scenarios.play import Settings
from firmware_sim.scenarios.record import Key

_LEVELS: Final = (0, 1, 1, 2, 2)  # a fifth at level 0, two fifths at each of the others
_ODD: Final = 0.05  # the part of the devices that never come, and the part that reads slowly
_FEW: Final = 4  # fewer devices have none such


class Addressing(Enum):
    """The kind of address of a message."""

    ACCOUNT = "to an account: into custody, at level 1 and 2"
    SESSION = "to a session: routed end to end"
    GATEWAY = "to the gateway: into the event log"


_ADDRESSINGS: Final = (Addressing.ACCOUNT,) * 8 + (Addressing.SESSION, Addressing.GATEWAY)


class PlannedMessage(NamedTuple):
    """A message to send. `recipient` is a device's name, empty for the gateway."""

    level: int
    way: Addressing
    recipient: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CustodyPlan(Settings):
    """The plan of a run, in which at least 2 devices send `messages` messages in total.

    One device in twenty (at least one) never connects, and as many are slow; but with fewer than 4
    devices, all connect and none is slow.
    """

    devices: int
    messages: int

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all devices."""
        return tuple(f"device{number}" for number in range(1, self.devices + 1))

    @property
    def absent(self) -> tuple[str, ...]:
        """The names of the devices that never connect."""
        return self.names[: self._some]

    @property
    def slow(self) -> tuple[str, ...]:
        """The names of the devices that read slowly."""
        return self.names[self._some : 2 * self._some]

    @property
    def present(self) -> tuple[str, ...]:
        """The names of the devices that connect, including slow devices."""
        return self.names[self._some :]

    def count(self, name: str) -> int:
        """Return the number of messages that a device sends."""
        if name in self.absent:
            return 0
        whole, rest = divmod(self.messages, len(self.present))
        return whole + (self.present.index(name) < rest)

    def message(self, name: str, number: int) -> PlannedMessage:
        """Return a device's message by its number."""
        chance = random.Random(f"custody/{self.seed}/{name}/{number}")  # noqa: S311 - repeatable
        level, way = chance.choice(_LEVELS), chance.choice(_ADDRESSINGS)
        if way is Addressing.GATEWAY:
            return PlannedMessage(level, way, "")
        others = self.names if way is Addressing.ACCOUNT else self.present
        return PlannedMessage(level, way, chance.choice([each for each in others if each != name]))

    def address(self, planned: PlannedMessage) -> str:
        """Return the JID to which a message is sent."""
        if planned.way is Addressing.GATEWAY:
            return DOMAIN
        full = self.jid(planned.recipient)
        return full if planned.way is Addressing.SESSION else full.partition("/")[0]

    def all(self) -> Iterator[tuple[Key, PlannedMessage]]:
        """Generate all messages, with their source and number."""
        for name in self.present:
            for number in range(1, self.count(name) + 1):
                yield (self.jid(name), number), self.message(name, number)

    @property
    def _some(self) -> int:
        return 0 if self.devices < _FEW else max(1, round(self.devices * _ODD))
