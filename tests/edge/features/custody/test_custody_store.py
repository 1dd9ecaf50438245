"""Tests of custody's store: held messages, charges, released keys, bodies, and its migration.

The property test of the image (tests/property) covers transactions, undone units and restarts.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from hashlib import blake2b
from xml.etree.ElementTree import Element

import pytest

from edge.engine.rules import quota
from edge.engine.rules.quota import Usage
from edge.engine.rules.service_time import Now
from edge.engine.store import database, tables
from edge.engine.store.database import NeedsDatabase, Transaction
from edge.features.custody import store as custody
from edge.features.custody.store import PAGE_KEYS, HeldMessage, was_released
from edge.features.outbox.store import outbox
from tests.helpers.custody_image import image_equals_rows
from tests.helpers.store import digest_of

A, B = "a@gw.example", "b@gw.example"


def at(db: sqlite3.Connection, service: float = 0.0) -> Transaction:
    return Transaction(db, Now(service, 0, True))


def hold(tx: Transaction, source: str, msg_id: str, body: bytes = b"body") -> HeldMessage:
    size = quota.charge(msg_id, body)
    custody.hold(tx, source, f"{source}/r", msg_id, "gw.example", body, digest_of(msg_id), size)
    found = custody.find(tx, source, f"{source}/r", msg_id)
    assert found is not None
    return found


def test_a_held_message_is_found_by_its_key(db: sqlite3.Connection) -> None:
    tx = at(db, 5.0)
    held = hold(tx, A, "m1", b"\x00\xff")
    assert (held.source, held.sender, held.msg_id) == (A, f"{A}/r", "m1")
    assert (held.destination, held.digest, held.since) == ("gw.example", digest_of("m1"), 5.0)
    assert (held.size, held.recipient) == (quota.charge("m1", b"xx"), None)
    assert custody.read_body(tx, held) == (b"\x00\xff", None)
    image_equals_rows(tx)
    assert custody.find_all(tx, A, f"{A}/r", "m1") == (held, [])
    assert custody.find_all(tx, A, f"{A}/other", "m1") == (None, [held])
    for key in ((A, f"{A}/other", "m1"), (A, f"{A}/r", "m2"), (B, f"{B}/r", "m1")):
        assert custody.find(tx, *key) is None


@pytest.mark.parametrize("keys", [1, 32, 33, 256])
def test_the_number_of_remembered_keys_is_limited(db: sqlite3.Connection, keys: int) -> None:
    tx, maximum = at(db), keys + 2 * PAGE_KEYS + custody.RELEASED_ROWS
    last = maximum + 2 * custody.RELEASED_ROWS + 10
    for number in range(last + 1):
        custody.release(tx, hold(tx, A, f"m{number}"), keys)
        tx.write()
        if number in (0, keys, keys + 5, maximum, last - 9, last):
            known = [n for n in range(number + 1) if was_released(tx, A, f"{A}/r", f"m{n}")]
            assert known == list(range(number + 1 - len(known), number + 1)), "without a gap"
            assert min(keys, number + 1) <= len(known) <= maximum
    assert not was_released(tx, B, f"{A}/r", f"m{maximum}")


def test_a_key_is_forgotten_in_every_page(db: sqlite3.Connection) -> None:
    tx, count = at(db), custody.RELEASED_ROWS // 2 + 5
    names = [f"m{number}" for number in range(count)]
    for name in names:  # the last five of each source are not in a page yet
        for source in (A, B):
            custody.release(tx, hold(tx, source, name), 256)
    forgotten = [0, 40, count - 6, count - 1]
    for name in (f"m{number}" for number in forgotten):
        custody.remove(tx, hold(tx, A, name), 256)
        names.remove(name)
        image_equals_rows(tx)
    missing = [n for n in range(count) if not was_released(tx, A, f"{A}/r", f"m{n}")]
    assert missing == forgotten
    assert all(was_released(tx, B, f"{B}/r", f"m{n}") for n in range(count))


def test_messages_expire_by_service_seconds_in_batches(db: sqlite3.Connection) -> None:
    tx, held, batch = at(db), [], custody.EXPIRY_BATCH
    for number in range(batch + 2):
        tx.now = Now(float(number), 0, True)
        held.append(hold(tx, A, f"m{number}"))
    assert [one.row for one in custody.oldest(tx, A)] == [one.row for one in held]

    def expired(now: float) -> list[str]:
        tx.now = Now(now, 0, True)
        return [found.msg_id for found in custody.expired(tx, ttl=10.0)]

    assert expired(10.0) == ["m0"]
    assert expired(12.5) == ["m0", "m1", "m2"]
    assert expired(1000.0) == [f"m{number}" for number in range(batch)], "limited to a batch"
    assert custody.oldest_since(tx) == 0.0
    for one in held[:batch]:
        custody.remove(tx, one, 256)
    assert custody.oldest_since(tx) == batch
    for one in held[batch:]:
        custody.remove(tx, one, 256)
    assert custody.oldest_since(tx) is None


def test_bodies_are_in_memory_up_to_a_limit(db: sqlite3.Connection) -> None:
    tx, half = at(db), custody.BODY_BYTES // 2
    x, y = b"x" * half, b"y" * (custody.BODY_BYTES - half)
    first, second = hold(tx, A, "m1", x), hold(tx, A, "m2", y)
    bodies = custody._image(tx).bodies
    assert (bodies.get(first.row), bodies.get(second.row)) == ((x, None), (y, None))
    third = hold(tx, A, "m3", b"z")
    assert [bodies.get(held.row) for held in (first, second)] == [None, (y, None)]
    assert bodies.get(third.row) == (b"z", None)
    assert custody.read_body(tx, first)[0] == x, "from a row that is not committed"
    large = hold(tx, A, "m4", b"l" * (custody.BODY_BYTES + 1))
    assert bodies.get(large.row) is None
    assert bodies.get(third.row) is None, "the oldest bodies are dropped first"
    image_equals_rows(tx)


def test_a_parsed_message_uses_memory_and_is_dropped_with_the_body(db: sqlite3.Connection) -> None:
    tx, parsed = at(db), Element("message")
    body = b"x" * (custody.BODY_BYTES // (1 + custody.PARSED_BYTES))
    for name in ("m1", "m2"):
        custody.hold(tx, A, f"{A}/r", name, "gw", body, digest_of(name), 10, parsed=parsed)
    messages = [custody.find(tx, A, f"{A}/r", name) for name in ("m1", "m2")]
    found = [custody.read_body(tx, held) for held in messages if held]
    assert found == [(body, None), (body, parsed)]


def test_in_memory_a_unit_uses_the_image_and_reads_no_rows(db: sqlite3.Connection) -> None:
    with pytest.raises(NeedsDatabase):
        custody.usage(Transaction(None, Now(0.0, 0, True)), A)
    first = at(db)
    hold(first, A, "m1", b"x" * (custody.BODY_BYTES + 1))
    first.run_before_commit()
    tx = Transaction(None, first.now, first.cache)
    found = hold(tx, A, "m2")
    assert custody.usage(tx, A)[0][0] == 2
    custody.release(tx, found, 256)
    assert was_released(tx, A, f"{A}/r", "m2")
    missing = custody.find(tx, A, f"{A}/r", "m1")
    assert missing is not None
    with pytest.raises(NeedsDatabase):
        custody.read_body(tx, missing)
    tx.undo()
    assert custody.find(tx, A, f"{A}/r", "m2") is None
    tx.connect(db, first.now)
    image_equals_rows(tx)
    assert db.execute("SELECT msg_id FROM custody").fetchall() == [("m1",)]


def test_released_keys_of_an_older_version_are_known(db: sqlite3.Connection) -> None:
    key = blake2b(f"{A}/r\0m1".encode(), digest_size=8).digest()
    db.execute("INSERT INTO released_latest VALUES (?, ?, 0)", (A, key))
    assert was_released(at(db), A, f"{A}/r", "m1")
    assert not was_released(at(db), A, f"{A}/r", "m2")
    tx = at(db)
    custody.remove(tx, hold(tx, A, "m1"), 256)
    assert not was_released(tx, A, f"{A}/r", "m1")


def test_custody_of_an_older_version_is_migrated(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = database.migrations()
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        monkeypatch.setattr(database, "migrations", lambda: [s for s in steps if s[0] < 7])
        database.migrate(db)
        held = (A, f"{A}/r", "gw", b"body", digest_of("x"), 100, 5.0)
        for name, recipient in (("m1", None), ("m2", "valve"), ("m3", "valve")):
            db.execute(
                "INSERT INTO held (source, sender, destination, body, digest, bytes, since, msg_id,"
                " recipient) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*held, name, recipient),
            )
        db.execute("DELETE FROM held WHERE msg_id = 'm2'")
        key = custody._key(f"{A}/r", "m0")
        db.execute("INSERT INTO released_latest VALUES (?, ?, 1)", (A, key))
        db.execute("INSERT INTO released_pages VALUES (?, 0, ?)", (A, bytes(8) + key))
        monkeypatch.undo()
        database.migrate(db)
        db.executescript(tables.temporary())
        tx = at(db)
        assert outbox.usage(tx, "valve", A)[1].total == Usage(1, 100)
        image_equals_rows(tx)
        assert custody.usage(tx, A) == (Usage(2, 200), Usage(2, 200))
        assert was_released(tx, A, f"{A}/r", "m0")
        for name in ("m1", "m3"):
            found = custody.find(tx, A, f"{A}/r", name)
            assert found is not None
            assert (custody.read_body(tx, found)[0], found.since) == (b"body", 5.0)
            custody.release(tx, found, 256)
        tx.run_before_commit()
        assert outbox.usage(at(db), "valve", A)[1].total == Usage()
