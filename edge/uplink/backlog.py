"""The gateway's side of the uplink: the store as the backlog, and a header's facts.

Translates between the store's rows and the records of `sync`. Whether a new epoch begins is decided
elsewhere; what that does is here, since all that was counted before is sealed with it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from edge.config.limits import REJECTED_SEGMENT_BYTES
from edge.config.load import Config
from edge.engine import events, meta
from edge.engine.database import Transaction
from edge.engine.events import NewEvent
from edge.engine.group_commit import Store
from edge.engine.service_time import Now
from edge.errors import StoreBroken, StoreError
from edge.features.eventlog.rules.eviction import BacklogQuota
from edge.features.eventlog.store import epochs, lost_ranges, segments
from edge.features.eventlog.store import uplink_view as rows
from edge.features.eventlog.store.lost_ranges import LostRange
from sync import uplink
from sync.segment import Dropped, Event, Identity, digest_of, encode
from sync.uplink import (
    BacklogUnavailable,
    Draft,
    GatewayState,
    HighWatermark,
    LaneState,
    Notice,
    SendOrder,
    WaitingSegment,
    build_header,
)

T = TypeVar("T")

EVICTED: Final = "backlog-full"
"""Why a range was dropped, as its lane's next header says it."""

NOT_SEALED: Final = "not-sealed"
"""Why a range was dropped that no segment can hold when its epoch ends."""


_GOOD: Final = frozenset({"shipping", "certificate-renewed"})
"""Notices that tell of nothing wrong."""


class StoreBacklog:
    """The store, as `sync.uplink.Backlog` asks for it."""

    def __init__(self, store: Store, config: Config, facts: uplink.GatewayStateSource) -> None:
        self._store = store
        self._config = config
        self.facts = facts
        self._gateway = config.gateway.domain
        self._limits = config.limits
        self._settled = asyncio.Event()
        self._closed = False

    def close(self) -> None:
        """Log nothing from now on, and do nothing that is logged: the closing event comes last.

        What is sealed still makes no room for itself, one or two segments of each lane. What the
        centre says of a segment that it does not take, it says again in the next run.
        """
        self._closed = True

    async def lanes(self) -> list[LaneState]:
        """Say what each lane holds that is not sealed."""
        return await self._read(lambda tx: [LaneState(*lane) for lane in events.lane_status(tx)])

    async def draft(self, lane: str, max_events: int, max_bytes: int) -> Draft | None:
        """Return the lane's oldest events, as many as fit."""
        return await self._read(lambda tx: _draft(tx, lane, max_events, max_bytes))

    async def seal(self, draft: Draft, data: bytes, digest: bytes) -> bool:
        """Put a segment in and take its events out, and keep the backlog within its bound."""

        def unit(tx: Transaction) -> bool:
            if not _seal(tx, draft, data, digest):
                return False
            if not self._closed:
                make_room(tx, bound_of(self._config))
            return True

        return await self._run(unit)

    async def next_waiting(self, order: SendOrder = SendOrder.OLDEST) -> WaitingSegment | None:
        """Return the oldest segment that is to be sent, or the newest."""
        newest = order is SendOrder.NEWEST
        found = await self._read(lambda tx: segments.next_waiting(tx, newest=newest))
        if found is None:
            return None
        identity = Identity(self._gateway, found.epoch, found.lane, found.first, found.last)
        return WaitingSegment(identity, found.digest, found.data)

    async def epoch(self) -> str:
        """Return the epoch that is counted in now."""
        return await self._read(meta.epoch)

    async def digest_at(self, epoch: str, lane: str, seq: int) -> bytes | None:
        """Return the digest of the segment that a number is sealed in, as far as it is known."""
        return await self._read(lambda tx: segments.digest_at(tx, epoch, lane, seq))

    async def high_watermarks(self) -> dict[str, HighWatermark]:
        """Say how far each lane of the current epoch is sealed."""
        found = await self._read(segments.lane_heads)
        return {head.lane: HighWatermark(head.sealed, head.digest) for head in found}

    async def begin_epoch(self, reason: str) -> str:
        """Seal all events in the epoch that they were counted in, and count in a new one."""
        state = await self.facts.state()
        return await self._tell(lambda tx: begin_epoch(tx, self._config, state, reason))

    async def acknowledge(self, digest: bytes) -> None:
        """Note that the centre has it."""

        def unit(tx: Transaction) -> None:
            segments.acknowledge(tx, digest, self._limits.recent_bytes)
            rows.record_upload(tx)

        await self._run(unit)
        self._settled.set()

    async def set_aside(self, digest: bytes, reason: str) -> None:
        """Keep it, never send it again, and log that."""

        await self._tell(lambda tx: set_aside(tx, digest, reason))
        self._settled.set()

    async def empty(self) -> None:
        """Wait until nothing is to be sent."""
        while await self.next_waiting() is not None:
            await self._settled.wait()
            self._settled.clear()

    async def tell(self, notice: Notice) -> None:
        """Log what the uplink has to say."""
        level = "Informational" if notice.name in _GOOD else "Warning"

        def unit(tx: Transaction) -> None:
            _log(tx, notice.name, level, notice.text)
            rows.record_notice(tx, notice.name, notice.text)

        await self._tell(unit)

    async def _tell(self, unit: Callable[[Transaction], T]) -> T:
        """Run a unit that logs."""
        if self._closed:
            raise BacklogUnavailable("the run is over")
        return await self._run(unit)

    async def _run(self, unit: Callable[[Transaction], T]) -> T:
        try:
            return await self._store.run(unit)
        except StoreBroken:
            raise
        except StoreError as error:
            raise BacklogUnavailable(str(error)) from error

    async def _read(self, query: Callable[[Transaction], T]) -> T:
        try:
            return await self._store.read(query)
        except StoreBroken:
            raise
        except StoreError as error:
            raise BacklogUnavailable(str(error)) from error


def begin_epoch(tx: Transaction, config: Config, state: GatewayState, reason: str) -> str:
    """Seal all that waits in the epoch that it was counted in, and begin a new one; returns it.

    Its first event tells of it. What cannot be sealed is gone then, and told as well.
    """
    events.write_counters(tx)
    before = meta.epoch(tx)
    unsealed = [gone for lane in events.LANES for gone in _seal_all(tx, config, state, lane)]
    epoch = epochs.begin(tx, reason)
    tags = {"reason": reason, "before": before}
    _log(tx, "epoch", "Warning", f"events are counted anew: {reason}", tags=tags)
    _tell_lost(tx, unsealed, NOT_SEALED)
    make_room(tx, bound_of(config))
    return epoch


def _seal_all(
    tx: Transaction, config: Config, state: GatewayState, lane: str
) -> list[segments.EvictedRange]:
    """Seal what waits of a lane, and return the range that no segment can hold, if there is one.

    It may be as much as `limits.unsealed_events`.
    """
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
    )
    return segments.seal(tx, sealed)


def bound_of(config: Config) -> BacklogQuota:
    """Return how much may wait, and which share of it each lane has for certain."""
    uplink = config.uplink
    shares = segments.lane_shares(uplink.readings_share, uplink.logs_share)
    return BacklogQuota(config.limits.backlog_bytes, shares)


def make_room(tx: Transaction, bound: BacklogQuota) -> None:
    """Bring what waits within its bound, and tell what had to go."""
    _tell_lost(tx, segments.evict(tx, bound, EVICTED), EVICTED)


def set_aside(tx: Transaction, digest: bytes, reason: str) -> None:
    """Keep a segment, never send it again, and log that."""
    aside = segments.set_aside(tx, digest, reason, REJECTED_SEGMENT_BYTES)
    if aside is not None:
        text = f"segment {digest.hex()[:16]}: {reason}"
        _log(tx, "set_aside", "Error", text, tags=_tags(aside))
        _tell_lost(tx, [], reason)


def _tell_lost(tx: Transaction, gone: Sequence[segments.EvictedRange], reason: str) -> None:
    """Log what went just now, and all of epochs that are over that no event tells of any more.

    An event of the latter has the whole range, and as its value how many went just now.
    """
    epoch = meta.epoch(tx)
    counts: Counter[tuple[str, str]] = Counter()
    for one in gone:
        count = one.last - one.first + 1
        if one.epoch == epoch:
            _tell_range(tx, LostRange(*one[:4], reason), count)
        else:
            counts[one.epoch, one.lane] += count
    for range_ in lost_ranges.find_unreported(tx):
        seq = _tell_range(tx, range_, counts.pop((range_.epoch, range_.lane), 0))
        if seq is not None:
            lost_ranges.mark_reported(tx, range_, seq)


def _tell_range(tx: Transaction, gone: LostRange, count: int) -> int | None:
    text = f"{gone.lane} {gone.first}-{gone.last}: {gone.reason}"
    return _log(tx, "evicted", "Error", text, float(count), _tags(gone))


def _tags(gone: LostRange) -> dict[str, str]:
    return {name: str(value) for name, value in gone._asdict().items()}


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


class Facts:
    """What a segment's header tells of the gateway."""

    def __init__(
        self,
        folder: Path,
        clock: Callable[[], Now],
        boot: str,
        firmware: str,
        software: str,
        config_hash: bytes,
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._boot = boot
        self._firmware = firmware
        self._software = software
        self._config_hash = config_hash

    async def state(self) -> GatewayState:
        """Return the state of this moment."""
        used = await asyncio.to_thread(disk_used, self._folder)
        now = self._clock()
        return GatewayState(
            boot=self._boot,
            sealed_at=now.wall,
            service_seconds=now.service,
            clock=now.synchronised,
            firmware=self._firmware,
            software=self._software,
            config_hash=self._config_hash,
            disk_used=used,
        )


def disk_used(folder: Path) -> int:
    """Return the bytes that the files of a gateway's folder take."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except OSError:  # a WAL that was removed meanwhile, a link that leads nowhere
            continue
    return total
