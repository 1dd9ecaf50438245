"""One alarm for all that falls due, set to the earliest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from edge.engine.service_time import Now

LONGEST: Final = 60.0
"""Seconds of one wait: the event loop's timers stand still while the machine is suspended, and
service seconds do not."""


class Alarm:
    """Calls `ring` when the earliest service second it was set to has come."""

    def __init__(self, clock: Callable[[], Now], ring: Callable[[], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._due: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def set(self, service: float) -> None:
        """Ring at this service second too; a later one than what is set changes nothing."""
        if self._due is None or service < self._due:
            self._due = service
            self._start()

    def cancel(self) -> None:
        """Ring no more."""
        self._due = None
        if self._timer is not None:
            self._timer.cancel()

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._due is not None:
            wait = min(max(self._due - self._clock().service, 0.0), LONGEST)
            self._timer = asyncio.get_running_loop().call_later(wait, self._fire)

    def _fire(self) -> None:
        if self._due is not None and self._clock().service < self._due:
            self._start()
            return
        self._due = None
        self._ring()
