"""The uptime of a gateway: its runs, each in an epoch and of a software version.

Moments are true seconds since the simulation began.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

_BREATH: Final = 2.0  # seconds that a run lasts at least


class Downtime(NamedTuple):
    """A gateway is off from `off` until `on` (infinity: never again).

    `clean` says whether it stopped cleanly, `renewed` whether a new epoch begins afterwards,
    `version` which software runs then, if that changes.
    """

    off: float
    on: float
    clean: bool
    renewed: bool = False
    version: str | None = None


class Run(NamedTuple):
    """The gateway ran from `on` to `off`; `clean` says whether it stopped cleanly.

    `previous` is how the run before ended. `epoch` and `boot` are ids.
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
class Uptime:
    """All runs of a gateway in order."""

    runs: tuple[Run, ...]

    def running(self, moment: float) -> float:
        """Return the first moment from `moment` on at which it runs; infinity for never."""
        for run in self.runs:
            if moment <= run.off:
                return max(moment, run.on)
        return inf

    def at(self, moment: float) -> Run:
        """Return the run at `moment`, or the last one before it, or else the first one."""
        starts = [run.on for run in self.runs]
        return self.runs[max(bisect_right(starts, moment) - 1, 0)]


def make_uptime(
    first: float, version: str, breaks: Iterable[Downtime], epochs: list[str], boots: list[str]
) -> Uptime:
    """Return the runs between `breaks`; a break within another one is left out.

    `epochs` and `boots` provide enough ids.
    """
    runs: list[Run] = []
    on, previous, epoch, renewed = first, "unknown", 0, False
    for gap in [*sorted(breaks), Downtime(inf, inf, clean=False)]:
        if gap.off < on + _BREATH:
            continue
        boot = boots[len(runs)]
        runs.append(Run(on, gap.off, gap.clean, previous, epochs[epoch], boot, version, renewed))
        if gap.on == inf:
            break
        on, previous = gap.on, "clean" if gap.clean else "unclean"
        epoch, renewed = epoch + gap.renewed, gap.renewed
        version = gap.version or version
    return Uptime(tuple(runs))
