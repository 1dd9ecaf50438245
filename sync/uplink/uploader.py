"""The loop that ships segments, the oldest first, until the centre has acknowledged each.

Holds one segment at a time. Knows no HTTP: a transport offers, and says what became of it.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from sync.format import identity_path
from sync.uplink.backoff import Backoff
from sync.uplink.bell import Bell
from sync.uplink.outcomes import Conflict, Denied, Landed, Later, Refused
from sync.uplink.ports import BacklogUnavailable
from sync.uplink.telling import Teller

if TYPE_CHECKING:
    from collections.abc import Callable

    from sync.uplink.outcomes import Outcome
    from sync.uplink.ports import Backlog, Tell, Transport, Waiting

_IDLE: Final = 300.0  # seconds before an empty backlog is looked at again without a ring


class Uploader:
    """Ships what waits. `chance` is uniform in [0, 1).

    `tell` gets a notice when the state changes: `shipping`, `unreachable`, `denied`, `wrong-digest`
    or `store-unavailable`; and one for each segment that is given up: `conflict` or `refused`.
    """

    def __init__(
        self,
        backlog: Backlog,
        transport: Transport,
        *,
        tell: Tell,
        backoff: Backoff | None = None,
        chance: Callable[[], float] = random.random,
        bell: Bell | None = None,
    ) -> None:
        self._backlog = backlog
        self._transport = transport
        self._teller = Teller(tell)
        self._backoff = backoff or Backoff()
        self._chance = chance
        self._bell = bell or Bell()
        self._failures = 0
        self._state = "shipping"

    def wake(self) -> None:
        """Say that a segment was sealed. A wait after a failure is not cut short by it."""
        self._bell.ring()

    async def run(self) -> None:
        """Ship what waits, until cancelled."""
        while True:
            delay = await self._step()
            if delay is None:
                await self._bell.wait(_IDLE)
            elif delay:
                await self._bell.pause(delay)

    async def _step(self) -> float | None:
        """Offer one segment; return seconds to wait then, None if there was none."""
        try:
            await self._teller.catch_up()
            waiting = await self._backlog.next_waiting()
            if waiting is None:
                self._failures = 0
                return None
            return await self._settle(waiting, await self._transport.put(waiting))
        except BacklogUnavailable as error:
            return await self._failed("store-unavailable", str(error))

    async def _settle(self, waiting: Waiting, outcome: Outcome) -> float:
        """Do what the outcome asks for, and return seconds to wait."""
        match outcome:
            case Landed(digest=digest) if digest == waiting.digest:
                await self._backlog.acknowledge(digest)
                self._failures = 0
                await self._change("shipping", "the centre takes segments again")
            case Landed():
                return await self._failed("wrong-digest", "the centre acknowledged other bytes")
            case Conflict(text=text):
                await self._give_up(waiting, "conflict", "conflict", text)
            case Refused(reason=reason, text=text):
                await self._give_up(waiting, "refused", reason, text)
            case Denied(text=text):
                await self._failed("denied", text)
                return self._backoff.delay_denied(self._failures, self._chance())
            case Later(text=text, after=after):
                delay = await self._failed("unreachable", text)
                if after is None:
                    return delay
                return self._backoff.delay_told(after, self._failures, self._chance())
        return 0.0

    async def _give_up(self, waiting: Waiting, name: str, reason: str, text: str) -> None:
        """Never offer this segment again, and go on with the next."""
        await self._backlog.set_aside(waiting.digest, reason)
        self._failures = 0
        await self._teller.say(name, f"{identity_path(waiting.identity)}: {text}")

    async def _failed(self, name: str, text: str) -> float:
        """Count a failure and return seconds to wait."""
        self._failures += 1
        await self._change(name, text)
        return self._backoff.delay(self._failures, self._chance())

    async def _change(self, state: str, text: str) -> None:
        """Tell people when it is another state than before: a long outage is told once."""
        if state != self._state:
            self._state = state
            await self._teller.say(state, text)
