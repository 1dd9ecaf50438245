from __future__ import annotations

import sqlite3

import pytest

from edge.engine.rules.service_time import Now, Run, SavedTime, TrustedMoment
from edge.engine.store import events, meta
from edge.engine.store.database import Transaction
from edge.engine.time import clock_store
from edge.features.custody import store as custody_store
from edge.features.messages import store as messages_store
from edge.features.outbox.store import outbox
from tests.helpers.store import WALL, digest_of, unsealed_events

DAY = 86_400.0
RUN = Run("two", 0.0)
TABLES = ("held", "outbox", "offline")
HOOKS = (custody_store.age, outbox.age, messages_store.age)


@pytest.fixture
def db(db: sqlite3.Connection) -> sqlite3.Connection:
    db.execute("INSERT INTO accounts (name, trusted, created) VALUES ('a', 1, 0)")
    return db


def at(db: sqlite3.Connection, seconds: float, wall: float = 0.0, *, trusted: bool) -> Transaction:
    return Transaction(db, Now(seconds, WALL + round(wall * 1000), trusted))


def store(db: sqlite3.Connection, seconds: float) -> None:
    """Store one message of each kind, and an event."""
    tx = at(db, seconds, trusted=False)
    custody_store.hold(tx, "a", "a/r", str(seconds), "gw", b"x", digest_of("x"), 10)
    tx.run(
        "INSERT INTO outbox (recipient, source, sender, qos, bytes, since)"
        " VALUES ('a', 'a', 'a/r', 1, 1, ?)",
        (seconds,),
    )
    tx.run(
        "INSERT INTO offline (account, stanza, sender, bytes, since) VALUES (1, x'', 'a/r', 1, ?)",
        (seconds,),
    )
    events.append(tx, events.LOGS, events.NewEvent("log"))
    tx.run_before_commit()


def stored(db: sqlite3.Connection) -> dict[str, tuple[float, ...]]:
    return {
        table: tuple(since for (since,) in db.execute(f"SELECT since FROM {table} ORDER BY id"))  # noqa: S608
        for table in TABLES
    }


def logged(db: sqlite3.Connection) -> list[tuple[float | None, str | None, dict[str, str]]]:
    rows = unsealed_events(db, name="time_off")
    return [(event.value, event.level, event.tags) for event in rows]


def test_a_saved_state_is_loaded_unchanged(db: sqlite3.Connection) -> None:
    tx = at(db, 0.0, trusted=False)
    assert clock_store.load(tx) == SavedTime()
    for state in (
        SavedTime(12.5, "one", 3.25, TrustedMoment(12.0, WALL), 11.0, clean=True),
        SavedTime(13.5, "two", 1.0),
    ):
        clock_store.save(tx, state)
        assert clock_store.load(tx) == state
        assert meta.last_service_second(tx) == state.service


def test_an_older_database_has_only_service_seconds(db: sqlite3.Connection) -> None:
    tx = at(db, 0.0, trusted=False)
    meta.write(tx, meta.SERVICE, 1234.5)
    assert clock_store.load(tx) == SavedTime(1234.5)


@pytest.mark.parametrize("table", ["custody", "outbox", "offline", "event_batches"])
def test_the_last_service_second_is_at_least_that_of_the_newest_row(
    db: sqlite3.Connection, table: str
) -> None:
    store(db, 50.0)
    store(db, 150.0)
    for other in {"custody", "outbox", "offline", "event_batches"} - {table}:
        db.execute(f"DELETE FROM {other}")  # noqa: S608
    assert meta.last_service_second(at(db, 0.0, trusted=False)) == 150.0


def test_a_time_off_ages_only_earlier_rows(db: sqlite3.Connection) -> None:
    store(db, 1000.0)
    clock_store.save(
        at(db, 0.0, trusted=False),
        SavedTime(1000.0, "two", 1000.0, TrustedMoment(900.0, WALL), 1000.0),
    )
    store(db, 1010.0)
    tx = at(db, 1020.0, 0.0, trusted=False)
    assert not clock_store.settle_time_off(tx, RUN, HOOKS)
    clock_store.save_progress(at(db, 1025.0, DAY + 125.0, trusted=True), RUN)
    assert clock_store.load(tx) == SavedTime(
        1025.0, "two", 1025.0, TrustedMoment(900.0, WALL), 1000.0
    )
    assert (tx.due, logged(db)) == (None, []), "not yet"
    tx = at(db, 1030.0, DAY + 130.0, trusted=True)
    assert clock_store.settle_time_off(tx, RUN, HOOKS)
    tx.run_before_commit()
    assert stored(db) == dict.fromkeys(TABLES, (1000.0 - DAY, 1010.0))
    assert logged(db) == [(DAY, "Informational", {"known": "wall clock"})]
    assert tx.due == 1030.0, "the aged rows may have expired"
    expected = SavedTime(1030.0, "two", 1030.0, TrustedMoment(1030.0, tx.now.wall))
    assert clock_store.load(tx) == expected
    assert clock_store.settle_time_off(at(db, 1040.0, DAY + 140.0, trusted=True), RUN, HOOKS)
    clock_store.save_progress(at(db, 1040.0, DAY + 140.0, trusted=True), RUN, clean=True)
    assert stored(db)["held"] == (1000.0 - DAY, 1010.0), "once"
    assert clock_store.load(tx).clean


def test_an_implausible_time_off_is_logged_and_ages_no_rows(db: sqlite3.Connection) -> None:
    store(db, 1000.0)
    state = SavedTime(1000.0, "two", 1000.0, TrustedMoment(1000.0, WALL), 1000.0)
    clock_store.save(at(db, 0.0, trusted=False), state)
    tx = at(db, 1000.0, 20 * 365 * DAY, trusted=True)
    assert clock_store.settle_time_off(tx, RUN, HOOKS)
    tx.run_before_commit()
    assert stored(db)["held"] == (1000.0,)
    assert logged(db) == [(20 * 365 * DAY, "Warning", {"known": "implausible"})]
    assert tx.due is None
