"""Send segments until the centre has acknowledged each of them."""

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

_IDLE_CHECK_S: Final = 300.0  # seconds before an empty backlog is checked again without a wakeup

MIN_EPOCH_INTERVAL_S: Final = 3600.0
"""Minimum seconds between two epochs begun because of the centre's answers. Each epoch costs both
sides memory, and a centre that contradicts repeatedly must not cause many."""

_NEW_EPOCH_TEXT: Final = {
    EpochVerdict.AHEAD: "the centre has later events of this epoch than this gateway, probably "
    "because the gateway's database was restored; a new epoch begins",
    EpochVerdict.DIFFERS: "the centre has different segments of this epoch, probably from a copy "
    "of this gateway; a new epoch begins",
}


class Uploader:
    """Sends the waiting segments of `gateway`.

    `chance` returns random numbers, uniform in [0, 1); `clock` returns monotonic seconds.
    `send_notice` receives a notice when the state changes: `shipping`, `unreachable`, `denied`,
    `wrong-digest` or `store-unavailable`; for each segment that is given up: `conflict` or
    `refused`; and when the centre's copy of the epoch differs: `centre-ahead` or `centre-differs`.
    """

    def __init__(
        self,
        gateway: str,
        backlog: Backlog,
        transport: Transport,
        *,
        send_notice: SendNotice,
        scheduler: UploadScheduler | None = None,
        chance: Callable[[], float] = random.random,
        wakeup: Wakeup | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gateway = gateway
        self._backlog = backlog
        self._transport = transport
        self._notices = NoticeQueue(send_notice)
        self._backoff = Backoff()
        self._scheduler = scheduler or UploadScheduler()
        self._chance = chance
        self._wakeup = wakeup or Wakeup()
        self._clock = clock
        self._next_epoch_at: float | None = None
        self._failures = 0
        self._state = "shipping"
        self._compared = False
        self._conflicting_lanes: set[str] = set()

    def wake(self) -> None:
        """Send soon, because a segment was sealed. A wait after a failure keeps its full length."""
        self._scheduler.sealed()
        self._wakeup.wake()

    async def run(self) -> None:
        """Send waiting segments, until cancelled."""
        while True:
            delay = await self._step()
            if delay is None:
                await self._wakeup.wait(_IDLE_CHECK_S)
            elif delay:
                await self._wakeup.pause(delay)

    async def _step(self) -> float | None:
        """Send one segment; return the seconds to wait then, None if there was no segment."""
        try:
            await self._notices.flush()
            if not self._compared:
                return await self._compare_epoch()
            order = self._scheduler.next()
            waiting = await self._backlog.next_waiting(order)
            if waiting is None:
                self._scheduler.emptied()
                self._failures = 0
                return None
            outcome = await self._transport.put(waiting)
            if isinstance(outcome, Acknowledgement | Conflict | Rejection):
                self._scheduler.sent(order, len(waiting.data))
            return await self._apply(waiting, outcome)
        except BacklogUnavailable as error:
            return await self._failed("store-unavailable", str(error))

    async def _compare_epoch(self) -> float:
        """Compare the centre's copy of the epoch; begin a new epoch if it is ahead or differs.

        Done before the first segment of a run, so that a restored database does not assign
        sequence numbers again. Return the seconds to wait.
        """
        epoch = await self._backlog.epoch()
        theirs = await self._transport.high_watermarks(self._gateway, epoch)
        if isinstance(theirs, AccessDenial | TemporaryFailure):
            return await self._back_off(theirs)
        if isinstance(theirs, Mapping):  # otherwise the centre's version cannot answer
            verdict = await self._compare(epoch, theirs)
            if verdict is not EpochVerdict.SAME:
                await self._begin_epoch(verdict)
        self._compared = True
        self._conflicting_lanes.clear()
        return 0.0

    async def _begin_epoch(self, verdict: EpochVerdict) -> None:
        """Begin a new epoch, unless the last one was begun recently.

        In that case the current epoch continues, and segments in conflict are set aside.
        """
        if self._next_epoch_at is not None and self._clock() < self._next_epoch_at:
            return
        await self._backlog.begin_epoch(verdict.value)
        self._next_epoch_at = self._clock() + MIN_EPOCH_INTERVAL_S
        await self._notices.send(verdict.value, _NEW_EPOCH_TEXT[verdict])

    async def _compare(self, epoch: str, theirs: Mapping[str, HighWatermark]) -> EpochVerdict:
        ours = await self._backlog.high_watermarks()
        digests = {
            lane: await self._backlog.digest_at(epoch, lane, mark.last)
            for lane, mark in theirs.items()
        }
        return compare_epochs(ours, theirs, digests, self._conflicting_lanes)

    async def _apply(self, waiting: WaitingSegment, outcome: Outcome) -> float:
        match outcome:
            case Acknowledgement(digest=digest) if digest == waiting.digest:
                await self._backlog.acknowledge(digest)
                self._failures = 0
                await self._set_state("shipping", "the centre accepts segments again")
            case Acknowledgement():
                text = "the centre acknowledged a digest that is not that of the segment"
                return await self._failed("wrong-digest", text)
            case Conflict(text=text):
                await self._give_up(waiting, "conflict", "conflict", text)
                await self._compare_again(waiting)
            case Rejection(reason=reason, text=text):
                await self._give_up(waiting, "refused", reason, text)
            case AccessDenial() | TemporaryFailure():
                return await self._back_off(outcome)
        return 0.0

    async def _back_off(self, outcome: AccessDenial | TemporaryFailure) -> float:
        """Count a failure that may be temporary; return the seconds to wait."""
        self._scheduler.disconnected()
        if isinstance(outcome, AccessDenial):
            await self._failed("denied", outcome.text)
            return self._backoff.delay_denied(self._failures, self._chance())
        delay = await self._failed("unreachable", outcome.text)
        if outcome.after is None:
            return delay
        return self._backoff.delay_retry_after(outcome.after, self._failures, self._chance())

    async def _give_up(self, waiting: WaitingSegment, name: str, reason: str, text: str) -> None:
        await self._backlog.set_aside(waiting.digest, reason)
        self._failures = 0
        await self._notices.send(name, f"{identity_path(waiting.identity)}: {text}")

    async def _compare_again(self, waiting: WaitingSegment) -> None:
        """Compare the epoch once more if a segment of the current epoch is in conflict.

        Conflicts in earlier epochs are ignored: a new epoch has begun because of them.
        """
        if waiting.identity.epoch == await self._backlog.epoch():
            self._conflicting_lanes.add(waiting.identity.lane)
            self._compared = False

    async def _failed(self, state: str, text: str) -> float:
        self._failures += 1
        await self._set_state(state, text)
        return self._backoff.delay(self._failures, self._chance())

    async def _set_state(self, state: str, text: str) -> None:
        """Send a notice if the state changes, so that a long outage causes one notice."""
        if state != self._state:
            self._state = state
            await self._notices.send(state, text)
