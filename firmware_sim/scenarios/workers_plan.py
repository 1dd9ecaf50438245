"""Plan a `workers` run from a seed: the items to publish, and the workers' faults.

Items `j1`, `j2`... are published to a queue node, the first half without faults. Items `s1`,
`s2`... are published to nodes that match three shares, one of each quality of service level.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from firmware_sim.scenarios.play import Settings

QUEUE: Final = "work/jobs"
"""The name of the queue node."""

FILTER: Final = "shared/+/done"
"""The topic filter of the three shares."""

SHARED_NODES: Final = ("shared/a/done", "shared/b/done", "shared/c/done")
"""The names of the nodes that match `FILTER`."""

LEVELS: Final = (0, 1, 2)

_PUBLISHERS: Final = 4
_PART: Final = 0.2  # of the items, so many more go to the shares
_POISON: Final = 0.002  # the part that no worker can do, of those of the second half


class Route(Enum):
    """The ways to publish an item; the value is the name in the verdict."""

    IQ = "by iq"
    ACKNOWLEDGED = "by an acknowledged message"
    ASSURED = "by an assured message"


_ROUTES: Final = (Route.IQ, Route.IQ, Route.ACKNOWLEDGED, Route.ASSURED)


class Fault(Enum):
    """A fault of a worker that processes an item; the value is its name in the verdict."""

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
    """An item to publish, with its publisher, its node and the way to publish it."""

    item: str
    publisher: str
    node: str
    way: Route


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersPlan(Settings):
    """The plan of a run, with `workers` workers of a queue, and `members` members of each share.

    There is one share for each quality of service level (`LEVELS`). The first half of the queue's
    `items` is published in `seconds / 2` without faults, the second half in `seconds`. To finish
    each half takes at most `patience` further seconds; else the run fails.
    """

    workers: int
    items: int
    members: int

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the workers."""
        return tuple(f"worker{number}" for number in range(1, self.workers + 1))

    @property
    def publishers(self) -> tuple[str, ...]:
        """The names of the publishers."""
        return tuple(f"publisher{number}" for number in range(1, _PUBLISHERS + 1))

    def file(self, worker: str) -> Path:
        """Return the path of a worker's file."""
        return self.folder / f"{worker}.db"

    def members_of(self, level: int) -> tuple[str, ...]:
        """Return the names of the members that subscribe at this quality of service level."""
        return tuple(f"member{level}n{number}" for number in range(1, self.members + 1))

    def share(self, level: int) -> str:
        """Return the name of the share whose members subscribe at this quality of service level."""
        return f"$share:members_of{level}:{FILTER}"

    def subscribed(self, level: int, member: int) -> str:
        """Return a share's name as a member writes it: `$share/NAME/FILTER` if `member` is odd."""
        return f"$share/members_of{level}/{FILTER}" if member % 2 else self.share(level)

    def fair(self) -> Iterator[Publication]:
        """Generate the first half of the queue's items, which are processed without faults."""
        return (self._job(number) for number in range(1, self._half + 1))

    def rough(self) -> Iterator[Publication]:
        """Generate the second half of the queue's items, mixed with the items of the shares."""
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
        """Return whether the plan makes every worker fail at an item (true of at least one)."""
        number = int(item[1:])
        if number <= self._half:
            return False
        return number == self.items or self._chance(f"poison/{item}").random() < _POISON

    def fault(self, worker: str, item: str, times: int) -> Fault | None:
        """Return a worker's fault, if any, with an item that had `times` deliveries before."""
        chance = self._chance(f"{worker}/{item}/{times}")
        if int(item[1:]) <= self._half or chance.random() >= self.faults:
            return None
        return chance.choice(_FAULTS)

    def crash(self, member: str, item: str) -> bool:
        """Return whether a member of a share crashes when it receives an item."""
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
        node = QUEUE if item[0] == "j" else chance.choice(SHARED_NODES)
        publisher = self.publishers[number % _PUBLISHERS]
        return Publication(item, publisher, node, chance.choice(_ROUTES))

    def _chance(self, what: str) -> random.Random:
        return random.Random(f"workers/{self.seed}/{what}")  # noqa: S311 - repeatable
