"""Read the clocks of the machine; `service_time` has the rules for their readings.

Source: adjtimex(2).
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from edge.engine.rules.service_time import STEP, ClockReading, Now, Run

SYNC_CHECK: Final = 1.0
"""Seconds between two checks whether the wall clock is synchronised. If the clock is set, it is
checked at once."""


_Timex: Final = ctypes.c_char * 256
"""A buffer for `struct timex`: more bytes than on any Linux. If all are zero, adjtimex only reads.
"""

_TIME_ERROR: Final = 5


def uptime() -> float:
    """Return the machine uptime: seconds since the boot, including those while it was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def wall() -> int:
    """Return the wall clock's time in ms since 1970 UTC."""
    return time.time_ns() // 1_000_000


def boot_id() -> str:
    """Return the kernel's id of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def is_clock_synchronised() -> bool:
    """Return whether the kernel considers the wall clock synchronised; time daemons set this
    state."""
    adjtimex = _adjtimex()
    return adjtimex is not None and adjtimex(_Timex()) in range(_TIME_ERROR)


@cache
def _adjtimex() -> Callable[[ctypes.Array[ctypes.c_char]], int] | None:
    return getattr(ctypes.CDLL(None), "adjtimex", None)


class MachineClocks(NamedTuple):
    """The functions that read the machine's clocks; tests replace them."""

    uptime: Callable[[], float] = uptime
    wall: Callable[[], int] = wall
    synchronised: Callable[[], bool] = is_clock_synchronised
    boot: Callable[[], str] = boot_id

    def read(self) -> ClockReading:
        """Read whether the wall clock is synchronised, and then the clocks. In this order, a time
        that was wrong is never taken for a synchronised one."""
        synchronised = self.synchronised()
        return ClockReading(self.boot(), self.uptime(), self.wall(), synchronised)


class Clock:
    """The gateway's clock: call it for the present moment, from any thread.

    `saved` is the service second from which the clock continues.
    """

    def __init__(self, saved: float, machine: MachineClocks | None = None) -> None:
        self._machine = machine or MachineClocks()
        at = self._machine.read()
        self.run = Run(at.boot, saved - at.uptime)
        self._checked_at = at.uptime
        self._synchronised = at.synchronised
        self._ahead = at.wall / 1000 - at.uptime

    def __call__(self) -> Now:
        """Return the present moment."""
        machine = self._machine
        up = machine.uptime()
        if up - self._checked_at > SYNC_CHECK:
            self._check_synchronised(up)
        wall = machine.wall()
        ahead = wall / 1000 - up
        if abs(ahead - self._ahead) >= STEP:  # the wall clock was set
            self._ahead = ahead
            self._check_synchronised(up)
            wall = machine.wall()
        return Now(self.run.lead + up, wall, self._synchronised)

    def _check_synchronised(self, up: float) -> None:
        self._checked_at = up
        self._synchronised = self._machine.synchronised()
