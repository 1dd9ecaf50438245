"""The offline table: usage, pages and expiry."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest

from edge.engine.rules.quota import Usage, WaitingUsage
from edge.engine.store import database, in_flight
from edge.engine.store.database import MessageBytes, Receipt, Transaction
from edge.features.accounts.store import accounts
from edge.features.messages import store
from edge.features.messages.store import ExpiredMessage, StoredMessage
from tests.helpers.store import Clock

SENDER = "pump1@gw.example/fw"
OTHER = "pump2@gw.example/fw"


@pytest.fixture
def tx(db: sqlite3.Connection) -> Iterator[Transaction]:
    with database.transaction(db, Clock()()) as tx:
        for name in ("valve", "lamp"):
            accounts.add(tx, name, (), trusted=True)
        yield tx


def add(tx: Transaction, *names: str, size: int = 10) -> None:
    for name in names:
        store.add(tx, name, stored(SENDER, size))


def stored(sender: str, size: int = 10) -> StoredMessage:
    return StoredMessage(MessageBytes(b"x" * size), sender, 1_700_000_000_000)


def test_usage_is_counted_per_account_source_and_total(tx: Transaction) -> None:
    add(tx, "valve", "valve", "lamp")
    store.add(tx, "lamp", stored(OTHER))
    charge = store.stored_size(stored(SENDER))
    assert charge == 10 + len(SENDER) + store.ROW_OVERHEAD
    assert len(OTHER) == len(SENDER)
    none, one, two, three, four = (Usage(count, count * charge) for count in range(5))
    assert store.usage(tx, "valve", "pump1@gw.example/other") == (2, WaitingUsage(two, three, four))
    assert store.usage(tx, "lamp", OTHER) == (1, WaitingUsage(two, one, four))
    unknown = "pump1@gw.example.org/fw"
    assert store.usage(tx, "nobody", unknown) == (0, WaitingUsage(none, none, four))
    store.remove(tx, "lamp", [3])
    store.remove(tx, "valve", [1, 4])
    assert store.find_account(tx, 4) == "lamp", "the row of another account stays"
    assert store.usage(tx, "valve", SENDER) == (1, WaitingUsage(one, one, two))


def test_usage_is_computed_without_reading_stanzas(db: sqlite3.Connection, tx: Transaction) -> None:
    """Sizes are stored after the stanza in the row; reading them would read its pages."""
    statements: list[str] = []
    db.set_trace_callback(statements.append)
    store.usage(tx, "valve", SENDER)
    db.set_trace_callback(None)
    plans = [str(row[3]) for sql in statements for row in tx.rows(f"EXPLAIN QUERY PLAN {sql}")]
    reads = [plan for plan in plans if "offline " in plan]
    assert len(reads) == 2
    assert all(plan.startswith("SEARCH main.offline USING COVERING INDEX") for plan in reads)


@pytest.mark.parametrize(
    ("account", "count", "max_bytes", "rows"),
    [
        ("valve", 10, 1000, [1, 3, 4]),
        ("valve", 2, 1000, [1, 3]),
        ("valve", 10, 20, [1, 3]),
        ("valve", 10, 1, [1]),
        ("nobody", 10, 1000, []),
    ],
)
def test_page_holds_the_oldest_messages_within_limits(
    tx: Transaction, account: str, count: int, max_bytes: int, rows: list[int]
) -> None:
    add(tx, "valve", "lamp", "valve", "valve")
    page = store.read_page(tx, account, Usage(count, max_bytes))
    assert page == [(row, stored(SENDER)) for row in rows]


def test_page_fits_into_the_window_beside_what_is_in_flight(tx: Transaction) -> None:
    add(tx, "valve", "valve", "valve", "valve")
    in_flight.begin(tx, Receipt(store.RECEIPT, 1), 7)
    in_flight.begin(tx, Receipt(store.SESSION_RECEIPT, 2), 7)
    for window, rows in (
        (Usage(2, 99), [3]),
        (Usage(3, 20), [3]),
        (Usage(1, 9), []),
    ):
        page = store.read_page(tx, "valve", window, Usage(1, 10))
        assert [row for row, _message in page] == rows


def test_messages_are_found_by_where_they_were_sent(tx: Transaction) -> None:
    add(tx, "valve", "lamp")
    assert store.has_messages(tx, "valve")
    assert store.has_waiting(tx, "valve")
    in_flight.begin(tx, Receipt(store.RECEIPT, 1), 7)
    in_flight.begin(tx, Receipt("another kind", 2), 7)
    assert store.has_messages(tx, "valve")
    assert not store.has_waiting(tx, "valve")
    assert store.has_waiting(tx, "lamp")
    in_flight.end(tx, Receipt(store.RECEIPT, 1), 7)
    in_flight.begin(tx, Receipt(store.SESSION_RECEIPT, 1), 7)
    assert not store.has_messages(tx, "valve"), "it is for one session alone"
    assert not store.has_waiting(tx, "valve")


def test_usage_in_flight_is_counted_by_session_kind_and_source(tx: Transaction) -> None:
    add(tx, "valve", "valve", "valve")
    store.add(tx, "valve", stored(OTHER))
    charge = store.stored_size(stored(SENDER))
    for kind, row, generation in (
        (store.RECEIPT, 1, 7),
        (store.SESSION_RECEIPT, 2, 7),
        (store.SESSION_RECEIPT, 3, 8),
        (store.SESSION_RECEIPT, 4, 7),
    ):
        in_flight.begin(tx, Receipt(kind, row), generation)
    found = store.usage_in_flight(tx, 7, store.SESSION_RECEIPT, SENDER)
    assert found == (Usage(2, 2 * charge), Usage(1, charge))


def test_old_messages_expire_unless_they_are_in_flight(tx: Transaction) -> None:
    add(tx, "valve", "valve")
    tx.now = Clock(1010.0)()
    add(tx, "valve")
    in_flight.begin(tx, Receipt(store.RECEIPT, 1), 7)
    assert store.expire(tx, 10.001) == []
    assert store.oldest_since(tx) == 1000.0
    assert store.expire(tx, 10) == [ExpiredMessage(SENDER, "valve")]
    assert store.oldest_since(tx) == 1010.0
    assert store.expire(tx, 10) == []
    assert [row for row, _ in store.read_page(tx, "valve", Usage(9, 99))] == [3]
    in_flight.take_unacknowledged(tx, 7)
    assert store.oldest_since(tx) == 1000.0


def test_moved_messages_expire_by_age(db: sqlite3.Connection, tx: Transaction) -> None:
    """More than a batch of younger messages has lower row numbers than the oldest message."""
    add(tx, "lamp")
    tx.now = Clock(1010.0)()
    add(tx, *["valve"] * (store.BATCH_SIZE + 1), "lamp")
    last = store.last_row(tx, "lamp")
    store.move_to_end(tx, "lamp", last - 1)
    assert store.last_row(tx, "lamp") == last + 1
    statements: list[str] = []
    db.set_trace_callback(statements.append)
    assert store.oldest_since(tx) == 1000.0
    assert store.expire(tx, 10) == [ExpiredMessage(SENDER, "lamp")]
    db.set_trace_callback(None)
    plans = [
        str(row[3])
        for sql in set(statements)  # triggers' statements begin with --
        if not sql.startswith("--")
        for row in tx.rows(f"EXPLAIN QUERY PLAN {sql}")
    ]
    assert sum("USING COVERING INDEX offline_by_age" in plan for plan in plans) == 2
    assert not [plan for plan in plans if "TEMP B-TREE" in plan or plan.startswith("SCAN m")]


def test_expiry_is_limited_per_unit_of_work(tx: Transaction) -> None:
    add(tx, *["valve"] * (store.BATCH_SIZE + 1))
    assert len(store.expire(tx, 0)) == store.BATCH_SIZE
    assert len(store.expire(tx, 0)) == 1
    assert store.oldest_since(tx) is None
