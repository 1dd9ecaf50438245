"""Handling of changes of the database by other processes, such as commands of the operator."""

from __future__ import annotations

import asyncio
from typing import Final

from edge.engine.dispatch.outputs import EndReason
from edge.engine.sessions import sessions
from edge.errors import StoreError
from edge.server.server_context import ServerContext

RETRY_INTERVAL: Final = 5.0
"""Seconds after which the handling of a change is repeated if it failed."""


class ExternalChanges:
    """Ends the sessions of revoked accounts, and runs the features' hooks, after each change.

    If either fails, both are repeated after `RETRY_INTERVAL`.
    """

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._timer: asyncio.TimerHandle | None = None
        context.store.on_changed.append(self._on_changed)

    def stop(self) -> None:
        """Handle no more changes."""
        self._context.store.on_changed.remove(self._on_changed)
        self._cancel_timer()

    def _on_changed(self) -> None:
        context = self._context
        self._cancel_timer()
        context.store.submit(sessions.unprovisioned, self._end_sessions, heavy=True)
        run_hooks = context.engine.run_external_change
        context.store.submit(run_hooks, self._repeat_failed, heavy=True)

    def _end_sessions(self, outcome: list[int] | StoreError) -> None:
        self._repeat_failed(outcome)
        if not isinstance(outcome, StoreError):
            for generation in outcome:
                self._context.outputs.end(generation, EndReason.REVOKED)

    def _repeat_failed(self, outcome: object) -> None:
        if isinstance(outcome, StoreError):
            self._context.refusals.add_store_error(outcome)
            self._cancel_timer()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(RETRY_INTERVAL, self._on_changed)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
