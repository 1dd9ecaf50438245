"""Plan a workers run from a seed: what is published, and what goes wrong with the workers.

Items `j1`, `j2`... go to a queue node, the first half while all workers behave well; items `s1`,
`s2`... go to nodes that three shares receive, one at each level.
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
"""The filter of the shares."""

LEVELS: Final = (0, 1, 2)

_NODES: Final = ("shared/a/done", "shared/b/done", "shared/c/done")
_PUBLISHERS: Final = 4
_PART: Final = 0.2  # of the items, so many more go to the shares
_POISON: Final = 0.002  # the part that no worker can do, of those of the second half


class Route(Enum):
    """The way in which an item is published; the value is its name in the verdict."""

    IQ = "by iq"
    ACKNOWLEDGED = "by an acknowledged message"
    ASSURED = "by an assured message"


_WAYS: Final = (Route.IQ, Route.IQ, Route.ACKNOWLEDGED, Route.ASSURED)


class Fault(Enum):
    """A fault of a worker that has an item; the value is its name in the verdict."""

    CRASH = "workers crashed and forgot their items"
    CUT = "workers lost the connection and continued"
    GONE = "workers disconnected silently and came back"
    HANG = "items never answered"
    UNLOCK = "items returned by workers"
    SLOW = "items done slowly"
    LEAVE = "workers unsubscribed and subscribed again"
    HIDE = "workers became unavailable and available again"


_OFTEN: Final = (Fault.HANG, Fault.UNLOCK, Fault.SLOW)  # these do not touch other items
_FAULTS: Final[tuple[Fault, ...]] = (*Fault, *_OFTEN, *_OFTEN)


class Publication(NamedTuple):
    """An item to publish: by whom, where, and how."""

    item: str
    publisher: str
    node: str
    way: Route


@dataclass(frozen=True, slots=True)
class WorkersPlan:
    """The whole plan of a run.

    Args:
        seed: selects ways and faults.
        workers: how many work on the queue.
        items: how many items it gets.
        members: how many members each share has; there is one share for each level.
        faults: the share of the deliveries of the second half at which something goes wrong.
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

    def members_of(self, level: int) -> tuple[str, ...]:
        """Return the names of the members of the share of a level."""
        return tuple(f"member{level}n{number}" for number in range(1, self.members + 1))

    def share(self, level: int) -> str:
        """Return the name of the share of a level."""
        return f"$share:members_of{level}:{FILTER}"

    def subscribed(self, level: int, member: int) -> str:
        """Return what a member subscribes to; odd members use the other notation of shares."""
        return f"$share/members_of{level}/{FILTER}" if member % 2 else self.share(level)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that the shares receive."""
        return _NODES

    def fair(self) -> Iterator[Publication]:
        """Generate the items of the queue that are published while all workers behave well."""
        return (self._job(number) for number in range(1, self._half + 1))

    def rough(self) -> Iterator[Publication]:
        """Generate the other items of the queue, mixed with those of the shares."""
        later = self.items - self._half
        shared = iter(self.shared())
        for done, number in enumerate(range(self._half + 1, self.items + 1)):
            yield self._job(number)
            if (done + 1) * self._more // later > done * self._more // later:
                yield next(shared)
        yield from shared

    def shared(self) -> Iterator[Publication]:
        """Generate the items of the shares."""
        return (self._publication(f"s{number}", number) for number in range(1, self._more + 1))

    def jobs(self) -> Iterator[Publication]:
        """Generate all items of the queue."""
        return (self._job(number) for number in range(1, self.items + 1))

    def poison(self, item: str) -> bool:
        """Return whether no worker can process the item; there is at least one in the second
        half."""
        number = int(item[1:])
        if number <= self._half:
            return False
        return number == self.items or self._chance(f"poison/{item}").random() < _POISON

    def fault(self, worker: str, item: str, times: int) -> Fault | None:
        """Return what goes wrong when a worker gets an item for the given time."""
        chance = self._chance(f"{worker}/{item}/{times}")
        if int(item[1:]) <= self._half or chance.random() >= self.faults:
            return None
        return chance.choice(_FAULTS)

    def crash(self, member: str, item: str) -> bool:
        """Return whether a member of a share crashes as it receives an item."""
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
