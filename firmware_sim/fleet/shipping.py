"""Simulate the link from a gateway to the centre: lost, late, repeated and damaged segments."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from firmware_sim.fleet.bad_segments import DAMAGED
from firmware_sim.fleet.times import iso
from sync.segment import identity_path

if TYPE_CHECKING:
    from firmware_sim.fleet.plan import Plan
    from firmware_sim.fleet.sealing import SealedSegment

_SLOWEST: Final = 4.0  # seconds that an upload takes at most, beside waiting
_FAREWELL: Final = 10.0  # seconds for which a gateway that stops waits for its last segments
_BACKLOG: Final = 1.5  # after how many times of sealing a backlog is through, beside what is new
_LOST: Final = 3  # segments that never arrive, where that is planted
_AGAIN: Final = 10  # of the segments of a window, one so often arrives twice
_AGAIN_S: Final = 600.0  # seconds after which it does, at least
_COPY_S: Final = 3_600.0  # seconds by which a copy's segments are later than the original's


class Delivery(NamedTuple):
    """A file of `size` bytes that arrives at the centre, as `path` below the landing.

    `arrived` is in milliseconds since 1970 UTC. `damaged` is the kind of damage, or None; `sealed`
    is then the segment of which this is a damaged copy.
    """

    arrived: int
    path: str
    data: bytes
    size: int
    sealed: SealedSegment
    damaged: str | None = None

    def without_data(self) -> Self:
        """Return the delivery without the bytes."""
        return self._replace(data=b"", sealed=self.sealed._replace(data=b""))

    def as_json(self, fate: str) -> dict[str, Any]:
        """Return the file's row in the report's table `quarantine`; `fate` is `bad` or `fork`."""
        return {"path": self.path, "arrived": iso(self.arrived), "size": self.size, "fate": fate}


class Shipper:
    """Ships the segments of one gateway; `lost` counts those that the fault `gap` lost."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._dice = plan.chance("link")
        self._damages = list(DAMAGED)
        self._seen = 0
        self.lost = 0

    def ship(self, sealed: SealedSegment) -> Iterator[Delivery]:
        """Generate the files that arrive for a segment: none, one or more."""
        moment = self._arrival(sealed.moment)
        if sealed.evicted or moment == inf:
            return
        readings = sealed.header.lane == "readings"
        if readings and self.lost < _LOST and self._plan.within("gap", sealed.moment):
            self.lost += 1
            return
        path = identity_path(sealed.header.identity)
        if readings and self._damages and self._plan.within("corrupt", sealed.moment):
            yield self._damaged(sealed, moment, path)
        if sealed.moment >= self._plan.copied:
            yield self._delivery(moment + _COPY_S, f"{path}.copy", sealed)
            return
        yield self._delivery(moment, path, sealed)
        if self._plan.within("duplicates", sealed.moment):
            self._seen += 1
            if self._seen % _AGAIN == 0:
                later = moment + _AGAIN_S * self._dice.uniform(1, 10)
                yield self._delivery(later, f"{path}.again", sealed)

    def _arrival(self, sealed: float) -> float:
        """Return the moment at which a segment sealed at `sealed` arrives; infinity for never."""
        moment = sealed + self._dice.uniform(0.2, _SLOWEST)
        for begin, end in self._plan.link_down:
            if begin <= moment < end:
                moment = end + self._dice.uniform(0, _BACKLOG) * self._plan.settings.seal
        run = self._plan.life.at(moment)
        if run.clean and run.off <= moment < run.off + _FAREWELL:
            return moment
        return self._plan.life.running(moment)

    def _delivery(self, moment: float, path: str, sealed: SealedSegment) -> Delivery:
        return Delivery(self._wall(moment), f"{path}.seg", sealed.data, len(sealed.data), sealed)

    def _damaged(self, sealed: SealedSegment, moment: float, path: str) -> Delivery:
        """Return a damaged copy of a segment, which arrives a second before the intact one."""
        how = self._damages.pop(0)
        data = DAMAGED[how](sealed.data, self._dice)
        return Delivery(self._wall(moment - 1), f"{path}.{how}.seg", data, len(data), sealed, how)

    def _wall(self, moment: float) -> int:
        """Convert a true moment to milliseconds since 1970 UTC; the centre's clock is right."""
        return self._plan.settings.start + round(moment * 1000)
