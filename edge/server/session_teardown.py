"""Removal of an ended session from the store, with retries if the store cannot do it at once.

The session is removed and its undelivered messages are routed again, in order, in one unit of work.
If the disk is full, the session is removed first, so that no more messages are sent to it. Its
messages then wait in memory for room on the disk. Their senders get errors after `RETRIES`
attempts, or if the waiting messages of all sessions together have too many bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from edge.engine.store.database import SentMessage, Transaction, estimate_size
from edge.errors import StoreError, StoreFull, UnitFault
from edge.server.server_context import ServerContext

RETRY_INTERVAL: Final = 5.0
"""Seconds after a store error until the removal of a session is tried again."""

RETRIES: Final = 12
"""Maximum repetitions of a removal: for a minute, enough for a disk that is briefly full."""


class SessionTeardown:
    """The removal of one session.

    Args:
        messages: the undelivered messages that are not stored in the database, in order.
        end_reason: the reason of the session's end, for the event log.
    """

    def __init__(
        self,
        context: ServerContext,
        generation: int,
        messages: list[SentMessage],
        end_reason: str,
        on_done: Callable[[], None],
    ) -> None:
        self._context = context
        self._generation = generation
        self._messages = messages
        self._end_reason = end_reason
        self._on_done = on_done
        self._late: list[SentMessage] = []  # sent to the session after its end
        self._waiting_bytes = 0  # of the messages that wait for room
        self._retries = RETRIES
        self._timer: asyncio.TimerHandle | None = None
        self._idle = False  # waits for the timer or for a late message
        self._left = False  # has left the store, and has messages to give back

    def start(self) -> None:
        """Remove the session from the store and route all its messages again."""
        lifecycle, generation, late = self._context.lifecycle, self._generation, self._late
        self._idle = False

        def unit(tx: Transaction) -> int:
            lifecycle.end(tx, generation, [*self._messages, *late], self._end_reason)
            return len(late)

        def answer(outcome: int | StoreError) -> None:
            if isinstance(outcome, int):
                del late[:outcome]
                self._messages = []
                self._finish()
            elif isinstance(outcome, StoreFull | UnitFault):
                self._leave(self._retry if isinstance(outcome, StoreFull) else self._give_up)
            else:
                self._retry()

        self._context.store.submit(unit, answer)

    def add(self, message: SentMessage) -> None:
        """Accept a message that was sent to the session after its end, to route it again."""
        self._late.append(message)
        self.retry_now()

    def retry_now(self) -> None:
        """Retry without waiting, because a unit of work has just succeeded."""
        if self._idle:
            if self._timer is not None:
                self._timer.cancel()
            self.start()

    def _leave(self, then: Callable[[], None]) -> None:
        """Remove the session without routing its messages, because the disk has no room for them or
        one of them causes a fault; then call `then`."""
        lifecycle, generation = self._context.lifecycle, self._generation

        def answer(outcome: list[SentMessage] | StoreError) -> None:
            if isinstance(outcome, StoreError):
                self._retry()
                return
            self._left = True
            self._messages += [*self._late, *outcome]
            self._late.clear()
            then()

        self._context.store.submit(
            lambda tx: lifecycle.end_without_messages(tx, generation, self._end_reason), answer
        )

    def _retry(self) -> None:
        """Retry after a while; give up after `RETRIES`, or if too many bytes of messages wait."""
        context, limits = self._context, self._context.settings.limits
        known: dict[int, int] = {}
        size = sum(estimate_size(message, known) for message in self._messages)
        context.returning_bytes += size - self._waiting_bytes
        self._waiting_bytes = size
        if self._retries and context.returning_bytes <= limits.unacknowledged_total_bytes:
            self._retries -= 1
            self._idle = True
            self._timer = self._context.loop.call_later(RETRY_INTERVAL, self.start)
        else:
            self._give_up()

    def _give_up(self) -> None:
        lifecycle, generation = self._context.lifecycle, self._generation
        messages = self._messages
        messages += self._late
        self._late.clear()
        self._context.refusals.add("returned", len(messages))
        self._messages = []

        def unit(tx: Transaction) -> None:
            rest = lifecycle.end_without_messages(tx, generation, self._end_reason)
            lifecycle.reject(tx, [*messages, *rest])

        def answer(outcome: Any) -> None:
            self._release()
            if self._left or not isinstance(outcome, StoreError):
                self._finish()
            else:
                self._idle = True

        self._context.store.submit(unit, answer)

    def _release(self) -> None:
        self._context.returning_bytes -= self._waiting_bytes
        self._waiting_bytes = 0

    def _finish(self) -> None:
        self._release()
        if self._late:  # sent by units of work that ran in transactions of their own
            self.start()
        else:
            self._on_done()
