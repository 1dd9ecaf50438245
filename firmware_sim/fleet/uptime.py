"""The simulated uptime of a gateway: its runs, each with an epoch and a software version.

A moment is a true time, in seconds since the simulation began.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

_BREATH: Final = 2.0  # seconds that a run lasts at least


class Downtime(NamedTuple):
    """A period in which a gateway is off, from moment `off` until `on` (infinity for ever).

    `clean` is whether it stopped cleanly, `renewed` whether a new epoch begins afterwards,
    `version` the software version that runs afterwards, or None for the same.
    """

    off: float
    on: float
    clean: bool
    renewed: bool = False
    version: str | None = None


class Run(NamedTuple):
    """A run of a gateway from moment `on` to `off`; `clean` is whether it then stopped cleanly.

    `previous` is how the preceding run ended: `clean`, `unclean` or `unknown`. `epoch` and `boot`
    are ids; `renewed` is whether the epoch began with this run.
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
    """The runs of a gateway, in order."""

    runs: tuple[Run, ...]

    def running(self, moment: float) -> float:
        """Return `moment` if the gateway runs then, else its next start (infinity for never)."""
        for run in self.runs:
            if moment <= run.off:
                return max(moment, run.on)
        return inf

    def at(self, moment: float) -> Run:
        """Return the run at `moment`; between runs, the preceding one; before all, the first."""
        starts = [run.on for run in self.runs]
        return self.runs[max(bisect_right(starts, moment) - 1, 0)]


def make_uptime(
    first: float, version: str, breaks: Iterable[Downtime], epochs: list[str], boots: list[str]
) -> Uptime:
    """Return the runs between `breaks`; a break that begins during another is ignored.

    `first` is the moment of the first start. `epochs` and `boots` must have enough ids for all
    runs.
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
