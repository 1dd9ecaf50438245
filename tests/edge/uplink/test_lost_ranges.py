"""Tests that every event number is stored, shipped or declared as lost, in any order of events."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import defaultdict
from typing import Final, TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edge.config import annotated_file, load
from edge.engine.rules.service_time import Now
from edge.engine.store import events, meta
from edge.engine.store.database import Transaction
from edge.engine.store.events import LANES, LOGS, READINGS, SYSTEM, NewEvent
from edge.features.eventlog.store import epochs, lost_ranges, segments
from edge.uplink import backlog
from edge.uplink.backlog import EVICTED, backlog_quota, enforce_quota
from sync.segment import decode
from tests.helpers.backlog import FixedState
from tests.helpers.store import DOMAIN, in_memory, unsealed_events

CONFIG: Final = load.parse(annotated_file.render(DOMAIN).encode())
STATE: Final = asyncio.run(FixedState().state())
MAX_BYTES: Final = 10**9

Step: TypeAlias = tuple[str, str | int]
LaneOfEpoch: TypeAlias = tuple[str, str]


class Gateway:
    """A database in memory, and the segments that a centre has received of it."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.received: list[bytes] = []
        self.last: dict[LaneOfEpoch, int] = {}

    def perform(self, action: str, value: str | int) -> None:
        tx = Transaction(self._db, Now(0.0, 0, True))
        getattr(self, f"_{action}")(tx, value)
        tx.run_before_commit()
        self._record_counters(tx)

    def _record_counters(self, tx: Transaction) -> None:
        epoch = meta.epoch(tx)
        for lane, last in tx.rows("SELECT lane, last FROM lane_counters"):
            self.last[epoch, lane] = last

    def _write(self, tx: Transaction, lane: str) -> None:
        events.append(tx, lane, NewEvent("log", text="x"))

    def _seal(self, tx: Transaction, lane: str) -> None:
        backlog._seal_all(tx, CONFIG, STATE, lane)

    def _evict(self, tx: Transaction, percent: int) -> None:
        used = sum(segments.waiting_bytes(tx).values())
        enforce_quota(tx, backlog_quota(CONFIG)._replace(bytes=used * percent // 100))

    def _take(self, tx: Transaction, newest: int) -> None:
        segment = segments.next_waiting(tx, newest=bool(newest))
        if segment is not None:
            self.received.append(segment.data)
            segments.acknowledge(tx, segment.digest, 0)

    def _refuse(self, tx: Transaction, newest: int) -> None:
        segment = segments.next_waiting(tx, newest=bool(newest))
        if segment is not None:
            backlog.set_aside(tx, segment.digest, "refused")

    def _begin(self, tx: Transaction, _value: int) -> None:
        self._record_counters(tx)
        backlog.begin_epoch(tx, CONFIG, STATE, "restored")

    def explained(self) -> dict[LaneOfEpoch, set[int]]:
        """Return the numbers that are stored or received, or declared as lost in such rows."""
        tx = Transaction(self._db, Now(0.0, 0, True))
        epoch = meta.epoch(tx)
        numbers_by_lane: dict[LaneOfEpoch, set[int]] = defaultdict(set)
        waiting = [data for (data,) in tx.rows("SELECT data FROM segments WHERE state='waiting'")]
        declared = []
        for data in self.received + waiting:
            header, segment_events, _digest = decode(data)
            numbers = numbers_by_lane[header.epoch, header.lane]
            numbers |= {event.seq for event in segment_events}
            for first, last, _reason in header.dropped:
                numbers |= set(range(first, last + 1))
            declared += [event.tags for event in segment_events if event.name == "evicted"]
        for segment_epoch, lane, first, last in tx.rows(
            "SELECT epoch, lane, first, last FROM segments WHERE state = 'aside'"
        ):
            numbers_by_lane[segment_epoch, lane] |= set(range(first, last + 1))
        for lane in LANES:
            rows = events.read(tx, lane, 0, 10_000, MAX_BYTES)
            numbers_by_lane[epoch, lane] |= {row.seq for row in rows}
            declared += [row.tags for row in rows if row.name == "evicted"]
        for lane, first, last in tx.rows(  # to be declared by the next header
            "SELECT lane, first, last FROM dropped WHERE epoch = ?", (epoch,)
        ):
            numbers_by_lane[epoch, lane] |= set(range(first, last + 1))
        for tags in declared:
            first, last = int(tags["first"]), int(tags["last"])
            numbers_by_lane[tags["epoch"], tags["lane"]] |= set(range(first, last + 1))
        return numbers_by_lane

    def unexplained(self) -> dict[LaneOfEpoch, set[int]]:
        """Return the assigned numbers that are neither stored nor received nor declared."""
        explained = self.explained()
        gaps = {lane: set(range(1, last + 1)) - explained[lane] for lane, last in self.last.items()}
        return {lane: numbers for lane, numbers in gaps.items() if numbers}

    def rows(self) -> list[tuple[str, int, int]]:
        """Return the declared ranges of earlier epochs."""
        tx = Transaction(self._db, Now(0.0, 0, True))
        return tx.rows(
            "SELECT lane, first, last FROM dropped WHERE epoch <> ? ORDER BY epoch, lane, first",
            (meta.epoch(tx),),
        )


STEPS = st.one_of(
    st.tuples(st.sampled_from(["write", "seal"]), st.sampled_from(LANES)),
    st.tuples(st.just("evict"), st.sampled_from([0, 0, 40, 80])),
    st.tuples(st.sampled_from(["take", "refuse"]), st.integers(0, 1)),
    st.tuples(st.just("begin"), st.just(0)),
)
LOST_WITH_ITS_EPOCH: Final[list[Step]] = [
    ("write", LOGS), ("seal", LOGS), ("begin", 0), ("evict", 0),
]  # fmt: skip


@given(st.lists(STEPS, max_size=25), st.integers(1, 3))
@example([*LOST_WITH_ITS_EPOCH, ("seal", SYSTEM), ("evict", 0)], 64)
@example([*LOST_WITH_ITS_EPOCH, ("seal", SYSTEM), ("refuse", 0)], 64)
@example([*LOST_WITH_ITS_EPOCH, ("begin", 0), ("evict", 0)], 64)
@example([("write", LOGS), ("seal", LOGS), ("evict", 0), ("begin", 0), ("evict", 0)], 64)
def test_every_number_of_every_epoch_is_stored_shipped_or_declared(
    steps: list[Step], ranges: int
) -> None:
    with pytest.MonkeyPatch.context() as patch, in_memory() as db:
        patch.setattr(lost_ranges, "MAX_RANGES", ranges)
        gateway = Gateway(db)
        for action, value in steps:
            gateway.perform(action, value)
            assert len(gateway.rows()) <= ranges * len(gateway.last)
        assert gateway.unexplained() == {}


def test_lost_ranges_are_declared_until_the_centre_acknowledges() -> None:
    with in_memory() as db:
        gateway = Gateway(db)
        for step in (*LOST_WITH_ITS_EPOCH, ("seal", SYSTEM), ("evict", 0), ("begin", 0)):
            gateway.perform(*step)
        assert gateway.rows() == [(LOGS, 1, 1), (SYSTEM, 1, 2)]
        gateway.perform("take", 0)
        assert gateway.rows() == [(LOGS, 1, 1)], "a segment of the epoch before declares its lane's"
        gateway.perform("seal", SYSTEM)
        gateway.perform("take", 1)
        assert gateway.rows() == []
        assert gateway.unexplained() == {}


def test_lost_ranges_are_removed_with_their_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "MAX_EPOCHS", 2)
    with in_memory() as db:
        gateway = Gateway(db)
        for step in (("write", READINGS), ("seal", READINGS), ("evict", 0), ("begin", 0)):
            gateway.perform(*step)
        assert gateway.rows() == [(READINGS, 1, 1)]
        gateway.perform("begin", 0)
        assert gateway.rows() == []


def test_a_lost_range_keeps_its_reason() -> None:
    with in_memory() as db:
        gateway = Gateway(db)
        for step in LOST_WITH_ITS_EPOCH:
            gateway.perform(*step)
        (declared,) = unsealed_events(db, name="evicted")
        assert (declared.value, declared.tags["reason"]) == (1.0, EVICTED)
