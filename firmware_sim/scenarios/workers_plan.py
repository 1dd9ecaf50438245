"""What a workers run is to publish, and what goes wrong with its workers, all from a seed.

Items `j1`, `j2`... go to a queue node, the first half of them while all workers behave; items `s1`,
`s2`... go to nodes that three shares take in, one for each level. Nothing here sends or judges.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

QUEUE: Final = "work/jobs"
"""The node that is a queue."""

FILTER: Final = "shared/+/done"
"""What the shares take in."""

LEVELS: Final = (0, 1, 2)

_NODES: Final = ("shared/a/done", "shared/b/done", "shared/c/done")
_PUBLISHERS: Final = 4
_PART: Final = 0.2  # of the items, so many more go to the shares
_POISON: Final = 0.002  # the part that no worker can do, of those of the second half


class Way(Enum):
    """How an item is published; the value is the name in the verdict."""

    IQ = "by iq"
    ACKNOWLEDGED = "by an acknowledged message"
    ASSURED = "by an assured message"


_WAYS: Final = (Way.IQ, Way.IQ, Way.ACKNOWLEDGED, Way.ASSURED)


class Fault(Enum):
    """What goes wrong with a worker that has an item; the value is its name in the verdict."""

    CRASH = "workers crashed, items in hand forgotten"
    CUT = "workers lost the connection, and went on"
    GONE = "workers left without a word, and came back"
    HANG = "items never answered"
    UNLOCK = "items given back"
    SLOW = "items done slowly"
    LEAVE = "workers unsubscribed, and came back"
    HIDE = "workers became unavailable, and came back"


_OFTEN: Final = (Fault.HANG, Fault.UNLOCK, Fault.SLOW)  # these do not touch other items
_FAULTS: Final[tuple[Fault, ...]] = (*Fault, *_OFTEN, *_OFTEN)


class Publication(NamedTuple):
    """An item to publish: by whom, where, and how."""

    item: str
    publisher: str
    node: str
    way: Way


@dataclass(frozen=True, slots=True)
class WorkersPlan:
    """All of a run.

    Args:
        seed: by which ways and faults are chosen.
        workers: how many work on the queue.
        items: how many items it gets.
        members: how many members each share has, of each level one share.
        faults: the part of the deliveries of the second half at which something goes wrong.
    """

    seed: int
    workers: int
    items: int
    members: int
    faults: float

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the workers."""
        return tuple(f"worker{number}" for number in range(1, self.workers + 1))

    @property
    def publishers(self) -> tuple[str, ...]:
        """The names of the publishers."""
        return tuple(f"publisher{number}" for number in range(1, _PUBLISHERS + 1))

    def crew(self, level: int) -> tuple[str, ...]:
        """Give the names of the members of the share of that level."""
        return tuple(f"member{level}n{number}" for number in range(1, self.members + 1))

    def share(self, level: int) -> str:
        """Give the name of the share of that level."""
        return f"$share:crew{level}:{FILTER}"

    def subscribed(self, level: int, member: int) -> str:
        """Give what a member of it subscribes to: the odd ones write the share the other way."""
        return f"$share/crew{level}/{FILTER}" if member % 2 else self.share(level)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that the shares take in."""
        return _NODES

    def fair(self) -> Iterator[Publication]:
        """Go through the items of the queue that are published while all workers behave."""
        return (self._job(number) for number in range(1, self._half + 1))

    def rough(self) -> Iterator[Publication]:
        """Go through the others of the queue, and those of the shares between them."""
        later = self.items - self._half
        shared = iter(self.shared())
        for done, number in enumerate(range(self._half + 1, self.items + 1)):
            yield self._job(number)
            if (done + 1) * self._more // later > done * self._more // later:
                yield next(shared)
        yield from shared

    def shared(self) -> Iterator[Publication]:
        """Go through the items of the shares."""
        return (self._publication(f"s{number}", number) for number in range(1, self._more + 1))

    def jobs(self) -> Iterator[Publication]:
        """Go through all items of the queue."""
        return (self._job(number) for number in range(1, self.items + 1))

    def poison(self, item: str) -> bool:
        """Say whether it is an item that no worker can do; such a one there is, if any is rough."""
        number = int(item[1:])
        if number <= self._half:
            return False
        return number == self.items or self._chance(f"poison/{item}").random() < _POISON

    def fault(self, worker: str, item: str, times: int) -> Fault | None:
        """Say what goes wrong when a worker gets an item that was delivered so often before."""
        chance = self._chance(f"{worker}/{item}/{times}")
        if int(item[1:]) <= self._half or chance.random() >= self.faults:
            return None
        return chance.choice(_FAULTS)

    def crash(self, member: str, item: str) -> bool:
        """Say whether a member of a share crashes as it takes an item."""
        return self._chance(f"{member}/{item}").random() < self.faults / 4

    @property
    def _half(self) -> int:
        return self.items // 2

    @property
    def _more(self) -> int:
        return round(self.items * _PART) if self.members else 0

    def _job(self, number: int) -> Publication:
        return self._publication(f"j{number}", number)

    def _publication(self, item: str, number: int) -> Publication:
        chance = self._chance(item)
        node = QUEUE if item[0] == "j" else chance.choice(_NODES)
        publisher = self.publishers[number % _PUBLISHERS]
        return Publication(item, publisher, node, chance.choice(_WAYS))

    def _chance(self, what: str) -> random.Random:
        return random.Random(f"workers/{self.seed}/{what}")  # noqa: S311 - repeatable
