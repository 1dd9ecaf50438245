"""The loop that ships segments until the centre has acknowledged each.

Before the first one of a run it asks how far the centre is, so that a database that was rolled back
does not give its numbers out again. Holds one segment at a time. Knows no HTTP: a transport offers,
and says what became of it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Final

from sync.common.backoff import Backoff
from sync.segment import identity_path
from sync.uplink.epoch_check import EpochVerdict, compare_epochs
from sync.uplink.interfaces import (
    Backlog,
    BacklogUnavailable,
    HighWatermark,
    SendNotice,
    Transport,
    WaitingSegment,
)
from sync.uplink.notices import NoticeQueue
from sync.uplink.responses import (
    AccessDenial,
    Acknowledgement,
    Conflict,
    Outcome,
    Rejection,
    TemporaryFailure,
)
from sync.uplink.scheduler import UploadScheduler
from sync.uplink.wakeup import Wakeup

_IDLE: Final = 300.0  # seconds before an empty backlog is looked at again without a ring

EPOCH_SPACING: Final = 3600.0
"""Seconds between two epochs that the centre's answers begin: each costs both sides what they
remember of an epoch, and a centre that contradicts again and again gains nothing by more."""

_NEW_EPOCH: Final = {
    EpochVerdict.AHEAD: "the centre has more of this epoch than this gateway: a new one begins",
    EpochVerdict.DIFFERS: "the centre has another's segments of this epoch: a new one begins",
}


class Uploader:
    """Ships what waits of `gateway`. `chance` is uniform in [0, 1), `clock` tells seconds that only
    grow.

    `tell` gets a notice when the state changes: `shipping`, `unreachable`, `denied`, `wrong-digest`
    or `store-unavailable`; one for each segment that is given up: `conflict` or `refused`; and one
    when the centre's copy of the epoch is not ours: `centre-ahead` or `centre-differs`.
    """

    def __init__(
        self,
        gateway: str,
        backlog: Backlog,
        transport: Transport,
        *,
        tell: SendNotice,
        backoff: Backoff | None = None,
        turns: UploadScheduler | None = None,
        chance: Callable[[], float] = random.random,
        bell: Wakeup | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gateway = gateway
        self._backlog = backlog
        self._transport = transport
        self._teller = NoticeQueue(tell)
        self._backoff = backoff or Backoff()
        self._turns = turns or UploadScheduler()
        self._chance = chance
        self._bell = bell or Wakeup()
        self._clock = clock
        self._may_begin: float | None = None
        self._failures = 0
        self._state = "shipping"
        self._compared = False
        self._contradicted: set[str] = set()  # lanes

    def wake(self) -> None:
        """Say that a segment was sealed. A wait after a failure is not cut short by it."""
        self._turns.sealed()
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
            if not self._compared:
                return await self._compare()
            order = self._turns.next()
            waiting = await self._backlog.next_waiting(order)
            if waiting is None:
                self._turns.empty()
                self._failures = 0
                return None
            outcome = await self._transport.put(waiting)
            if isinstance(outcome, Acknowledgement | Conflict | Rejection):
                self._turns.sent(order, len(waiting.data))
            return await self._settle(waiting, outcome)
        except BacklogUnavailable as error:
            return await self._failed("store-unavailable", str(error))

    async def _compare(self) -> float:
        """Ask how far the centre is, and begin a new epoch if this one is another's as well."""
        epoch = await self._backlog.epoch()
        theirs = await self._transport.heads(self._gateway, epoch)
        if isinstance(theirs, AccessDenial | TemporaryFailure):
            return await self._put_off(theirs)
        if isinstance(theirs, Mapping):  # else the centre is older than this question
            verdict = await self._judge(epoch, theirs)
            if verdict is not EpochVerdict.SAME:
                await self._begin_epoch(verdict)
        self._compared = True
        self._contradicted.clear()
        return 0.0

    async def _begin_epoch(self, verdict: EpochVerdict) -> None:
        """Count in a new epoch, if the last that began here is long enough ago.

        Else this one goes on: what the centre contradicts is set aside, and that is told.
        """
        if self._may_begin is not None and self._clock() < self._may_begin:
            return
        await self._backlog.begin_epoch(verdict.value)
        self._may_begin = self._clock() + EPOCH_SPACING
        await self._teller.say(verdict.value, _NEW_EPOCH[verdict])

    async def _judge(self, epoch: str, theirs: Mapping[str, HighWatermark]) -> EpochVerdict:
        ours = await self._backlog.heads()
        known = {
            lane: await self._backlog.sealed_at(epoch, lane, head.last)
            for lane, head in theirs.items()
        }
        return compare_epochs(ours, theirs, known, self._contradicted)

    async def _settle(self, waiting: WaitingSegment, outcome: Outcome) -> float:
        """Do what the outcome asks for, and return seconds to wait."""
        match outcome:
            case Acknowledgement(digest=digest) if digest == waiting.digest:
                await self._backlog.acknowledge(digest)
                self._failures = 0
                await self._change("shipping", "the centre takes segments again")
            case Acknowledgement():
                return await self._failed("wrong-digest", "the centre acknowledged other bytes")
            case Conflict(text=text):
                await self._give_up(waiting, "conflict", "conflict", text)
                await self._doubt(waiting)
            case Rejection(reason=reason, text=text):
                await self._give_up(waiting, "refused", reason, text)
            case AccessDenial() | TemporaryFailure():
                return await self._put_off(outcome)
        return 0.0

    async def _put_off(self, outcome: AccessDenial | TemporaryFailure) -> float:
        """Count a failure that another try may mend, and return seconds to wait."""
        self._turns.lost()
        if isinstance(outcome, AccessDenial):
            await self._failed("denied", outcome.text)
            return self._backoff.delay_denied(self._failures, self._chance())
        delay = await self._failed("unreachable", outcome.text)
        if outcome.after is None:
            return delay
        return self._backoff.delay_retry_after(outcome.after, self._failures, self._chance())

    async def _give_up(self, waiting: WaitingSegment, name: str, reason: str, text: str) -> None:
        """Never offer this segment again, and go on with the next."""
        await self._backlog.set_aside(waiting.digest, reason)
        self._failures = 0
        await self._teller.say(name, f"{identity_path(waiting.identity)}: {text}")

    async def _doubt(self, waiting: WaitingSegment) -> None:
        """Ask once more how far the centre is, if the epoch that goes on is contradicted.

        A segment of an epoch that is over says nothing new: that is why it is over.
        """
        if waiting.identity.epoch == await self._backlog.epoch():
            self._contradicted.add(waiting.identity.lane)
            self._compared = False

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
