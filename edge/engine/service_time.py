"""Time as the rules see it: what the machine's clocks say, and what follows for deadlines.

Deadlines count service seconds: the time that the machine was up since `init`, by a clock that
nobody sets (`CLOCK_BOOTTIME`), and what it was switched off, where that is known. Within one boot
it is known exactly, also while no gateway ran. Beyond, the wall clock tells, if it was synchronised
before and after:

    start in             synchronised now    time off
    the same boot        (not asked)         by the uptime, exact
    another boot         yes                 by the wall clock: service seconds jump before anybody
                                             reads them
    another boot         not yet             not known: what is stored is made older when it is
    any, never synchronised before           not known, not counted

So nothing that came between such a start and the first trusted moment gets older by a time in which
it was not there; and a wall clock that is set while the gateway runs moves no deadline at all.

Reading the clocks, and keeping what is saved, are not done here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

STEP: Final = 0.5
"""Seconds by which the wall clock has to move against the uptime to have been set: time daemons
slew what is less (systemd-timesyncd up to 0.4 s), and that moves both; two clocks of a busy machine
are read some milliseconds apart."""

LONGEST_OFF: Final = 5 * 365 * 86_400.0
"""Seconds that a gateway may have been switched off: it may lie on a shelf for years, but a clock
that lost a GPS epoch is wrong by 19.6, and would expire everything."""


class Now(NamedTuple):
    """One moment: `service` in seconds of service, `wall` in milliseconds since 1970 UTC."""

    service: float
    wall: int
    synchronised: bool


class ClockReading(NamedTuple):
    """What the machine's clocks say: the id of the boot, seconds since it, and the wall clock."""

    boot: str
    uptime: float
    wall: int
    synchronised: bool


class Run(NamedTuple):
    """One run of the gateway: in which boot, and how far service seconds lead its uptime."""

    boot: str
    lead: float


class TrustedMoment(NamedTuple):
    """A moment at which the wall clock was synchronised; `wall` in ms since 1970 UTC."""

    service: float
    wall: int


class SavedTime(NamedTuple):
    """What is kept of time. `boot` is empty where nothing was saved yet.

    `trusted` is the last trusted moment. `before` is set while a time off is not known yet: what
    was stored until then was there during it. `clean` is set by the end of a run, and by nothing
    else.
    """

    service: float = 0.0
    boot: str = ""
    uptime: float = 0.0
    trusted: TrustedMoment | None = None
    before: float | None = None
    clean: bool = False


class TimeOffSource(StrEnum):
    """How it is known for how long the gateway did not run."""

    UPTIME = "uptime"
    WALL = "wall clock"
    LATER = "not yet"
    IMPLAUSIBLE = "implausible"
    NOTHING = "unknown"


class Start(NamedTuple):
    """A start: `saved` with the service seconds to go on from, and the time off.

    `off` is in seconds since the last sign of the run before, 0 where it is not known, and not
    counted where it is implausible. `previous` says how that run ended: `clean`, `unclean` or
    `unknown`.
    """

    saved: SavedTime
    off: float
    known: TimeOffSource
    previous: str


class TimeOff(NamedTuple):
    """A time off that became known late: what was stored `before` then is older by `seconds`."""

    before: float
    seconds: float
    known: TimeOffSource


class ServiceClock:
    """Turns the uptime (seconds) into service seconds, continuing what was saved."""

    __slots__ = ("lead",)

    def __init__(self, saved: float, uptime: float) -> None:
        self.lead = saved - uptime

    def at(self, uptime: float) -> float:
        """Service seconds at this reading of the uptime."""
        return self.lead + uptime


def start_run(saved: SavedTime, reached: float, at: ClockReading) -> Start:
    """Say from which service second a run goes on.

    Args:
        saved: what the run before saved last.
        reached: the service second that rows show to have been reached since, or 0.
        at: the clocks at the start.
    """
    reached = max(saved.service, reached)
    service, off = reached, 0.0
    trusted, before = saved.trusted, saved.before
    if saved.boot == at.boot and at.uptime >= saved.uptime:
        known = TimeOffSource.UPTIME
        off = max(0.0, saved.service + at.uptime - saved.uptime - reached)
        service = reached + off
    elif trusted is None:
        known = TimeOffSource.NOTHING
    elif before is not None or not at.synchronised:
        known = TimeOffSource.LATER
        before = reached if before is None else before
    else:
        off = _off(trusted, reached, at.wall)
        known = _known(off)
        service = reached + off if known is TimeOffSource.WALL else reached
        trusted = TrustedMoment(service, at.wall)
    here = SavedTime(service, at.boot, at.uptime, trusted, before)
    return Start(here, off, known, _previous(saved))


def advance(saved: SavedTime, run: Run, now: Now) -> tuple[SavedTime, TimeOff | None]:
    """Return what is to be saved at this moment, and the time off that it makes known.

    That is counted in the transaction that saves, once.
    """
    here = saved._replace(
        service=now.service, boot=run.boot, uptime=now.service - run.lead, clean=False
    )
    if not now.synchronised:
        return here, None
    late = None
    if saved.before is not None and saved.trusted is not None:
        seconds = _off(saved.trusted, now.service, now.wall)
        late = TimeOff(saved.before, seconds, _known(seconds))
    return here._replace(trusted=TrustedMoment(now.service, now.wall), before=None), late


def clock_step(last: Now, now: Now) -> float:
    """Return by how many seconds the wall clock was set between two moments of a run.

    Negative if it was set back, 0 if it was not set by as much as `STEP`.
    """
    moved = (now.wall - last.wall) / 1000 - (now.service - last.service)
    return moved if abs(moved) >= STEP else 0.0


def _previous(saved: SavedTime) -> str:
    if not saved.boot:
        return "unknown"
    return "clean" if saved.clean else "unclean"


def _known(off: float) -> TimeOffSource:
    return TimeOffSource.WALL if off <= LONGEST_OFF else TimeOffSource.IMPLAUSIBLE


def _off(trusted: TrustedMoment, service: float, wall: int) -> float:
    """Return the seconds since a trusted moment that service seconds do not have, at least 0."""
    return max(0.0, (wall - trusted.wall) / 1000 - (service - trusted.service))
