"""Tests of custody's rows: held messages, charges, released keys, dead letters and totals."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.engine import quota
from edge.engine.database import Transaction
from edge.engine.quota import EvictionCandidate, Usage
from edge.engine.service_time import Now
from edge.features.custody import store as custody
from edge.features.custody.store import (
    PAGE_KEYS,
    HeldMessage,
    forget_released,
    remember_released,
    was_released,
)
from edge.features.outbox.store import dead_letters
from edge.features.outbox.store.dead_letters import DeadLetter
from tests.helpers.store import digest_of, in_memory

A, B = "a@gw.example", "b@gw.example"


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    with in_memory() as connection:
        yield connection


def at(db: sqlite3.Connection, service: float = 0.0) -> Transaction:
    return Transaction(db, Now(service, 0, True))


def hold(tx: Transaction, source: str, msg_id: str, body: bytes = b"body") -> HeldMessage:
    custody.hold(tx, source, f"{source}/r", msg_id, "gw.example", body, digest_of(msg_id))
    found = custody.find(tx, source, f"{source}/r", msg_id)
    assert found is not None
    return found


def test_a_held_message_is_found_by_its_key(db: sqlite3.Connection) -> None:
    tx = at(db, 5.0)
    held = hold(tx, A, "m1", b"\x00\xff")
    assert held[1:] == (
        *(A, f"{A}/r", "m1", "gw.example"),
        *(b"\x00\xff", digest_of("m1"), 5.0),
    )
    assert custody.held_digest(tx, A, f"{A}/r", "m1") == digest_of("m1")
    for key in ((A, f"{A}/other", "m1"), (A, f"{A}/r", "m2"), (B, f"{B}/r", "m1")):
        assert custody.find(tx, *key) is None
        assert custody.held_digest(tx, *key) is None


def test_a_key_is_held_once(db: sqlite3.Connection) -> None:
    tx = at(db)
    hold(tx, A, "m1")
    with pytest.raises(sqlite3.IntegrityError):
        hold(tx, A, "m1", b"another")


def test_a_message_is_charged_with_body_and_key() -> None:
    assert quota.charge("", b"") == quota.ROW_OVERHEAD
    assert quota.charge("é", b"xyz") == quota.ROW_OVERHEAD + 5


def test_usage_of_a_source_and_in_total(db: sqlite3.Connection) -> None:
    tx = at(db)
    assert custody.usage(tx, A) == (Usage(0, 0), Usage(0, 0))
    hold(tx, A, "m1", b"x" * 10)
    held = hold(tx, B, "m2", b"x" * 20)
    size = quota.charge("m1", b"")
    assert custody.usage(tx, A) == (Usage(1, size + 10), Usage(2, 2 * size + 30))
    custody.release(tx, held, 256)
    assert custody.usage(tx, B) == (Usage(0, 0), Usage(1, size + 10))


def test_released_keys_are_remembered_and_removed_ones_are_not(db: sqlite3.Connection) -> None:
    tx = at(db)
    custody.release(tx, hold(tx, A, "m1"), 256)
    assert custody.find(tx, A, f"{A}/r", "m1") is None
    assert was_released(tx, A, f"{A}/r", "m1")
    assert not was_released(tx, A, f"{A}/other", "m1")
    assert not was_released(tx, B, f"{A}/r", "m1")
    held = hold(tx, A, "m2")
    assert custody.remove(tx, held.row) == held
    assert not was_released(tx, A, f"{A}/r", "m2")


def test_removing_a_message_forgets_an_earlier_release_of_its_key(
    db: sqlite3.Connection,
) -> None:
    tx = at(db)
    for _ in range(2):
        custody.release(tx, hold(tx, A, "m1"), 256)
    custody.release(tx, hold(tx, A, "m2"), 256)
    custody.remove(tx, hold(tx, A, "m1").row)
    assert not was_released(tx, A, f"{A}/r", "m1")
    assert was_released(tx, A, f"{A}/r", "m2")


@pytest.mark.parametrize("keys", [1, 32, 33, 256])
def test_the_number_of_remembered_keys_is_limited(db: sqlite3.Connection, keys: int) -> None:
    tx, most = at(db), keys + 2 * PAGE_KEYS
    for number in range(most + 100):
        custody.release(tx, hold(tx, A, f"m{number}"), keys)
        if number in (0, keys, keys + 5, most, most + 99):
            known = [n for n in range(number + 1) if was_released(tx, A, f"{A}/r", f"m{n}")]
            assert known == list(range(number + 1 - len(known), number + 1)), "the last, no gap"
            assert min(keys, number + 1) <= len(known) <= most
    assert not was_released(tx, B, f"{A}/r", f"m{most}")


def test_a_key_is_forgotten_in_every_page(db: sqlite3.Connection) -> None:
    tx = at(db)
    event_names = [f"m{number}" for number in range(100)]
    for name in event_names:
        remember_released(tx, A, f"{A}/r", name, 256)
    for gone in ("m0", "m40", "m99"):
        forget_released(tx, A, f"{A}/r", gone)
        forget_released(tx, B, f"{A}/r", gone)
        event_names.remove(gone)
    found = [f"m{n}" for n in range(100) if was_released(tx, A, f"{A}/r", f"m{n}")]
    assert found == event_names


def test_eviction_candidates_come_oldest_first(db: sqlite3.Connection) -> None:
    rows = []
    for number in range(3):
        rows.append(hold(at(db, float(number)), A, f"m{number}", b"x" * number).row)
        hold(at(db, float(number)), B, f"m{number}")
    size = quota.charge("m0", b"")
    assert list(custody.oldest(at(db, 10.0), A)) == [
        EvictionCandidate(row, size + number, 10.0 - number) for number, row in enumerate(rows)
    ]


def test_messages_expire_by_service_seconds_in_batches(
    db: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(custody, "EXPIRY_BATCH", 3)
    rows = [hold(at(db, float(number)), A, f"m{number}").row for number in range(5)]
    assert custody.expired(at(db, 10.0), ttl=10.0) == rows[:1]
    assert custody.expired(at(db, 12.5), ttl=10.0) == rows[:3]
    assert custody.expired(at(db, 1000.0), ttl=10.0) == rows[:3], "the rest comes next"
    assert custody.oldest_since(at(db)) == 0.0
    for row in rows[:3]:
        custody.remove(at(db), row)
    assert custody.oldest_since(at(db)) == 3.0
    for row in rows[3:]:
        custody.remove(at(db), row)
    assert custody.oldest_since(at(db)) is None


# Totals kept by triggers.

OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["hold", "release", "remove", "dead letter", "rollback"]),
        st.sampled_from([A, B, "c@gw.example"]),
        st.integers(0, 3),
        st.integers(0, 50),
    ),
    max_size=40,
)


@given(OPERATIONS)
@settings(deadline=None, max_examples=60)
def test_totals_equal_a_recount(operations: list[tuple[str, str, int, int]]) -> None:
    with in_memory() as db:
        for operation, source, number, size in operations:
            db.execute("BEGIN")
            tx = at(db)
            apply(tx, operation, source, f"m{number}", size)
            tx.run_before_commit()
            db.execute("ROLLBACK" if operation == "rollback" else "COMMIT")
            assert recounted_totals(db) == stored_totals(db)


def apply(tx: Transaction, operation: str, source: str, msg_id: str, size: int) -> None:
    held = custody.find(tx, source, f"{source}/r", msg_id)
    if operation == "dead letter":
        dead_letters.add(tx, DeadLetter(source, msg_id, "gw", 2, b"x" * size, "why"), Usage(3, 100))
    elif held is None:
        hold(tx, source, msg_id, b"x" * size)
    elif operation == "remove":
        custody.remove(tx, held.row)
    else:
        custody.release(tx, held, 2)


def recounted_totals(db: sqlite3.Connection) -> list[object]:
    held = "SELECT count(*), coalesce(sum(bytes), 0) FROM held"
    dead_ones = "SELECT count(*), coalesce(sum(bytes), 0) FROM dead"
    return [db.execute(held).fetchone(), db.execute(dead_ones).fetchone()]


def stored_totals(db: sqlite3.Connection) -> list[object]:
    held = "SELECT messages, bytes FROM custody_total"
    dead_ones = "SELECT messages, bytes FROM dead_total"
    return [db.execute(held).fetchone(), db.execute(dead_ones).fetchone()]
