"""The gateway's side of the uplink: the store as the backlog, and a header's facts.

Translates between the store's rows and the records of `sync`; decides nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

from edge.errors import StoreBroken, StoreError
from edge.limits import ASIDE_BYTES
from edge.store import events, segments
from edge.store.events import NewEvent
from sync.format import Dropped, Event, Identity
from sync.uplink import BacklogUnavailable, Draft, GatewayState, LaneState, Notice, Waiting

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from edge.config import Config
    from edge.rules.clock import Now
    from edge.store.commit import Store
    from edge.store.database import Transaction

T = TypeVar("T")

EVICTED: Final = "backlog-full"
"""Why a range was dropped, as its lane's next header says it."""


class StoreBacklog:
    """The store, as `sync.uplink.Backlog` asks for it."""

    def __init__(self, store: Store, config: Config) -> None:
        self._store = store
        self._gateway = config.gateway.domain
        self._limits = config.limits
        self._settled = asyncio.Event()

    async def lanes(self) -> list[LaneState]:
        """Say what each lane holds that is not sealed."""
        return await self._read(lambda tx: [LaneState(*lane) for lane in events.lanes(tx)])

    async def draft(self, lane: str, max_events: int, max_bytes: int) -> Draft | None:
        """Return the lane's oldest events, as many as fit."""
        found = await self._read(lambda tx: segments.draft(tx, lane, max_events, max_bytes))
        if found is None:
            return None
        rows = [Event._make(row) for row in found.events]
        dropped = tuple(Dropped(*entry) for entry in found.dropped)
        return Draft(found.epoch, lane, found.previous, rows, dropped)

    async def seal(self, draft: Draft, data: bytes, digest: bytes) -> bool:
        """Put a segment in and take its events out; make room for it in the backlog first."""
        sealed = segments.Sealed(
            draft.epoch,
            draft.lane,
            draft.events[0].seq,
            draft.events[-1].seq,
            digest,
            data,
            draft.previous,
            [segments.Dropped(*entry) for entry in draft.dropped],
        )

        def unit(tx: Transaction) -> bool:
            if not segments.seal(tx, sealed):
                return False
            for gone in segments.evict(tx, self._limits.backlog_bytes, EVICTED):
                text = f"{gone.lane} {gone.first}-{gone.last}: the backlog is full"
                _log(tx, "evicted", "Error", text, float(gone.last - gone.first + 1))
            return True

        return await self._run(unit)

    async def next_waiting(self) -> Waiting | None:
        """Return the oldest segment that is to be sent."""
        found = await self._read(segments.next_waiting)
        if found is None:
            return None
        identity = Identity(self._gateway, found.epoch, found.lane, found.first, found.last)
        return Waiting(identity, found.digest, found.data)

    async def acknowledge(self, digest: bytes) -> None:
        """Note that the centre has it."""
        await self._run(lambda tx: segments.acknowledge(tx, digest, self._limits.recent_bytes))
        self._settled.set()

    async def set_aside(self, digest: bytes, reason: str) -> None:
        """Keep it, never send it again, and log that."""

        def unit(tx: Transaction) -> None:
            if segments.set_aside(tx, digest, reason, ASIDE_BYTES):
                _log(tx, "set_aside", "Error", f"segment {digest.hex()[:16]}: {reason}")

        await self._run(unit)
        self._settled.set()

    async def empty(self) -> None:
        """Wait until nothing is to be sent."""
        while await self.next_waiting() is not None:
            await self._settled.wait()
            self._settled.clear()

    async def tell(self, notice: Notice) -> None:
        """Log what the uplink has to say."""
        level = "Informational" if notice.name == "shipping" else "Warning"
        await self._run(lambda tx: _log(tx, notice.name, level, notice.text))

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


def _log(tx: Transaction, name: str, level: str, text: str, value: float | None = None) -> None:
    events.append(
        tx, events.SYSTEM, NewEvent("uplink", name=name, level=level, text=text, value=value)
    )


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
