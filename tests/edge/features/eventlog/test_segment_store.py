"""The segments table: the chain of sealed segments, the backlog, eviction and lost ranges."""

from __future__ import annotations

import json
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.engine.rules.service_time import Now
from edge.engine.store import events, meta
from edge.engine.store.database import Transaction
from edge.engine.store.events import LANES, LOGS, READINGS, SYSTEM, NewEvent, UnsealedLane
from edge.features.eventlog.rules.eviction import EVICTION_DIVISOR, BacklogQuota, eviction_target
from edge.features.eventlog.store import segments
from edge.features.eventlog.store.segments import DroppedRange, NewSegment
from tests.helpers.store import EPOCH, append, digest_of, in_memory

EVENT = NewEvent("log", text="x")
UNLIMITED = 10**9


def at(db: sqlite3.Connection, service: float = 0.0) -> Transaction:
    return Transaction(db, Now(service, 0, True))


def new_segment(db: sqlite3.Connection, lane: str, count: int = 100, size: int = 10) -> NewSegment:
    """Draft a segment of the waiting events, of `size` bytes."""
    draft = segments.draft(at(db), lane, count, UNLIMITED)
    assert draft is not None
    first, last = draft.events[0].seq, draft.events[-1].seq
    digest = digest_of(f"{lane} {first}-{last}")
    data = f"{lane} {first}-{last}".encode().ljust(size)
    return NewSegment(
        draft.epoch, lane, first, last, digest, data, draft.previous, tuple(draft.dropped)
    )


def seal(db: sqlite3.Connection, lane: str, count: int = 1, size: int = 10) -> NewSegment:
    """Write `count` events and seal them."""
    append(at(db), lane, count, EVENT)
    segment = new_segment(db, lane, count, size)
    assert segments.seal(at(db), segment)
    return segment


def equal_shares(size: int) -> BacklogQuota:
    """Return a quota of `size` bytes with the same share for each lane."""
    return BacklogQuota(size, dict.fromkeys(LANES, 1 / 3))


def list_waiting(db: sqlite3.Connection) -> list[str]:
    rows = db.execute("SELECT data FROM segments WHERE state = 'waiting' ORDER BY id").fetchall()
    return [data.decode().strip() for (data,) in rows]


def status(db: sqlite3.Connection, lane: str = LOGS) -> UnsealedLane:
    return next(found for found in events.unsealed_lanes(at(db)) if found.lane == lane)


def list_dropped(db: sqlite3.Connection) -> list[tuple[str, int, int, str]]:
    return db.execute("SELECT lane, first, last, reason FROM dropped ORDER BY 1, 2").fetchall()


# Drafting and sealing


def test_events_of_the_same_transaction_are_dropped_too(db: sqlite3.Connection) -> None:
    append(at(db), LOGS, 2, EVENT)
    tx = at(db)
    events.append(tx, LOGS, EVENT)
    assert segments.drop_unsealed(tx, LOGS, "not-sealed")[:4] == (EPOCH, LOGS, 1, 3)
    assert events.read(tx, LOGS, 0, 10, UNLIMITED) == []


def test_draft_holds_the_oldest_events_within_limits(db: sqlite3.Connection) -> None:
    append(at(db), LOGS, 5, EVENT)
    draft = segments.draft(at(db), LOGS, 3, UNLIMITED)
    assert draft is not None
    assert (draft.epoch, draft.lane, draft.previous) == (EPOCH, LOGS, bytes(32))
    assert [event.seq for event in draft.events] == [1, 2, 3]
    assert draft.dropped == []
    tiny = segments.draft(at(db), LOGS, 3, 0)
    assert tiny is not None
    assert [event.seq for event in tiny.events] == [1]


def test_sealing_deletes_events_and_extends_the_chain(db: sqlite3.Connection) -> None:
    append(at(db, 1.0), LOGS, 3, EVENT)
    append(at(db, 8.0), LOGS, 2, EVENT)
    first = new_segment(db, LOGS, 3)
    assert segments.seal(at(db), first)
    state = status(db)
    assert (state.events, state.oldest) == (2, 8.0)
    assert state.bytes == 2 * (events.EVENT_OVERHEAD + 1)
    second = new_segment(db, LOGS)
    assert second.previous == first.digest
    assert (second.first, second.last) == (4, 5)
    assert segments.seal(at(db), second)
    state = status(db)
    assert (state.events, state.bytes, state.oldest) == (0, 0, None)
    assert db.execute("SELECT count(*) FROM event_batches").fetchone() == (0,)
    assert seal(db, READINGS, 2).previous == bytes(32), "each lane has its chain"


def test_outdated_draft_is_refused(db: sqlite3.Connection) -> None:
    append(at(db), LOGS, 4, EVENT)
    old = new_segment(db, LOGS, 4)
    assert segments.seal(at(db), new_segment(db, LOGS, 2))
    for stale in (old, old._replace(first=3), old._replace(previous=digest_of("forged"))):
        assert not segments.seal(at(db), stale)
    assert list_waiting(db) == ["logs 1-2"]
    assert events.unsealed(at(db), LOGS) == 2


# Shipping


def test_oldest_segment_waits_until_acknowledged(db: sqlite3.Connection) -> None:
    assert segments.next_waiting(at(db)) is None
    assert segments.draft(at(db), LOGS, 10, UNLIMITED) is None
    first, second = seal(db, LOGS, 2), seal(db, SYSTEM)
    segments.acknowledge(at(db), digest_of("unknown"), UNLIMITED)
    for expected in (first, second):
        assert segments.next_waiting(at(db)) == expected[:6]
        segments.acknowledge(at(db), expected.digest, UNLIMITED)
    assert segments.next_waiting(at(db)) is None


def test_acknowledged_segments_are_kept_within_a_quota(db: sqlite3.Connection) -> None:
    sizes = [40, 30, 20, 10]
    for size in sizes:
        segments.acknowledge(at(db), seal(db, LOGS, 1, size).digest, 60)
    rows = db.execute("SELECT first FROM segments WHERE state = 'acknowledged'").fetchall()
    assert rows == [(2,), (3,), (4,)]
    segments.acknowledge(at(db), seal(db, LOGS).digest, 0)
    assert db.execute("SELECT count(*) FROM segments").fetchone() == (0,)


def test_refused_segments_are_set_aside_within_a_quota(db: sqlite3.Connection) -> None:
    sealed = [seal(db, LOGS, 1, 10) for _ in range(4)]
    for segment in sealed[:3]:
        assert segments.set_aside(at(db), segment.digest, "other bytes", 25)
    assert not segments.set_aside(at(db), sealed[0].digest, "again", 25)
    rows = db.execute("SELECT first, state, reason FROM segments ORDER BY id").fetchall()
    assert rows == [(2, "aside", "other bytes"), (3, "aside", "other bytes"), (4, "waiting", None)]
    assert segments.next_waiting(at(db)) == sealed[3][:6]


# The backlog's quota


def test_oldest_segment_of_the_largest_lane_is_evicted_and_declared(db: sqlite3.Connection) -> None:
    seal(db, LOGS, 2, 40)
    seal(db, READINGS, 5, 60)
    seal(db, READINGS, 5, 60)
    (evicted,) = segments.evict(at(db), equal_shares(120), "full")
    assert evicted[1:] == (READINGS, 1, 5, 60)
    assert list_waiting(db) == ["logs 1-2", "readings 6-10"]
    append(at(db), READINGS, 1, EVENT)
    append(at(db), LOGS, 1, EVENT)
    assert new_segment(db, LOGS).dropped == ()
    next_one = new_segment(db, READINGS)
    assert next_one.dropped == (DroppedRange(1, 5, "full"),)
    assert segments.seal(at(db), next_one)
    assert list_dropped(db) == [(READINGS, 1, 5, "full")], "until the central site acknowledges it"
    segments.acknowledge(at(db), next_one.digest, UNLIMITED)
    assert list_dropped(db) == []


def test_full_backlog_is_reduced_below_its_quota(db: sqlite3.Connection) -> None:
    quota = equal_shares(20 * EVICTION_DIVISOR)
    while segments.waiting_bytes(at(db))[LOGS] < quota.bytes:
        seal(db, LOGS, size=20)
    assert segments.evict(at(db), quota, "full") == []
    seal(db, SYSTEM, size=20)
    (evicted,) = segments.evict(at(db), quota, "full")
    assert (evicted.lane, evicted.bytes) == (LOGS, 40)
    seal(db, SYSTEM, size=20)
    assert segments.evict(at(db), quota, "full") == []


def test_adjacent_evictions_are_one_range(db: sqlite3.Connection) -> None:
    for lane in (LOGS, READINGS, LOGS, READINGS, LOGS):
        seal(db, lane, 2, 50)
    evicted = segments.evict(at(db), equal_shares(50), "full")
    assert sorted(evicted) == [(EPOCH, LOGS, 1, 4, 100), (EPOCH, READINGS, 1, 4, 100)]


def test_shares_cover_all_lanes() -> None:
    shares = segments.lane_shares(0.6, 0.3)
    assert shares == {READINGS: 0.6, LOGS: 0.3, SYSTEM: pytest.approx(0.1)}


@given(
    st.lists(st.tuples(st.sampled_from(LANES), st.integers(1, 90)), max_size=40),
    st.integers(100, 400),
    st.floats(0.05, 0.9),
    st.floats(0.05, 0.9),
)
def test_flood_in_one_lane_evicts_nothing_within_the_share_of_another(
    steps: list[tuple[str, int]], size: int, readings: float, logs: float
) -> None:
    total = readings + logs + 0.1
    quota = BacklogQuota(size, segments.lane_shares(readings / total, logs / total))
    with in_memory() as db:
        for lane, length in steps:
            seal(db, lane, 1, length)
            before = segments.waiting_bytes(at(db))
            evicted_lanes = {evicted.lane for evicted in segments.evict(at(db), quota, "full")}
            after = segments.waiting_bytes(at(db))
            assert sum(after.values()) <= size
            for one in LANES:
                share = quota.shares[one] * eviction_target(quota).bytes
                if before[one] <= share:
                    assert one not in evicted_lanes
                else:
                    assert after[one] > share - 90, "at most one segment below the share"


def test_acknowledged_and_set_aside_segments_are_not_evicted(db: sqlite3.Connection) -> None:
    segments.acknowledge(at(db), seal(db, LOGS, 1, 100).digest, UNLIMITED)
    segments.set_aside(at(db), seal(db, LOGS, 1, 100).digest, "refused", UNLIMITED)
    seal(db, LOGS, 1, 10)
    assert segments.evict(at(db), equal_shares(10), "full") == []
    assert [evicted.first for evicted in segments.evict(at(db), equal_shares(0), "full")] == [3]


def test_adjacent_ranges_with_one_reason_are_merged(db: sqlite3.Connection) -> None:
    for _ in range(4):
        seal(db, LOGS, 2)
    segments.evict(at(db), equal_shares(30), "full")
    segments.evict(at(db), equal_shares(20), "full")
    assert list_dropped(db) == [(LOGS, 1, 4, "full")]
    segments.evict(at(db), equal_shares(10), "other")
    segments.evict(at(db), equal_shares(0), "full")
    assert list_dropped(db) == [(LOGS, 1, 4, "full"), (LOGS, 5, 6, "other"), (LOGS, 7, 8, "full")]


def test_range_that_grew_after_the_draft_is_partly_declared(db: sqlite3.Connection) -> None:
    for _ in range(3):
        seal(db, LOGS, 2)
    segments.evict(at(db), equal_shares(20), "full")
    append(at(db), LOGS, 1, EVENT)
    draft = new_segment(db, LOGS)
    assert draft.dropped == (DroppedRange(1, 2, "full"),)
    segments.evict(at(db), equal_shares(0), "full")
    assert segments.seal(at(db), draft)
    segments.acknowledge(at(db), draft.digest, UNLIMITED)
    assert list_dropped(db) == [(LOGS, 3, 6, "full")]


def test_declaration_lasts_until_its_segment_is_acknowledged(db: sqlite3.Connection) -> None:
    seal(db, LOGS, 2)
    segments.evict(at(db), equal_shares(0), "full")
    first = seal(db, LOGS)
    assert first.dropped == (DroppedRange(1, 2, "full"),)
    segments.evict(at(db), equal_shares(0), "full")
    second = seal(db, LOGS)
    assert second.dropped == (DroppedRange(1, 3, "full"),), "the first was never acknowledged"
    segments.set_aside(at(db), second.digest, "refused", UNLIMITED)
    third = seal(db, LOGS)
    assert third.dropped == (DroppedRange(1, 3, "full"),)
    segments.acknowledge(at(db), seal(db, SYSTEM).digest, UNLIMITED)
    assert list_dropped(db), "the range is of another lane"
    segments.acknowledge(at(db), third.digest, UNLIMITED)
    assert seal(db, LOGS).dropped == ()
    assert list_dropped(db) == []


def test_ranges_per_header_are_limited(
    db: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "MAX_DROPPED_RANGES", 2)
    for _ in range(3):
        seal(db, LOGS)
    for number in range(3):
        segments.evict(at(db), equal_shares(20 - 10 * number), f"reason{number}")
    first = seal(db, LOGS)
    assert [d.first for d in first.dropped] == [1, 2]
    segments.acknowledge(at(db), first.digest, UNLIMITED)
    assert [d.first for d in seal(db, LOGS).dropped] == [3]


@given(
    st.lists(st.tuples(st.sampled_from(LANES), st.integers(1, 4), st.integers(0, 60)), max_size=25)
)
def test_every_number_is_waiting_or_declared_once(steps: list[tuple[str, int, int]]) -> None:
    with in_memory() as db:
        for lane, count, max_bytes in steps:
            seal(db, lane, count)
            segments.evict(at(db), equal_shares(max_bytes), "full")
            (size,) = db.execute("SELECT coalesce(sum(bytes), 0) FROM segments").fetchone()
            assert size <= max_bytes
        for lane in LANES:
            numbers: list[int] = []
            for table in ("segments", "dropped"):
                sql = f"SELECT first, last FROM {table} WHERE lane = ?"  # noqa: S608 - two constants
                for first, last in db.execute(sql, (lane,)):
                    numbers += range(first, last + 1)
            _sealed, last = events.last_numbers(at(db), lane)
            assert sorted(numbers) == list(range(1, last + 1))


# Urgent events


def log(db: sqlite3.Connection, service: float, *levels: str | None) -> None:
    tx = at(db, service)
    for level in levels:
        events.append(tx, LOGS, NewEvent("log", level=level))
    tx.run_before_commit()


def test_oldest_urgent_event_is_known_until_sealed(db: sqlite3.Connection) -> None:
    events.set_urgent(at(db), ["Error", "Alert"])
    log(db, 1.0, None, "Warning", "Critical")
    assert status(db).urgent is None
    log(db, 2.0, "Warning", "Error")
    log(db, 3.0, "Alert")
    assert status(db).urgent == 2.0
    assert segments.seal(at(db), new_segment(db, LOGS, 4))
    assert status(db).urgent == 2.0
    assert segments.seal(at(db), new_segment(db, LOGS, 1))
    assert status(db).urgent == 3.0
    assert segments.seal(at(db), new_segment(db, LOGS, 1))
    assert status(db).urgent is None
    log(db, 4.0, "Warning", "Debug")
    assert status(db).urgent is None
    assert status(db, SYSTEM).urgent is None


def test_urgent_levels_can_change(db: sqlite3.Connection) -> None:
    tx = at(db)
    log(db, 1.0, "Emergency")
    assert status(db).urgent is None
    for levels in (["Emergency"], ["Emergency"], []):
        events.set_urgent(tx, levels)
        assert meta.find_text(tx, "urgent levels") == json.dumps(levels)
    events.set_urgent(tx, ["Emergency"])
    log(db, 2.0, "Emergency")
    assert status(db).urgent == 2.0


# Reading segments


def test_segments_are_read_by_lane(db: sqlite3.Connection) -> None:
    assert segments.lanes(at(db)) == []
    seal(db, SYSTEM, 2)
    seal(db, LOGS, 2)
    segments.acknowledge(at(db), seal(db, SYSTEM, 2).digest, UNLIMITED)
    assert segments.lanes(at(db)) == [(EPOCH, SYSTEM), (EPOCH, LOGS)]

    def after(seq: int) -> bytes | None:
        return segments.first_after(at(db), EPOCH, SYSTEM, seq)

    assert after(0) == b"system 1-2"
    assert after(1) == b"system 1-2", "a part of the segment was not read yet"
    assert after(2) == b"system 3-4"
    assert after(4) is None
    assert segments.first_after(at(db), "another epoch", SYSTEM, 0) is None
