"""Reading the clocks of the machine.

What their readings mean is `rules.clock`'s. Whether the wall clock is synchronised is told by
`hardware`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from edge.engine.service_time import STEP, ClockReading, Now, Run, ServiceClock
from edge.ops import hardware

SYNC_CHECK: Final = 1.0
"""Seconds for which the kernel's answer is good, unless the wall clock is set meanwhile."""


def uptime() -> float:
    """Return the seconds since the boot, those of a suspended machine included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def wall() -> int:
    """Return the wall clock's time in ms since 1970 UTC."""
    return time.time_ns() // 1_000_000


def boot_id() -> str:
    """Return the kernel's id of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


class MachineClocks(NamedTuple):
    """Where the readings come from: the functions above, or a test's."""

    uptime: Callable[[], float] = uptime
    wall: Callable[[], int] = wall
    synchronised: Callable[[], bool] = hardware.clock_synchronised
    boot: Callable[[], str] = boot_id

    def read(self) -> ClockReading:
        """Read all clocks; whether the wall clock is synchronised first, since it may become so."""
        synchronised = self.synchronised()
        return ClockReading(self.boot(), self.uptime(), self.wall(), synchronised)


class Clock:
    """The gateway's clock: call it for the present moment, from any thread.

    `saved` is the service second to go on from.
    """

    def __init__(self, saved: float, machine: MachineClocks | None = None) -> None:
        self._machine = machine or MachineClocks()
        at = self._machine.read()
        self._service = ServiceClock(saved, at.uptime)
        self.run = Run(at.boot, self._service.lead)
        self._asked = at.uptime
        self._synchronised = at.synchronised
        self._ahead = at.wall / 1000 - at.uptime

    def __call__(self) -> Now:
        """Return the present moment."""
        machine = self._machine
        up = machine.uptime()
        if up - self._asked > SYNC_CHECK:
            self._ask(up)
        shown = machine.wall()
        ahead = shown / 1000 - up
        if abs(ahead - self._ahead) >= STEP:  # it was set: by a time daemon, or by somebody
            self._ahead = ahead
            self._ask(up)
            shown = machine.wall()
        return Now(self._service.at(up), shown, self._synchronised)

    def _ask(self, up: float) -> None:
        self._asked = up
        self._synchronised = self._machine.synchronised()
