"""Plan the simulation of a gateway: its clock, its runs, its link, and the times of its faults.

A plan depends only on the settings, the seed and the gateway's number. A moment is a true time, in
seconds since the simulation began.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from firmware_sim.fleet.faults import FAULTS, spread
from firmware_sim.fleet.settings import DAY_S, FleetSettings

VERSIONS: Final = ("0.9.0", "0.9.1", "0.10.0")
"""Software versions: all gateways update from the first to the second, some then to the third."""

FAULTY: Final = VERSIONS[-1]
"""The version that logs more errors, if the fault `version-errors` is simulated."""

_CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_IDS: Final = 8  # epochs and boots: more than anything that is planned makes
_YEARS: Final = -20 * 365 * DAY_S  # seconds: what a clock without a battery is behind
_STEP: Final = 900.0  # seconds: as when somebody sets a clock by hand; no sensor seems odd by it
_DRIFT: Final = 200e-6  # ten times what a quartz may have
_SKEW: Final = 0.02  # seconds: what a synchronised clock is off, at most
_UPDATE_S: Final = 25.0  # seconds that a restart with new software takes
_CRASH_S: Final = 20.0  # seconds until a crashed gateway runs again
_RESTORE_S: Final = 80.0  # seconds until it runs again from a backup
_BREATH: Final = 2.0  # seconds that a run lasts at least
_LAST_MINUTE: Final = 60.0  # seconds before the end at which some gateways stop


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


def _runs(
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


@dataclass(frozen=True, slots=True)
class Clock:
    """A clock that is `skew` seconds ahead at first, and gains `drift` seconds per second.

    `start` is milliseconds since 1970 UTC. `steps` are pairs of a moment and the seconds by which
    the clock is set forward. `lost` are the periods (begin, end) in which it is not synchronised.
    """

    start: int
    skew: float = 0.0
    drift: float = 0.0
    steps: tuple[tuple[float, float], ...] = ()
    lost: tuple[tuple[float, float], ...] = ()

    def wall(self, moment: float) -> int:
        """Return the time that the clock shows at the true time `moment`, in ms since 1970 UTC."""
        ahead = self.skew + self.drift * moment
        for at, seconds in self.steps:
            if at <= moment:
                ahead += seconds
        return self.start + round((moment + ahead) * 1000)

    def synchronised(self, moment: float) -> bool:
        """Return whether the clock is synchronised at `moment`."""
        return not any(begin <= moment < end for begin, end in self.lost)


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of the gateway with the number `number`, which counts from 1.

    `link_down` are the periods (begin, end) in which the gateway can send nothing. If `copied` is
    finite, the plan is that of a second gateway, which runs from a copy of the card, beside the
    original, from the moment `copied` on.
    """

    settings: FleetSettings
    number: int
    faults: tuple[str, ...]
    clock: Clock
    life: Uptime
    link_down: tuple[tuple[float, float], ...]
    copied: float = inf

    @property
    def name(self) -> str:
        """The gateway's domain, such as `gw-001.example`."""
        digits = max(3, len(str(self.settings.gateways)))
        return f"gw-{self.number:0{digits}d}.example"

    def window(self, fault: str) -> tuple[float, float] | None:
        """Return the period (begin, end) in which `fault` is active, or None for never."""
        if fault not in self.faults:
            return None
        return _window(self.settings, fault)

    def within(self, fault: str, moment: float) -> bool:
        """Return whether `fault` is active at `moment`."""
        window = self.window(fault)
        return window is not None and window[0] <= moment < window[1]

    def chance(self, of: str) -> random.Random:
        """Return a random generator for the purpose `of`, independent of all others."""
        return chance(self.settings.seed, self.number, of)


def chance(seed: int, number: int, of: str) -> random.Random:
    """Return a generator for one purpose of a gateway: the same arguments give the same numbers."""
    return random.Random(f"{seed}/{number}/{of}")  # noqa: S311 - repeatable


def _window(settings: FleetSettings, fault: str) -> tuple[float, float]:
    return FAULTS[fault].begin * settings.length, FAULTS[fault].end * settings.length


def make_plans(settings: FleetSettings) -> list[Plan]:
    """Plan all gateways of a fleet."""
    placed = spread(settings.faults, settings.gateways, settings.seed, settings.per_fault)
    return [
        Plan(
            settings,
            number,
            faults,
            _clock(settings, number, faults),
            _life(settings, number, faults),
            _link_down(settings, number, faults),
        )
        for number, faults in enumerate(placed, 1)
    ]


def _clock(settings: FleetSettings, number: int, faults: tuple[str, ...]) -> Clock:
    skew = chance(settings.seed, number, "clock").uniform(-_SKEW, _SKEW)
    drift, steps, lost = 0.0, [], []
    for name in faults:
        begin, end = _window(settings, name)
        if name == "clock-years":
            skew += _YEARS
            steps.append((end, -_YEARS))
            lost.append((begin, end))
        elif name == "clock-step":
            steps.append((begin, _STEP))
        elif name == "clock-unsynchronised":
            lost.append((begin, end))
        elif name == "clock-drift":
            drift = _DRIFT
    return Clock(settings.start, skew, drift, tuple(steps), tuple(lost))


def _life(settings: FleetSettings, number: int, faults: tuple[str, ...]) -> Uptime:
    dice = chance(settings.seed, number, "life")
    length = settings.length
    update = length * dice.uniform(0.12, 0.28)
    breaks = [Downtime(update, update + _UPDATE_S, clean=True, version=VERSIONS[1])]
    if number % 3 == 1:
        update = length * dice.uniform(0.62, 0.66)
        breaks.append(Downtime(update, update + _UPDATE_S, clean=True, version=VERSIONS[2]))
    for name in faults:
        breaks += _breaks(name, *_window(settings, name))
    if number % 4 == 0:
        breaks.append(Downtime(length - _LAST_MINUTE, inf, clean=True))
    ids = [_ulid(settings.start, dice) for _ in range(2 * _IDS)]
    return _runs(dice.uniform(0, 1), VERSIONS[0], breaks, sorted(ids[:_IDS]), ids[_IDS:])


def _breaks(name: str, begin: float, end: float) -> list[Downtime]:
    if name == "outage":
        return [Downtime(begin, end, clean=False)]
    if name == "unclean-restart":
        return [Downtime(begin, begin + _CRASH_S, clean=False)]
    if name == "restored":
        return [Downtime(begin, begin + _RESTORE_S, clean=False, renewed=True)]
    return [Downtime(begin, inf, clean=False)] if name == "silent" else []


def _link_down(
    settings: FleetSettings, number: int, faults: tuple[str, ...]
) -> tuple[tuple[float, float], ...]:
    if "evictions" in faults:
        return (_window(settings, "evictions"),)
    if any(FAULTS[name].group == "chain" for name in faults):
        return ()
    dice = chance(settings.seed, number, "link")
    length = settings.length
    begins = dice.uniform(0.05, 0.25) * length, dice.uniform(0.62, 0.7) * length
    return tuple((begin, begin + length * dice.uniform(0.01, 0.03)) for begin in begins)


def _ulid(milliseconds: int, dice: random.Random) -> str:
    number = (milliseconds << 80) | dice.getrandbits(80)
    return "".join(_CROCKFORD[(number >> shift) & 31] for shift in range(125, -1, -5))
