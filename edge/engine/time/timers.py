"""The process's one timer, set to the earliest service second at which something is due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from edge.engine.dispatch.hooks import Context
from edge.engine.log import refusals
from edge.engine.rules.service_time import Now
from edge.engine.sessions import durable_sessions
from edge.engine.store.database import Transaction

LONGEST_WAIT: Final = 60.0
"""Maximum seconds of one wait. The event loop's timers stop while the machine is suspended, but
service seconds do not."""


def run(context: Context, tx: Transaction) -> None:
    """Perform the due tasks of the engine and the features, and set the timer for the next task.

    A task with too much work for one unit of work does a part, and sets the timer to fire at once.
    """
    refusals.close_due_windows(tx, context.limits.refusal_window)
    durable_sessions.end_due(context, tx)
    for hook in context.hooks.on_timer:
        hook(context, tx)


class Timer:
    """Calls `fire` when the earliest service second that it was set to has come."""

    def __init__(self, clock: Callable[[], Now], fire: Callable[[], None]) -> None:
        self._clock = clock
        self._fire = fire
        self._due: float | None = None
        self._handle: asyncio.TimerHandle | None = None

    def set(self, service: float) -> None:
        """Fire at this service second, unless an earlier one is set."""
        if self._due is None or service < self._due:
            self._due = service
            self._start()

    def cancel(self) -> None:
        """Stop the timer."""
        self._due = None
        if self._handle is not None:
            self._handle.cancel()

    def _start(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        if self._due is not None:
            wait = min(max(self._due - self._clock().service, 0.0), LONGEST_WAIT)
            self._handle = asyncio.get_running_loop().call_later(wait, self._wake)

    def _wake(self) -> None:
        if self._due is not None and self._clock().service < self._due:
            self._start()
            return
        self._due = None
        self._fire()
