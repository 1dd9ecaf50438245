"""What a custody run is to send: who, what, at which level, to whom, all from a seed.

A message is known by its source (a full JID) and its number there, from 1. Nothing here sends or
judges.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from firmware_sim.scenarios.count_verdict import Key

RESOURCE: Final = "fw"

_LEVELS: Final = (0, 1, 1, 2, 2)  # a fifth at level 0, two fifths at each of the others
_ODD: Final = 0.05  # the part of the devices that never come, and the part that reads slowly
_FEW: Final = 4  # fewer devices have none such


class Way(Enum):
    """How a message is addressed."""

    ACCOUNT = "to an account: into custody, at level 1 and 2"
    SESSION = "to a session: routed end to end"
    GATEWAY = "to the gateway: into the event log"


_WAYS: Final = (Way.ACCOUNT,) * 8 + (Way.SESSION, Way.GATEWAY)


class Planned(NamedTuple):
    """A message that is to be sent; `recipient` is a device's name, empty for the gateway."""

    level: int
    way: Way
    recipient: str


@dataclass(frozen=True, slots=True)
class Plan:
    """All messages of a run.

    Args:
        seed: by which levels, ways and recipients are chosen.
        domain: of the gateway.
        devices: how many there are, at least 2; one in twenty never comes, and one is slow.
        messages: how many are sent in all, by those that come.
    """

    seed: int
    domain: str
    devices: int
    messages: int

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all devices."""
        return tuple(f"device{number}" for number in range(1, self.devices + 1))

    @property
    def absent(self) -> tuple[str, ...]:
        """Those that never come."""
        return self.names[: self._some]

    @property
    def slow(self) -> tuple[str, ...]:
        """Those that read slowly."""
        return self.names[self._some : 2 * self._some]

    @property
    def present(self) -> tuple[str, ...]:
        """Those that come, the slow ones too."""
        return self.names[self._some :]

    def jid(self, name: str) -> str:
        """Give a device's full JID."""
        return f"{name}@{self.domain}/{RESOURCE}"

    def name(self, jid: str) -> str:
        """Give the name of a device by its JID."""
        return jid.partition("@")[0]

    def count(self, name: str) -> int:
        """Say how many messages a device sends."""
        if name in self.absent:
            return 0
        whole, rest = divmod(self.messages, len(self.present))
        return whole + (self.present.index(name) < rest)

    def message(self, name: str, number: int) -> Planned:
        """Say what a device's message of that number is."""
        chance = random.Random(f"custody/{self.seed}/{name}/{number}")  # noqa: S311 - repeatable
        level, way = chance.choice(_LEVELS), chance.choice(_WAYS)
        if way is Way.GATEWAY:
            return Planned(level, way, "")
        others = self.names if way is Way.ACCOUNT else self.present
        return Planned(level, way, chance.choice([each for each in others if each != name]))

    def address(self, planned: Planned) -> str:
        """Give the JID that a message goes to."""
        if planned.way is Way.GATEWAY:
            return self.domain
        full = self.jid(planned.recipient)
        return full if planned.way is Way.SESSION else full.partition("/")[0]

    def all(self) -> Iterator[tuple[Key, Planned]]:
        """Go through all messages."""
        for name in self.present:
            for number in range(1, self.count(name) + 1):
                yield (self.jid(name), number), self.message(name, number)

    @property
    def _some(self) -> int:
        return 0 if self.devices < _FEW else max(1, round(self.devices * _ODD))
