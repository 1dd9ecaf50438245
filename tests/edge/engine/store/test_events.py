from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from edge.engine.rules.service_time import Now
from edge.engine.store import database, events
from edge.engine.store.database import NeedsDatabase, Transaction
from edge.engine.store.events import (
    LANES,
    LOGS,
    READINGS,
    SYSTEM,
    NewEvent,
    StoredEvent,
    UnsealedLane,
)
from tests.helpers.store import append, delete_unsealed

EVENT = NewEvent("log", text="x")
SIZE = events.EVENT_OVERHEAD + 1


def at(db: sqlite3.Connection, service: float = 0.0) -> Transaction:
    return Transaction(db, Now(service, 1_760_000_000_000, True))


def test_an_event_is_read_as_it_was_written(db: sqlite3.Connection) -> None:
    full = NewEvent(
        "reading", "a@gw/r", "node", "name", -1.5, "°C", "Warning", "text", 2, 17, {"ä": "ö\n"}
    )
    append(Transaction(db, Now(1.0, 123, False)), READINGS, 1, full)
    append(at(db), READINGS, 1, NewEvent("reading"))
    first, second = events.read(at(db), READINGS, 0, 10, 10_000)
    assert first == StoredEvent._make((1, 123, False, *full))
    nulls = [None] * 9
    assert second == StoredEvent._make((2, 1_760_000_000_000, True, "reading", *nulls, {}))
    assert type(first.clock) is bool


def test_each_lane_has_its_own_sequence_from_one(db: sqlite3.Connection) -> None:
    for lane in (LOGS, SYSTEM, LOGS, LOGS):
        append(at(db), lane, 1, EVENT)
    numbers = {lane: [row.seq for row in events.read(at(db), lane, 0, 10, 1000)] for lane in LANES}
    assert numbers == {READINGS: [], LOGS: [1, 2, 3], SYSTEM: [1]}


def test_an_unsealed_lane_has_number_bytes_and_oldest_event(db: sqlite3.Connection) -> None:
    assert events.unsealed_lanes(at(db)) == [
        UnsealedLane(lane, 0, 0, None, None) for lane in sorted(LANES)
    ]
    append(at(db, 5.0), LOGS, 2, EVENT)
    append(at(db, 9.0), LOGS, 1, NewEvent("log", "a", "b", "c", 1.0, "d", "e", "fg", 1, 2))
    append(at(db, 7.0), SYSTEM, 1, NewEvent("system", tags={"key": "value"}))
    assert events.unsealed_lanes(at(db)) == [
        UnsealedLane(LOGS, 3, 2 * SIZE + events.EVENT_OVERHEAD + 7, 5.0, None),
        UnsealedLane(READINGS, 0, 0, None, None),
        UnsealedLane(SYSTEM, 1, events.EVENT_OVERHEAD + 8, 7.0, None),
    ]
    assert [events.unsealed(at(db), lane) for lane in (LOGS, READINGS, SYSTEM)] == [3, 0, 1]
    assert events.fullest_message_lane(at(db)) == 3


def test_the_fullest_lane_is_one_of_the_message_lanes(db: sqlite3.Connection) -> None:
    append(at(db), SYSTEM, 9, EVENT)
    append(at(db), READINGS, 2, EVENT)
    append(at(db), LOGS, 1, EVENT)
    assert events.fullest_message_lane(at(db)) == 2


def test_a_page_is_limited_in_events_and_bytes_but_never_empty(db: sqlite3.Connection) -> None:
    append(at(db), LOGS, 10, EVENT)

    def page(after: int, count: int, size: int) -> list[int]:
        return [row.seq for row in events.read(at(db), LOGS, after, count, size)]

    assert page(0, 3, 10_000) == [1, 2, 3]
    assert page(7, 100, 10_000) == [8, 9, 10]
    assert page(0, 100, 4 * SIZE) == [1, 2, 3, 4]
    assert page(0, 100, 4 * SIZE - 1) == [1, 2, 3]
    assert page(4, 100, 0) == [5]
    assert page(10, 100, 1000) == []


def test_further_events_of_the_gateway_itself_are_counted_not_written(
    db: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MAX_SYSTEM_EVENTS", 3)
    for _ in range(2):
        append(at(db), SYSTEM, 4, EVENT)
        append(at(db), LOGS, 4, EVENT)
    assert [events.unsealed(at(db), lane) for lane in (SYSTEM, LOGS)] == [3, 8]
    tx = at(db)
    events.append(tx, SYSTEM, EVENT)
    assert events.take_logged(tx) == []
    delete_unsealed(at(db), SYSTEM)
    for _ in range(2):
        tx = at(db)
        events.log_unwritten(tx)
        tx.run_before_commit()
    (unwritten,) = events.read(at(db), SYSTEM, 0, 10, 10**6)
    assert (unwritten.seq, unwritten.kind, unwritten.name, unwritten.value) == (
        4,
        "uplink",
        "unwritten",
        6.0,
    )
    assert events.unsealed(at(db), SYSTEM) == 1


def test_events_of_a_transaction_are_one_row_and_need_no_statement(db: sqlite3.Connection) -> None:
    cache: dict[str, Any] = {}
    loaded = Transaction(db, at(db).now, cache)
    assert events.append(loaded, LOGS, EVENT) == 1
    loaded.run_before_commit()
    tx = Transaction(None, at(db).now, cache)
    assert [events.append(tx, LOGS, EVENT) for _ in range(3)] == [2, 3, 4]
    events.append_received(tx, LOGS, EVENT, "a@gw", None, 2, 0)
    assert events.unsealed(tx, LOGS) == 5
    tx.connect(db, tx.now)
    tx.run_before_commit()
    assert db.execute("SELECT first, last FROM event_batches").fetchall() == [(1, 1), (2, 5)]


def test_an_undone_unit_leaves_no_event(db: sqlite3.Connection) -> None:
    cache: dict[str, Any] = {}
    events.set_urgent(at(db), ["Alert"])
    events.append(Transaction(db, at(db).now, cache), LOGS, EVENT)
    tx = Transaction(None, at(db).now, cache)
    kept, undone = NewEvent("system", name="kept"), NewEvent("system", name="no", level="Alert")
    events.append(tx, SYSTEM, kept)
    tx.take_sends()
    for _ in range(2):
        events.append(tx, SYSTEM, undone)
    events.append(tx, READINGS, undone)
    tx.undo()
    assert [events.unsealed(tx, lane) for lane in (SYSTEM, READINGS)] == [1, 0]
    assert events.logged(tx) == [(1, kept)]
    tx.connect(db, tx.now)
    tx.run_before_commit()
    (row,) = events.read(at(db), SYSTEM, 0, 10, 1000)
    assert row.name == "kept"
    status = {
        lane: (bytes_, urgent) for lane, _, bytes_, _, urgent in events.unsealed_lanes(at(db))
    }
    assert status[SYSTEM] == (events.EVENT_OVERHEAD + 4, None)
    assert status[READINGS] == (0, None)


def test_a_unit_without_the_image_needs_the_database() -> None:
    tx = Transaction(None, Now(0.0, 0, True))
    with pytest.raises(NeedsDatabase):
        events.append(tx, LOGS, EVENT)
    tx.undo()


def test_events_in_memory_survive_a_cleared_cache(db: sqlite3.Connection) -> None:
    cache: dict[str, Any] = {}
    tx = Transaction(db, at(db).now, cache)
    events.append(tx, LOGS, EVENT)
    cache.clear()
    assert events.append(tx, LOGS, EVENT) == 2
    tx.run_before_commit()
    assert [row.seq for row in events.read(at(db), LOGS, 0, 10, 1000)] == [1, 2]


def test_sealed_events_of_a_row_are_not_read(db: sqlite3.Connection) -> None:
    append(at(db, 2.0), LOGS, 4, EVENT)
    tx = at(db)
    events.delete_sealed(tx, LOGS, 3)
    assert [row.seq for row in events.read(tx, LOGS, 0, 10, 1000)] == [4]
    assert events.unsealed_lanes(tx)[0] == UnsealedLane(LOGS, 1, SIZE, 2.0, None)
    assert events.unsealed(tx, LOGS) == 1
    events.delete_sealed(tx, LOGS, 4)
    assert events.unsealed_lanes(tx)[0] == UnsealedLane(LOGS, 0, 0, None, None)
    assert db.execute("SELECT count(*) FROM event_batches").fetchone() == (0,)


OLD_COLUMNS = (
    "lane, seq, time, clock, kind, source, topic, name, value, unit, level, text, qos, latency_ms,"
    " tags, bytes, since"
)


def test_events_of_version_5_are_migrated_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = database.migrations()
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        with monkeypatch.context() as patched:
            patched.setattr(database, "migrations", lambda: steps[:5])
            database.migrate(db)
        nulls = [None] * 9
        full = ["a@gw/r", "node", "n\0ä", 0.1 + 0.2, "°C", "Alert", "🙂\n", 2, 2**40]
        rows = [
            (LOGS, 8, 123, 0, "log", *full, '{"ä":"ö"}', 90, 5.5),
            (LOGS, 9, 124, 1, "log", *nulls, None, 48, 6.5),
            (LOGS, 10, 125, 1, "log", None, None, None, -5e-324, *[None] * 5, None, 48, 6.5),
            (SYSTEM, 1, 126, 1, "system", *nulls[:5], "Alert", None, None, None, None, 53, 7.0),
        ]
        placeholders = ", ".join("?" * 17)
        db.executemany(f"INSERT INTO events ({OLD_COLUMNS}) VALUES ({placeholders})", rows)  # noqa: S608
        set_lane = (
            "UPDATE lanes SET last = ?, sealed = ?, previous = ?, bytes = ?, oldest = ?, urgent = ?"
            " WHERE lane = ?"
        )
        db.execute(set_lane, (10, 7, b"d" * 32, 186, 5.5, 5.5, LOGS))
        db.execute(set_lane, (1, 0, bytes(32), 53, 7.0, None, SYSTEM))
        db.execute(set_lane, (4, 4, b"e" * 32, 0, None, None, READINGS))
        db.execute("INSERT INTO meta VALUES ('urgent levels', '[\"Alert\"]')")
        database.migrate(db)
        migrated = events.read(at(db), LOGS, 0, 10, 10_000)
        assert migrated == [
            StoredEvent._make((8, 123, False, "log", *full, {"ä": "ö"})),
            StoredEvent._make((9, 124, True, "log", *nulls, {})),
            StoredEvent._make((10, 125, True, "log", *nulls[:3], -5e-324, *nulls[:5], {})),
        ]
        assert events.unsealed_lanes(at(db)) == [
            UnsealedLane(LOGS, 3, 186, 5.5, 5.5),
            UnsealedLane(READINGS, 0, 0, None, None),
            UnsealedLane(SYSTEM, 1, 53, 7.0, None),
        ]
        chains = db.execute("SELECT lane, sealed, previous FROM lanes ORDER BY lane").fetchall()
        assert chains == [(LOGS, 7, b"d" * 32), (READINGS, 4, b"e" * 32), (SYSTEM, 0, bytes(32))]
        tx = at(db)
        assert [events.append(tx, lane, EVENT) for lane in (LOGS, READINGS)] == [11, 5]
        events.delete_sealed(tx, LOGS, 8)
        assert events.unsealed_lanes(tx)[0] == UnsealedLane(LOGS, 3, 186 - 90 + SIZE, 6.5, None)
