"""The loop that makes segments of events, lane by lane, as the batcher decides.

Holds one draft at a time. Ships nothing: it rings the uploader's bell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from sync.segment import SegmentHeader, digest_of, encode
from sync.segment.limits import MAX_NAME
from sync.uplink.batcher import BatchLimits, Seal, decide
from sync.uplink.interfaces import (
    Backlog,
    BacklogUnavailable,
    Draft,
    GatewayState,
    GatewayStateSource,
    LaneState,
    SendNotice,
)
from sync.uplink.notices import NoticeQueue
from sync.uplink.wakeup import Wakeup

_SPACING: Final = 0.25  # seconds between two looks: a burst of events is looked at once
_RETRY: Final = 5.0  # seconds before the store is asked again after it could not
_MOST: Final = 1_000  # segments of one lane made without a pause: two million events


def build_header(gateway: str, draft: Draft, state: GatewayState) -> SegmentHeader:
    """Return the header of a draft that is sealed in this state of the gateway."""
    return SegmentHeader(
        gateway=gateway,
        epoch=draft.epoch,
        lane=draft.lane,
        first_seq=draft.events[0].seq,
        last_seq=draft.events[-1].seq,
        previous=draft.previous,
        boot=state.boot[:MAX_NAME],
        sealed_at=state.sealed_at,
        service_seconds=state.service_seconds,
        clock=state.clock,
        firmware=state.firmware[:MAX_NAME],
        software=state.software[:MAX_NAME],
        config_hash=state.config_hash,
        disk_used=state.disk_used,
        dropped=draft.dropped,
    )


class Sealer:
    """Seals what is due. `gateway` is its domain, `clock` tells service seconds.

    `sealed` is called after each segment; `tell` gets a notice when something cannot be sealed.
    """

    def __init__(
        self,
        gateway: str,
        backlog: Backlog,
        facts: GatewayStateSource,
        limits: BatchLimits,
        *,
        clock: Callable[[], float],
        sealed: Callable[[], None],
        tell: SendNotice,
        bell: Wakeup | None = None,
    ) -> None:
        self._gateway = gateway
        self._backlog = backlog
        self._facts = facts
        self._limits = limits
        self._clock = clock
        self._sealed = sealed
        self._teller = NoticeQueue(tell)
        self._bell = bell or Wakeup()
        self._stuck: dict[str, float] = {}  # lanes that cannot be sealed, and until when
        self._unavailable = False

    def wake(self) -> None:
        """Say that events were written: a lane may be full."""
        self._bell.ring()

    async def run(self) -> None:
        """Seal what falls due, until cancelled."""
        while True:
            try:
                wait = await self._look()
            except BacklogUnavailable as error:
                wait = _RETRY
                if not self._unavailable:
                    self._unavailable = True
                    await self._teller.say("store-unavailable", str(error))
            else:
                self._unavailable = False
                await self._teller.catch_up()
            await self._bell.pause(_SPACING)
            await self._bell.wait(wait)

    async def flush(self) -> int:
        """Seal all that is there now, whatever its age, and return how many segments that made.

        For a clean stop. What sealing itself gives rise to waits for the next start: a full backlog
        tells of each segment that it gives up, and that would be sealed for ever. Raises
        `BacklogUnavailable`.
        """
        made = 0
        for state in await self._backlog.lanes():
            left = state.events
            while left > 0 and (count := await self._seal(state.lane)):
                left -= count
                made += 1
        return made

    async def _look(self) -> float:
        """Seal all that is due, by turns, and return for how many seconds nothing will be."""
        for _ in range(_MOST):
            states = await self._backlog.lanes()
            idle = await self._is_idle(states)
            due = [state.lane for state in states if self._due(state, idle)]
            made = [await self._seal(lane) for lane in due]
            if not any(made):
                return self._wait(states, idle)
        return 0.0

    async def _is_idle(self, states: Sequence[LaneState]) -> bool:
        """Tell whether nothing waits to be sent; it is looked for where something is urgent."""
        if all(state.urgent is None for state in states):
            return False
        return await self._backlog.next_waiting() is None

    def _due(self, state: LaneState, idle: bool) -> bool:
        now = self._clock()
        free = self._stuck.get(state.lane, now) <= now
        return free and isinstance(decide(state, self._limits, now, idle=idle), Seal)

    def _wait(self, states: Sequence[LaneState], idle: bool) -> float:
        """Return seconds until the first lane is due, and never more than an event may wait."""
        now = self._clock()
        wait = self._limits.seconds
        for state in states:
            stuck = self._stuck.get(state.lane, now)
            decision = decide(state, self._limits, now, idle=idle)
            if stuck > now:
                wait = min(wait, stuck - now)
            elif isinstance(decision, Seal):
                return 0.0
            elif decision.moment is not None:
                wait = min(wait, decision.moment - now)
        return wait

    async def _seal(self, lane: str) -> int:
        """Seal one segment of a lane, and tell how many events are in it: 0 if there is none."""
        limits = self._limits
        draft = await self._backlog.draft(lane, limits.events, limits.bytes)
        if draft is None:
            return 0
        header = build_header(self._gateway, draft, await self._facts.state())
        try:
            data = await asyncio.to_thread(encode, header, draft.events)
        except ValueError as error:
            await self._mark_stuck(lane, str(error))
            return 0
        if not await self._backlog.seal(draft, data, digest_of(data)):
            return 0
        self._stuck.pop(lane, None)
        self._sealed()
        return len(draft.events)

    async def _mark_stuck(self, lane: str, text: str) -> None:
        """Leave a lane for a while; its events stay where they are, and people are told once."""
        known = lane in self._stuck
        self._stuck[lane] = self._clock() + self._limits.seconds
        if not known:
            await self._teller.say("lane-stuck", f"{lane}: {text}")
