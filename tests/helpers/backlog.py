"""A small implementation of the uplink's `Backlog` over SQLite in memory."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Sequence

from sync.segment import LANES, Dropped, Event, Identity, digest_of, encode
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
from tests.helpers.segments import EPOCH, START, header

SCHEMA = """
CREATE TABLE events (lane TEXT, seq INTEGER, since REAL, size INTEGER, event TEXT);
CREATE TABLE chain (lane TEXT PRIMARY KEY, previous BLOB, sealed INTEGER DEFAULT 0);
CREATE TABLE segments (
    id INTEGER PRIMARY KEY, epoch TEXT, lane TEXT, first INTEGER, last INTEGER, digest BLOB,
    data BLOB, state TEXT DEFAULT 'waiting', reason TEXT
);
"""


class SqliteBacklog:
    """Events and segments as rows. If `full` is set, every call raises `BacklogUnavailable`."""

    def __init__(self, gateway: str = header().gateway) -> None:
        self.gateway = gateway
        self.full = False
        self.dropped: tuple[Dropped, ...] = ()
        self.urgent: dict[str, float] = {}
        self.current = EPOCH
        self.epoch_reasons: list[str] = []
        self._changed = asyncio.Event()
        self._rows = sqlite3.connect(":memory:", isolation_level=None)
        self._rows.executescript(SCHEMA)
        for lane in LANES:
            self._rows.execute("INSERT INTO chain VALUES (?, ?, 0)", (lane, bytes(32)))

    def close(self) -> None:
        self._rows.close()

    def write(self, lane: str, events: Sequence[Event], since: float = 0.0) -> None:
        """Append events to a lane, with its next sequence numbers."""
        for event in events:
            text = json.dumps([*event[:-1], dict(event.tags)])
            row = (lane, event.seq, since, len(text), text)
            self._rows.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", row)

    def states(self) -> list[tuple[int, str]]:
        """Return each segment's first sequence number and state, oldest first."""
        self._changed.clear()
        return self._rows.execute("SELECT first, state FROM segments ORDER BY id").fetchall()

    def reasons(self) -> list[str | None]:
        """Return why each segment was set aside, oldest first."""
        return [reason for (reason,) in self._rows.execute("SELECT reason FROM segments")]

    def data(self) -> list[bytes]:
        """Return each segment's bytes, oldest first."""
        return [data for (data,) in self._rows.execute("SELECT data FROM segments ORDER BY id")]

    def clear(self) -> None:
        self._rows.execute("DELETE FROM events")

    def unsealed(self) -> int:
        count: int = self._rows.execute("SELECT count(*) FROM events").fetchone()[0]
        return count

    async def wait_for_states(self, states: list[tuple[int, str]]) -> None:
        """Wait until the segments are in these states."""
        async with asyncio.timeout(10):
            while self.states() != states:
                await self._changed.wait()

    async def lanes(self) -> Sequence[LaneState]:
        self._check()
        sql = "SELECT lane, count(*), sum(size), min(since) FROM events GROUP BY lane"
        rows = self._rows.execute(sql)
        found = {row[0]: LaneState(*row) for row in rows}
        states = [found.get(lane, LaneState(lane, 0, 0, None)) for lane in LANES]
        return [state._replace(urgent=self.urgent.get(state.lane)) for state in states]

    async def draft(self, lane: str, max_events: int, max_bytes: int) -> Draft | None:
        self._check()
        rows = self._rows.execute(
            "SELECT size, event FROM events WHERE lane = ? ORDER BY seq LIMIT ?", (lane, max_events)
        )
        events: list[Event] = []
        total = 0
        for size, text in rows:
            total += size
            if events and total > max_bytes:
                break
            events.append(Event(*json.loads(text)))
        if not events:
            return None
        return Draft(self.current, lane, self._previous(lane), events, self.dropped)

    async def seal(self, draft: Draft, data: bytes, digest: bytes) -> bool:
        self._check()
        if (self.current, self._previous(draft.lane)) != (draft.epoch, draft.previous):
            return False
        first, last = draft.events[0].seq, draft.events[-1].seq
        self.urgent.pop(draft.lane, None)
        self._rows.execute("BEGIN")
        self._rows.execute(
            "INSERT INTO segments (epoch, lane, first, last, digest, data)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (draft.epoch, draft.lane, first, last, digest, data),
        )
        self._rows.execute("DELETE FROM events WHERE lane = ? AND seq <= ?", (draft.lane, last))
        self._rows.execute(
            "UPDATE chain SET previous = ?, sealed = ? WHERE lane = ?", (digest, last, draft.lane)
        )
        self._rows.execute("COMMIT")
        self._changed.set()
        return True

    async def next_waiting(self, order: SendOrder = SendOrder.OLDEST) -> WaitingSegment | None:
        self._check()
        row = self._rows.execute(
            "SELECT epoch, lane, first, last, digest, data FROM segments"
            " WHERE state = 'waiting' ORDER BY id * ? LIMIT 1",
            (-1 if order is SendOrder.NEWEST else 1,),
        ).fetchone()
        if row is None:
            return None
        *name, digest, data = row
        return WaitingSegment(Identity(self.gateway, *name), digest, data)

    async def epoch(self) -> str:
        self._check()
        return self.current

    async def digest_at(self, epoch: str, lane: str, seq: int) -> bytes | None:
        self._check()
        row = self._rows.execute(
            "SELECT digest FROM segments WHERE (epoch, lane) = (?, ?) AND ? BETWEEN first AND last",
            (epoch, lane, seq),
        ).fetchone()
        return None if row is None else row[0]

    async def high_watermarks(self) -> dict[str, HighWatermark]:
        self._check()
        rows = self._rows.execute("SELECT lane, sealed, previous FROM chain")
        return {lane: HighWatermark(last, digest) for lane, last, digest in rows}

    async def begin_epoch(self, reason: str) -> str:
        """See `Backlog`; one draft of each lane is sealed, and the new epoch has no first event."""
        self._check()
        state = await FixedState().state()
        for lane in LANES:
            draft = await self.draft(lane, 65_536, 2**30)
            if draft is not None:
                data = encode(build_header(self.gateway, draft, state), draft.events)
                await self.seal(draft, data, digest_of(data))
        self._rows.execute("UPDATE chain SET previous = zeroblob(32), sealed = 0")
        self.epoch_reasons.append(reason)
        self.current = f"{EPOCH[:-1]}{len(self.epoch_reasons)}"
        return self.current

    async def acknowledge(self, digest: bytes) -> None:
        self._mark(digest, "acknowledged", None)

    async def set_aside(self, digest: bytes, reason: str) -> None:
        self._mark(digest, "aside", reason)

    def _mark(self, digest: bytes, state: str, reason: str | None) -> None:
        self._check()
        marked = self._rows.execute(
            "UPDATE segments SET state = ?, reason = ? WHERE digest = ? AND state = 'waiting'",
            (state, reason, digest),
        )
        assert marked.rowcount == 1
        self._changed.set()

    def _previous(self, lane: str) -> bytes:
        found = self._rows.execute("SELECT previous FROM chain WHERE lane = ?", (lane,))
        previous: bytes = found.fetchone()[0]
        return previous

    def _check(self) -> None:
        if self.full:
            raise BacklogUnavailable("the disk is full")


class FixedState:
    def __init__(self, firmware: str = "Linux 6.6") -> None:
        self.firmware = firmware

    async def state(self) -> GatewayState:
        return GatewayState("boot-1", START, 1.5, True, self.firmware, "0.1.0", bytes(32), 4_096)


class Notices:
    """Collects notices, unless the backlog is unavailable."""

    def __init__(self, backlog: SqliteBacklog) -> None:
        self.backlog = backlog
        self.all: list[Notice] = []

    async def record(self, notice: Notice) -> None:
        await self.backlog.lanes()
        self.all.append(notice)

    def names(self) -> list[str]:
        return [notice.name for notice in self.all]
