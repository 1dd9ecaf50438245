"""Seal events into segments, lane by lane, when the batcher decides so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from typing import Final

from sync.segment import SegmentHeader, digest_of, encode
from sync.segment.limits import MAX_NAME
from sync.uplink.batcher import BatchLimits, seal_time
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

_MIN_INTERVAL_S: Final = 0.25  # seconds between two checks: a burst of events is checked once
_RETRY_S: Final = 5.0  # seconds before the next attempt after the store was unavailable
_MAX_ROUNDS: Final = 1_000  # segments of one lane sealed without a pause: two million events


def build_header(gateway: str, draft: Draft, state: GatewayState) -> SegmentHeader:
    """Return the header of a segment that is sealed in this state of the gateway."""
    texts = {name: getattr(state, name)[:MAX_NAME] for name in ("boot", "firmware", "software")}
    return SegmentHeader(
        gateway=gateway,
        epoch=draft.epoch,
        lane=draft.lane,
        first_seq=draft.events[0].seq,
        last_seq=draft.events[-1].seq,
        previous=draft.previous,
        dropped=draft.dropped,
        **state._asdict() | texts,
    )


class Sealer:
    """Seals the lanes of `gateway`, one segment in memory at a time.

    `clock` returns service seconds. `on_sealed` is called after each segment; `send_notice`
    receives a notice when something cannot be sealed.
    """

    def __init__(
        self,
        gateway: str,
        backlog: Backlog,
        state_source: GatewayStateSource,
        limits: BatchLimits,
        *,
        clock: Callable[[], float],
        on_sealed: Callable[[], None],
        send_notice: SendNotice,
        wakeup: Wakeup | None = None,
    ) -> None:
        self._gateway = gateway
        self._backlog = backlog
        self._state_source = state_source
        self._limits = limits
        self._clock = clock
        self._on_sealed = on_sealed
        self._notices = NoticeQueue(send_notice)
        self._wakeup = wakeup or Wakeup()
        self._blocked_until: dict[str, float] = {}  # lanes that cannot be encoded
        self._unavailable = False

    def set_limits(self, limits: BatchLimits) -> None:
        """Use other limits, and seal lanes that are due by them."""
        self._limits = limits
        self.wake()

    def wake(self) -> None:
        """Check the lanes soon, because events were written."""
        self._wakeup.wake()

    async def run(self) -> None:
        """Seal the lanes that are due, until cancelled."""
        while True:
            try:
                wait = await self._seal_due()
            except BacklogUnavailable as error:
                wait = _RETRY_S
                if not self._unavailable:
                    self._unavailable = True
                    await self._notices.send("store-unavailable", str(error))
            else:
                self._unavailable = False
                await self._notices.flush()
            await self._wakeup.pause(_MIN_INTERVAL_S)
            await self._wakeup.wait(wait)

    async def flush(self) -> int:
        """Seal all current events for a clean stop; return the number of segments.

        Events written meanwhile are left for the next start. Otherwise sealing might never end: a
        full backlog logs each segment that it discards. Raises `BacklogUnavailable`.
        """
        segments = 0
        for state in await self._backlog.lanes():
            left = state.events
            while left > 0 and (count := await self._seal(state.lane)):
                left -= count
                segments += 1
        return segments

    async def _seal_due(self) -> float:
        """Seal each lane that is due; return the seconds until the next lane is due."""
        for _ in range(_MAX_ROUNDS):
            states = await self._backlog.lanes()
            idle = await self._is_idle(states)
            due = [state.lane for state in states if not self._time_until_due(state, idle)]
            counts = [await self._seal(lane) for lane in due]
            if not any(counts):
                waits = [self._time_until_due(state, idle) for state in states]
                return min(waits, default=self._limits.seconds)
        return 0.0

    async def _is_idle(self, states: Sequence[LaneState]) -> bool:
        """Return whether no segment waits to be sent; False, unchecked, if no event is urgent."""
        if all(state.urgent is None for state in states):
            return False
        return await self._backlog.next_waiting() is None

    def _time_until_due(self, state: LaneState, idle: bool) -> float:
        """Return the seconds, at most `limits.seconds`, until a lane is due or checked again."""
        now = self._clock()
        due = self._blocked_until.get(state.lane, now)
        if due <= now:
            at = seal_time(state, self._limits, now, idle=idle)
            due = inf if at is None else at
        return min(max(0.0, due - now), self._limits.seconds)

    async def _seal(self, lane: str) -> int:
        """Seal one segment of a lane; return the number of its events, 0 if none was sealed."""
        limits = self._limits
        draft = await self._backlog.draft(lane, limits.events, limits.bytes)
        if draft is None:
            return 0
        header = build_header(self._gateway, draft, await self._state_source.state())
        try:
            data = await asyncio.to_thread(encode, header, draft.events)
        except ValueError as error:
            await self._block(lane, str(error))
            return 0
        if not await self._backlog.seal(draft, data, digest_of(data)):
            return 0
        self._blocked_until.pop(lane, None)
        self._on_sealed()
        return len(draft.events)

    async def _block(self, lane: str, text: str) -> None:
        """Skip a lane for `limits.seconds` and send one notice; its events stay in the store."""
        was_blocked = lane in self._blocked_until
        self._blocked_until[lane] = self._clock() + self._limits.seconds
        if not was_blocked:
            await self._notices.send("lane-stuck", f"the lane {lane} cannot be sealed: {text}")
