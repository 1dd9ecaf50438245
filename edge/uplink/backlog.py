"""The gateway's database as the backlog of `sync.uplink`: sealing, upload results, new epochs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from edge.config.limits import REJECTED_SEGMENT_BYTES
from edge.config.load import Config
from edge.engine.rules.service_time import Now
from edge.engine.store import events, meta
from edge.engine.store.database import Transaction
from edge.engine.store.events import EVENT_OVERHEAD, NewEvent
from edge.engine.store.group_commit import Store
from edge.errors import StoreBroken, StoreError
from edge.features.eventlog.rules import eviction
from edge.features.eventlog.rules.eviction import BacklogQuota, EventWeight, SegmentContent
from edge.features.eventlog.store import epochs, lost_ranges, segments, uplink_view
from edge.features.eventlog.store.lost_ranges import LostRange
from sync.segment import Dropped, Event, Identity, digest_of, encode
from sync.uplink import interfaces
from sync.uplink.interfaces import (
    BacklogUnavailable,
    Draft,
    GatewayState,
    HighWatermark,
    LaneState,
    Notice,
    SendOrder,
    WaitingSegment,
)
from sync.uplink.sealer import build_header

T = TypeVar("T")

EVICTED: Final = "backlog-full"
"""Reason of the loss of a range of events: it was dropped because the backlog was full."""

NOT_SEALED: Final = "not-sealed"
"""Reason of the loss of a range of events: its epoch ended, and it could not be sealed."""


class StoreBacklog:
    """The gateway's database as a `sync.uplink.interfaces.Backlog`, which describes the methods."""

    def __init__(self, store: Store, config: Config, facts: interfaces.GatewayStateSource) -> None:
        self._store = store
        self._config = config
        self.facts = facts
        self._gateway = config.gateway.domain
        self._limits = config.limits
        self._settled = asyncio.Event()
        self._closed = False

    def close(self) -> None:
        """Refuse to log any further event, so that the closing event is the last.

        What would log an event is not done any more: segments are sealed, but none is evicted, so
        the backlog may exceed its quota by one or two segments per lane. A segment that the centre
        rejects is not set aside; it is sent and rejected again in the next run.
        """
        self._closed = True

    async def lanes(self) -> list[LaneState]:
        return await self._read(lambda tx: [LaneState(*lane) for lane in events.unsealed_lanes(tx)])

    async def draft(self, lane: str, max_events: int, max_bytes: int) -> Draft | None:
        return await self._read(lambda tx: _draft(tx, lane, max_events, max_bytes))

    async def seal(self, draft: Draft, data: bytes, digest: bytes) -> bool:
        """Store a segment, delete its events, and keep the backlog within its quota."""

        def unit(tx: Transaction) -> bool:
            if not _seal(tx, draft, data, digest):
                return False
            if not self._closed:
                enforce_quota(tx, backlog_quota(self._config))
            return True

        return await self._run(unit)

    async def next_waiting(self, order: SendOrder = SendOrder.OLDEST) -> WaitingSegment | None:
        newest = order is SendOrder.NEWEST
        found = await self._read(lambda tx: segments.next_waiting(tx, newest=newest))
        if found is None:
            return None
        identity = Identity(self._gateway, found.epoch, found.lane, found.first, found.last)
        return WaitingSegment(identity, found.digest, found.data)

    async def epoch(self) -> str:
        return await self._read(meta.epoch)

    async def digest_at(self, epoch: str, lane: str, seq: int) -> bytes | None:
        return await self._read(lambda tx: segments.digest_at(tx, epoch, lane, seq))

    async def high_watermarks(self) -> dict[str, HighWatermark]:
        found = await self._read(segments.lane_heads)
        return {head.lane: HighWatermark(head.sealed, head.digest) for head in found}

    async def begin_epoch(self, reason: str) -> str:
        state = await self.facts.state()
        return await self._run_logging(lambda tx: begin_epoch(tx, self._config, state, reason))

    async def acknowledge(self, digest: bytes) -> None:
        def unit(tx: Transaction) -> None:
            segments.acknowledge(tx, digest, self._limits.recent_bytes)
            uplink_view.record_upload(tx)

        await self._run(unit)
        self._settled.set()

    async def set_aside(self, digest: bytes, reason: str) -> None:
        await self._run_logging(lambda tx: set_aside(tx, digest, reason))
        self._settled.set()

    async def empty(self) -> None:
        """Wait until no segment waits to be sent."""
        while await self.next_waiting() is not None:
            await self._settled.wait()
            self._settled.clear()

    async def log_notice(self, notice: Notice) -> None:
        """Log a notice of the uplink as an event."""
        level = "Informational" if notice.name in uplink_view.POSITIVE_NOTICES else "Warning"

        def unit(tx: Transaction) -> None:
            _log(tx, notice.name, level, notice.text)
            uplink_view.record_notice(tx, notice.name, notice.text)

        await self._run_logging(unit)

    async def _run_logging(self, unit: Callable[[Transaction], T]) -> T:
        if self._closed:
            raise BacklogUnavailable("the gateway is stopping")
        return await self._run(unit)

    async def _run(self, unit: Callable[[Transaction], T]) -> T:
        return await _available(self._store.run(unit))

    async def _read(self, query: Callable[[Transaction], T]) -> T:
        return await _available(self._store.read(query))


async def _available(result: Awaitable[T]) -> T:
    try:
        return await result
    except StoreBroken:
        raise
    except StoreError as error:
        raise BacklogUnavailable(str(error)) from error


def begin_epoch(tx: Transaction, config: Config, state: GatewayState, reason: str) -> str:
    """Seal all events of the current epoch, begin a new one and return its id.

    The first event of the new epoch reports its beginning. Events that cannot be sealed are deleted
    and reported as lost.
    """
    before = meta.epoch(tx)
    unsealed = [lost for lane in events.LANES for lost in _seal_all(tx, config, state, lane)]
    epoch = epochs.begin(tx, reason)
    tags = {"reason": reason, "before": before}
    _log(tx, "epoch", "Warning", f"a new epoch begins: {reason}", tags=tags)
    _log_lost(tx, unsealed, NOT_SEALED)
    enforce_quota(tx, backlog_quota(config))
    return epoch


def _seal_all(
    tx: Transaction, config: Config, state: GatewayState, lane: str
) -> list[segments.EvictedRange]:
    """Seal all events of a lane. If a segment cannot be encoded, delete the events that are left;
    return their range."""
    uplink = config.uplink
    while draft := _draft(tx, lane, uplink.segment_events, uplink.segment_bytes):
        header = build_header(config.gateway.domain, draft, state)
        try:
            data = encode(header, draft.events)
        except ValueError:
            return [segments.drop_unsealed(tx, lane, NOT_SEALED)]
        _seal(tx, draft, data, digest_of(data))
    return []


def _draft(tx: Transaction, lane: str, max_events: int, max_bytes: int) -> Draft | None:
    found = segments.draft(tx, lane, max_events, max_bytes)
    if found is None:
        return None
    listed = [Event._make(row) for row in found.events]
    dropped = tuple(Dropped(*entry) for entry in found.dropped)
    return Draft(found.epoch, lane, found.previous, listed, dropped)


def _seal(tx: Transaction, draft: Draft, data: bytes, digest: bytes) -> bool:
    sealed = segments.NewSegment(
        draft.epoch,
        draft.lane,
        draft.events[0].seq,
        draft.events[-1].seq,
        digest,
        data,
        draft.previous,
        [segments.DroppedRange(*entry) for entry in draft.dropped],
        _content(tx, draft.events),
    )
    return segments.seal(tx, sealed)


def _content(tx: Transaction, found: Sequence[Event]) -> SegmentContent:
    weights = (EventWeight(e.source, e.level, len(e.text or "") + EVENT_OVERHEAD) for e in found)
    return eviction.describe(weights, events.urgent_levels(tx))


def backlog_quota(config: Config) -> BacklogQuota:
    """Return the maximum size of the backlog, and the part of it that each lane is guaranteed."""
    uplink = config.uplink
    shares = segments.lane_shares(uplink.readings_share, uplink.logs_share)
    return BacklogQuota(config.limits.backlog_bytes, shares)


def enforce_quota(tx: Transaction, quota: BacklogQuota) -> None:
    """Evict segments until the backlog is within its quota, and log the lost ranges."""
    _log_lost(tx, segments.evict(tx, quota, EVICTED), EVICTED)


def set_aside(tx: Transaction, digest: bytes, reason: str) -> None:
    """Keep a segment, never send it again, and log an event."""
    aside = segments.set_aside(tx, digest, reason, REJECTED_SEGMENT_BYTES)
    if aside is not None:
        _log(tx, "set_aside", "Error", f"segment {digest.hex()[:16]}: {reason}", tags=_tags(aside))
        _log_lost(tx, [], reason)


def _log_lost(tx: Transaction, lost: Sequence[segments.EvictedRange], reason: str) -> None:
    """Log the ranges in `lost`, and all lost ranges of earlier epochs that are not reported yet.

    Each range of the current epoch has a separate event. For each lane of an earlier epoch, one
    event names the whole lost range; its value counts only the lost events of the lane in `lost`.
    """
    epoch = meta.epoch(tx)
    counts: Counter[tuple[str, str]] = Counter()
    for range_ in lost:
        count = range_.last - range_.first + 1
        if range_.epoch == epoch:
            _log_range(tx, LostRange(*range_[:4], reason), count)
        else:
            counts[range_.epoch, range_.lane] += count
    for unreported in lost_ranges.find_unreported(tx):
        seq = _log_range(tx, unreported, counts.pop((unreported.epoch, unreported.lane), 0))
        if seq is not None:
            lost_ranges.mark_reported(tx, unreported, seq)


def _log_range(tx: Transaction, lost: LostRange, count: int) -> int | None:
    text = f"{lost.lane} {lost.first}-{lost.last}: {lost.reason}"
    return _log(tx, "evicted", "Error", text, float(count), _tags(lost))


def _tags(range_: LostRange) -> dict[str, str]:
    return {name: str(value) for name, value in range_._asdict().items()}


def _log(
    tx: Transaction,
    name: str,
    level: str,
    text: str,
    value: float | None = None,
    tags: Mapping[str, str] | None = None,
) -> int | None:
    event = NewEvent("uplink", name=name, level=level, text=text, value=value, tags=tags)
    return events.append(tx, events.SYSTEM, event)


@dataclass(slots=True)
class GatewayFacts:
    """The facts about the gateway that the headers of segments contain.

    `config_hash` is the SHA-256 of the configuration in use.
    """

    folder: Path
    clock: Callable[[], Now]
    boot: str
    firmware: str
    software: str
    config_hash: bytes

    async def state(self) -> GatewayState:
        """Return the gateway's current state, for the header of a segment."""
        used = await asyncio.to_thread(disk_used, self.folder)
        now = self.clock()
        return GatewayState(
            boot=self.boot,
            sealed_at=now.wall,
            service_seconds=now.service,
            clock=now.synchronised,
            firmware=self.firmware,
            software=self.software,
            config_hash=self.config_hash,
            disk_used=used,
        )


def disk_used(folder: Path) -> int:
    """Return the bytes that a folder uses on the disk."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except OSError:  # the file was removed meanwhile, or is a dangling link
            continue
    return total
