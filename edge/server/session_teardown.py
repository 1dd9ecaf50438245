"""How a session leaves the store once it is over, also where the store cannot do it at once.

It leaves and gives back what its peer has not got in one unit of work, in order. Where there is no
room for that, it leaves first, so that nobody sends to it any more, and what it had waits for room:
a bounded time, within a bound for all, and then who sent it is told. What becomes of a stanza is
`lifecycle`'s and `returned`'s to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from edge.engine.database import Transaction
from edge.errors import StoreError, StoreFull, UnitFault
from edge.server.send_queue import KEPT
from edge.server.shared import Shared

if TYPE_CHECKING:
    from edge.server.session import Session

LEAVE_AGAIN: Final = 5.0
"""Seconds after which a session tries again what the store could not do,"""

LEAVE_TIMES: Final = 12
"""and how often: a minute is enough for a disk that was full for a moment."""


class Leaving:
    """A session that is over, until it has left the store and nothing of it is left to give back.

    Args:
        shared: what all share.
        session: whose `late` are stanzas that were sent to it since it is over.
    """

    def __init__(self, shared: Shared, session: Session) -> None:
        self._shared = shared
        self._session = session
        self._stanzas = session.unconfirmed()
        self._bytes = 0  # of those, while they wait for room
        self._times = LEAVE_TIMES
        self._timer: asyncio.TimerHandle | None = None
        self._waits = False  # for the timer, or for somebody to send something
        self._gone = False  # it has left, and has something to give back
        self._late = session.late
        self._why = session.why
        session.on_late = self._try

    def begin(self) -> None:
        """Leave, and give all back."""
        life, generation, late = self._shared.lifecycle, self._session.generation, self._late
        self._waits = False

        def unit(tx: Transaction) -> int:
            life.leave(tx, generation, [*self._stanzas, *late], self._why)
            return len(late)

        def answer(outcome: int | StoreError) -> None:
            if isinstance(outcome, int):
                del late[:outcome]
                self._stanzas = []
                self._end()
            elif isinstance(outcome, StoreFull | UnitFault):
                self._part(self._wait if isinstance(outcome, StoreFull) else self._give_up)
            else:
                self._wait()

        self._shared.store.submit(unit, answer)

    def _part(self, then: Callable[[], None]) -> None:
        """Leave without giving back: for want of room, or since one of the stanzas is at fault."""
        life, generation = self._shared.lifecycle, self._session.generation

        def answer(outcome: list[bytes] | StoreError) -> None:
            if isinstance(outcome, StoreError):
                self._wait()
                return
            self._gone = True
            self._stanzas += [*self._late, *outcome]
            self._late.clear()
            then()

        self._shared.store.submit(lambda tx: life.part(tx, generation, self._why), answer)

    def _wait(self) -> None:
        """Try again after a while; where that was often enough, or too much waits, give up."""
        registry, limits = self._shared.registry, self._shared.settings.limits
        size = sum(len(stanza) + KEPT for stanza in self._stanzas)
        registry.returning += size - self._bytes
        self._bytes = size
        if self._times and registry.returning <= limits.unacknowledged_total_bytes:
            self._times -= 1
            self._waits = True
            self._timer = self._shared.loop.call_later(LEAVE_AGAIN, self.begin)
        else:
            self._give_up()

    def _give_up(self) -> None:
        """Tell who sent what cannot be given back, and count it."""
        life, generation, stanzas = self._shared.lifecycle, self._session.generation, self._stanzas
        stanzas += self._late
        self._late.clear()
        self._shared.tally.add("returned", len(stanzas))
        self._stanzas = []

        def unit(tx: Transaction) -> None:
            rest = life.part(tx, generation, self._why)
            life.refuse(tx, [*stanzas, *rest])

        def answer(outcome: Any) -> None:
            self._release()
            if self._gone or not isinstance(outcome, StoreError):
                self._end()
            else:
                self._waits = True

        self._shared.store.submit(unit, answer)

    def _try(self) -> None:
        """Leave now, if it waits: something was sent to it, so the store can do things again."""
        if self._waits:
            if self._timer is not None:
                self._timer.cancel()
            self.begin()

    def _release(self) -> None:
        self._shared.registry.returning -= self._bytes
        self._bytes = 0

    def _end(self) -> None:
        self._release()
        if self._late:  # sent by units before, in transactions of their own
            self.begin()
        else:
            self._session.forget()
