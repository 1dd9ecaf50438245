"""Rules of service seconds, the time base of all deadlines.

Service seconds count the machine's uptime since `init` (`CLOCK_BOOTTIME`, which nobody sets), plus
the time that it was switched off, if that is known. (The `uptime` of `fieldpost status` is that of
the process.) The time off is the time for which no gateway ran. Within one boot it is known
exactly; across boots it is taken from the wall clock, if that was synchronised before and after:

    start in             synchronised now    time off
    the same boot        (not asked)         from the machine uptime
    another boot         yes                 from the wall clock: service seconds jump at the start
    another boot         not yet             unknown; when known, added to the age of stored rows
    another boot, never synchronised before  unknown, never counted

A time off that becomes known later is added only to the age of rows that were stored before the
start. Setting the wall clock while the gateway runs moves no deadline.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

DAY_MS: Final = 24 * 3600 * 1000
"""Milliseconds of a day."""

STEP: Final = 0.5
"""Minimum seconds by which the wall clock must move against the machine uptime to count as set.
Time daemons correct smaller differences (systemd-timesyncd up to 0.4 s) by a change of the speed of
both clocks; and a busy machine reads the two clocks some milliseconds apart."""

MAX_TIME_OFF: Final = 5 * 365 * 86_400.0
"""Maximum seconds that a gateway can have been switched off; a longer time off is implausible and
not counted. A gateway may be stored for years, but a GPS clock after a week-number rollover is
wrong by 19.6 years, and would expire everything."""


class Now(NamedTuple):
    """A moment: `service` in service seconds, `wall` in milliseconds since 1970 UTC."""

    service: float
    wall: int
    synchronised: bool


class ClockReading(NamedTuple):
    """A reading of the machine's clocks; `boot` is the boot's id, `uptime` the machine uptime."""

    boot: str
    uptime: float
    wall: int
    synchronised: bool


class Run(NamedTuple):
    """A run of the gateway: `boot` is the boot's id; service seconds are uptime plus `lead`."""

    boot: str
    lead: float


class TrustedMoment(NamedTuple):
    """A moment at which the wall clock was synchronised; `wall` in ms since 1970 UTC."""

    service: float
    wall: int


class SavedTime(NamedTuple):
    """The saved state of the clock.

    Attributes:
        service: the service second at which it was saved.
        boot: the boot's id, empty if nothing was saved yet.
        uptime: the machine uptime, in seconds.
        trusted: the last moment at which the wall clock was synchronised.
        before: set while it is unknown for how long the gateway was off. Once that is known, it is
            added to the age of the rows that were stored until this service second.
        clean: whether the run ended cleanly.
    """

    service: float = 0.0
    boot: str = ""
    uptime: float = 0.0
    trusted: TrustedMoment | None = None
    before: float | None = None
    clean: bool = False


class TimeOffSource(StrEnum):
    """The clock that shows for how long the gateway was off, or the reason why this is unknown."""

    UPTIME = "uptime"
    WALL = "wall clock"
    LATER = "not yet"
    IMPLAUSIBLE = "implausible"
    NOTHING = "unknown"


class Start(NamedTuple):
    """A start of the gateway.

    Attributes:
        saved: the state of the clock from which the run continues.
        off: the seconds for which the gateway was off, since the last recorded moment of the
            previous run; 0 if unknown. An implausible time off is not counted.
        known: how `off` is known, or why it is unknown.
        previous: how the previous run ended: `clean`, `unclean` or `unknown`.
    """

    saved: SavedTime
    off: float
    known: TimeOffSource
    previous: str


class TimeOff(NamedTuple):
    """The time for which the gateway was off, if it became known only after the start.

    `seconds` are added to the age of rows stored until the service second `before`.
    """

    before: float
    seconds: float
    known: TimeOffSource


def start_run(saved: SavedTime, reached: float, at: ClockReading) -> Start:
    """Return the start of a run: the state from which it continues, and the time off.

    The time off is the time for which no gateway ran.

    Args:
        saved: the state that the previous run saved last.
        reached: the latest service second in any row of the database, or 0.
        at: the reading of the clocks at the start.
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
    """Return the state to save at the moment `now`, and the `TimeOff` if it has become known now.

    The caller must add the seconds of the `TimeOff` to the age of rows, in the transaction that
    saves the state, so that they are added once.
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
    """Return the seconds by which the wall clock was set between two moments of a run.

    The result is negative if it was set back, and 0 for less than `STEP`.
    """
    moved = (now.wall - last.wall) / 1000 - (now.service - last.service)
    return moved if abs(moved) >= STEP else 0.0


def _previous(saved: SavedTime) -> str:
    if not saved.boot:
        return "unknown"
    return "clean" if saved.clean else "unclean"


def _known(off: float) -> TimeOffSource:
    return TimeOffSource.WALL if off <= MAX_TIME_OFF else TimeOffSource.IMPLAUSIBLE


def _off(trusted: TrustedMoment, service: float, wall: int) -> float:
    """Return the seconds since a trusted moment that the service seconds do not include yet, at
    least 0."""
    return max(0.0, (wall - trusted.wall) / 1000 - (service - trusted.service))
