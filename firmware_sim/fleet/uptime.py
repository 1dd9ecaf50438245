"""When a gateway ran: its runs, one after another, each in an epoch and of a software version.

Moments are true seconds since the simulation began.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

_BREATH: Final = 2.0  # seconds that a run lasts at least


class Break(NamedTuple):
    """A gateway is off from `off` until `on` (never again: infinity).

    `clean` tells whether it stopped by itself, `renewed` whether a new epoch begins after it,
    `version` which software runs from then on, where that changes.
    """

    off: float
    on: float
    clean: bool
    renewed: bool = False
    version: str | None = None


class Run(NamedTuple):
    """The gateway ran from `on` to `off`; `clean` tells whether it stopped by itself then.

    `previous` is how the run before ended, as a start tells it. `epoch` and `boot` are ids.
    """

    on: float
    off: float
    clean: bool
    previous: str
    epoch: str
    boot: str
    version: str
    renewed: bool


@dataclass(frozen=True, slots=True)
class Life:
    """All runs of a gateway, in their order."""

    runs: tuple[Run, ...]

    def running(self, moment: float) -> float:
        """Give the first moment from `moment` on at which it runs; infinity if it never will."""
        for run in self.runs:
            if moment <= run.off:
                return max(moment, run.on)
        return inf

    def at(self, moment: float) -> Run:
        """Give the run of `moment`, or the last one before it; the first one before all."""
        starts = [run.on for run in self.runs]
        return self.runs[max(bisect_right(starts, moment) - 1, 0)]


def make_life(
    first: float, version: str, breaks: Iterable[Break], epochs: list[str], boots: list[str]
) -> Life:
    """Make the runs between `breaks`; a break that comes within another one is left out.

    `epochs` and `boots` are ids enough for all of them.
    """
    runs: list[Run] = []
    on, previous, epoch, renewed = first, "unknown", 0, False
    for gap in [*sorted(breaks), Break(inf, inf, clean=False)]:
        if gap.off < on + _BREATH:
            continue
        boot = boots[len(runs)]
        runs.append(Run(on, gap.off, gap.clean, previous, epochs[epoch], boot, version, renewed))
        if gap.on == inf:
            break
        on, previous = gap.on, "clean" if gap.clean else "unclean"
        epoch, renewed = epoch + gap.renewed, gap.renewed
        version = gap.version or version
    return Life(tuple(runs))
