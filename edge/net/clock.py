"""Reading the clocks of the machine.

What their readings mean is `rules.clock`'s. Whether the wall clock is synchronised is asked of the
kernel, which time daemons tell (adjtimex(2)).
"""

from __future__ import annotations

import ctypes
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from edge.rules.clock import Now, ServiceClock

if TYPE_CHECKING:
    from collections.abc import Callable

SYNC_CHECK: Final = 1.0
"""Seconds for which the kernel's answer is good."""

_TIMEX_BYTES: Final = 256
"""More than `struct timex` has on any Linux; all zero, it asks and changes nothing."""

_TIME_ERROR: Final = 5


class Clock:
    """The gateway's clock: call it for the present moment, from any thread."""

    def __init__(self, saved: float, synchronised: Callable[[], bool] | None = None) -> None:
        self._service = ServiceClock(saved, time.monotonic())
        self._ask = synchronised or kernel_synchronised
        self._synchronised = self._ask()
        self._asked = time.monotonic()

    def __call__(self) -> Now:
        """Return the present moment."""
        monotonic = time.monotonic()
        if monotonic - self._asked > SYNC_CHECK:
            self._asked = monotonic
            self._synchronised = self._ask()
        wall = time.time_ns() // 1_000_000
        return Now(self._service.at(monotonic), wall, self._synchronised)


def kernel_synchronised() -> bool:
    """Tell whether the kernel holds the wall clock for synchronised."""
    adjtimex = _adjtimex()
    return adjtimex is not None and adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES)) in range(
        _TIME_ERROR
    )


@cache
def _adjtimex() -> Callable[[ctypes.Array[ctypes.c_char]], int] | None:
    return getattr(ctypes.CDLL(None), "adjtimex", None)


def boot_id() -> str:
    """Return the kernel's id of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
