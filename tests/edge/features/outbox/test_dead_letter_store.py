"""Tests of the rows of dead letters: their limits, evictions and events."""

from __future__ import annotations

import sqlite3

from edge.engine.database import Transaction
from edge.engine.quota import Usage
from edge.engine.service_time import Now
from edge.features.outbox.store import dead_letters
from edge.features.outbox.store.dead_letters import DeadLetter
from tests.helpers.store import unsealed_events

SENDER = "a@gw.example/r"


def letter(number: int, size: int = 10) -> DeadLetter:
    return DeadLetter(SENDER, f"m{number}", "gw.example", 2, b"x" * size, "why")


def add_dead_letter(db: sqlite3.Connection, dead_letter: DeadLetter, limit: Usage) -> None:
    tx = Transaction(db, Now(0.0, 0, True))
    dead_letters.add(tx, dead_letter, limit)
    tx.run_before_commit()


def dead_letter_ids(db: sqlite3.Connection) -> list[str]:
    return [row[0] for row in db.execute("SELECT msg_id FROM dead ORDER BY id")]


def event_names(db: sqlite3.Connection) -> list[str | None]:
    return [event.name for event in unsealed_events(db)]


def test_dead_letters_are_limited_in_number_and_evictions_are_logged(
    db: sqlite3.Connection,
) -> None:
    for number in range(4):
        add_dead_letter(db, letter(number), Usage(2, 10_000))
    assert dead_letter_ids(db) == ["m2", "m3"]
    assert event_names(db) == ["dead", "dead", "dead", "dead_evicted", "dead", "dead_evicted"]
    tags = [event.tags for event in unsealed_events(db, name="dead_evicted")]
    assert tags == [{"msgId": "m0"}, {"msgId": "m1"}]


def test_dead_letters_are_limited_in_bytes(db: sqlite3.Connection) -> None:
    for number in range(3):
        add_dead_letter(db, letter(number, 40), Usage(100, 100))
    assert dead_letter_ids(db) == ["m1", "m2"]
    add_dead_letter(db, letter(9, 1000), Usage(100, 100))
    assert dead_letter_ids(db) == ["m9"], "one that is too large is kept alone"
    assert db.execute("SELECT messages, bytes FROM dead_total").fetchone() == (1, 1000)
