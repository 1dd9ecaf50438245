"""The epochs table, and the epochs that name the rows of the outbox."""

from __future__ import annotations

import sqlite3

from edge.engine.rules.service_time import Now
from edge.engine.store import meta
from edge.engine.store.database import Transaction
from edge.features.eventlog.rules.epoch import Hardware
from edge.features.eventlog.store import epochs
from sync.segment import is_epoch
from tests.helpers.store import EPOCH, WALL


def at(db: sqlite3.Connection, wall: int = WALL) -> Transaction:
    return Transaction(db, Now(5.0, wall, True))


def set_row_count(db: sqlite3.Connection, row: int) -> None:
    """Set the number of rows that the outbox ever had."""
    db.execute("DELETE FROM main.sqlite_sequence WHERE name = 'outbox'")
    db.execute("INSERT INTO main.sqlite_sequence VALUES ('outbox', ?)", (row,))


def test_epochs_are_rising_ulids_whatever_the_clock(db: sqlite3.Connection) -> None:
    walls = [WALL, WALL, WALL + 1, WALL - 10**9, 0, -5, WALL + 10**6]
    begun = [epochs.begin(at(db, wall), "restored") for wall in walls]
    assert all(map(is_epoch, begun))
    assert [EPOCH, *begun] == sorted({EPOCH, *begun})
    found = epochs.latest(at(db))
    assert [epoch.epoch for epoch in found] == [*reversed(begun), EPOCH]
    assert [epoch.began for epoch in found] == [*reversed(walls), 0]
    assert meta.epoch(at(db)) == begun[-1]
    assert [epoch.epoch for epoch in epochs.latest(at(db), 1)] == [begun[-1]]


def test_oldest_epochs_are_deleted(db: sqlite3.Connection) -> None:
    begun = [epochs.begin(at(db), "restored") for _ in range(epochs.MAX_EPOCHS + 5)]
    assert db.execute("SELECT count(*) FROM epochs").fetchone() == (epochs.MAX_EPOCHS,)
    assert epochs.epoch_of_row(at(db), 1) == begun[-1]


def test_row_is_named_by_the_epoch_in_which_it_was_written(db: sqlite3.Connection) -> None:
    tx = at(db)
    assert epochs.epoch_of_row(tx, 1) == EPOCH
    set_row_count(db, 7)
    second = epochs.begin(tx, "restored")
    third = epochs.begin(tx, "another-card")
    set_row_count(db, 9)
    fourth = epochs.begin(tx, "another-board")
    for view in (tx, at(db)):
        names = [epochs.epoch_of_row(view, row) for row in (1, 7, 8, 9, 10, 1000)]
        assert names == [EPOCH, EPOCH, third, third, fourth, fourth]
    assert second < third


def test_hardware_is_recorded(db: sqlite3.Connection) -> None:
    tx = at(db)
    assert epochs.load_hardware(tx) == Hardware()
    epochs.mark_copy(tx)
    assert epochs.is_copy(tx)
    epochs.save_hardware(tx, Hardware("b1", None))
    assert not epochs.is_copy(tx)
    epochs.save_hardware(tx, Hardware(None, "c1"))
    assert epochs.load_hardware(tx) == Hardware("b1", "c1")
