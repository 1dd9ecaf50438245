from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from edge.engine.dispatch.item_attributes import NO_ATTRIBUTES
from edge.engine.rules.space_rules import WAL_SHARE
from edge.engine.store import database
from edge.errors import SetupError, StoreBroken, StoreBusy, StoreDamaged, StoreError, StoreFull
from edge.features.pubsub.store import items
from edge.features.queues.store import queue_items
from tests.helpers.store import Clock, new_database

SCHEMA = Path(__file__).parents[1] / "schema.sql"
MOMENT = Clock()()


def schema(connection: sqlite3.Connection) -> str:
    """Return the SQL of all objects of the database, ordered by type and name."""
    rows = connection.execute(
        "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type, name"
    )
    return "".join(f"{sql};\n\n" for (sql,) in rows)


def normalised(sql: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"--[^\n]*", "", sql)).strip()


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A database of version 0: one that no migration has touched."""
    with closing(sqlite3.connect(tmp_path / "empty.db", isolation_level=None)) as connection:
        yield connection


def test_every_table_is_strict(path: Path) -> None:
    with closing(database.connect_reader(path)) as connection:
        tables = connection.execute(
            "SELECT name, strict FROM pragma_table_list WHERE type <> 'view'"
        ).fetchall()
    assert {name for name, strict in tables if not strict} <= {
        "sqlite_schema",
        "sqlite_sequence",
        "sqlite_temp_schema",
    }
    assert len(tables) > 12


def test_migrations_are_numbered_from_one_without_a_gap() -> None:
    numbers = [number for number, _ in database.migrations()]
    assert numbers == list(range(1, len(numbers) + 1))


def test_the_migrated_schema_equals_the_written_schema(empty: sqlite3.Connection) -> None:
    database.migrate(empty)
    assert normalised(schema(empty)) == normalised(SCHEMA.read_text("utf-8"))
    newest = database.migrations()[-1][0]
    assert empty.execute("PRAGMA user_version").fetchone() == (newest,)
    database.migrate(empty)  # nothing more to do


def test_a_new_database_has_the_newest_schema_and_is_private_to_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    database.create(path)
    assert path.stat().st_mode & 0o777 == 0o600
    with closing(database.connect_reader(path)) as connection:
        assert normalised(schema(connection)) == normalised(SCHEMA.read_text("utf-8"))


def migrate_until(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Apply the migrations before the first one that contains a text."""
    steps = database.migrations()
    before = next(i for i, (_, sql) in enumerate(steps) if text in sql)
    with monkeypatch.context() as patch:
        patch.setattr(database, "migrations", lambda: steps[:before])
        database.migrate(connection)


def test_items_of_an_older_database_are_xml_at_level_2(
    empty: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate_until(empty, monkeypatch, "items ADD COLUMN content_type")
    empty.executescript("""
INSERT INTO nodes (name, owner, config) VALUES ('n', 'a@gw', '{}'), ('q', 'a@gw', '{}');
INSERT INTO items (node, item, publisher, wall, bytes, body)
VALUES (1, 'x', 'a@gw/1', 0, 10, x'3c612f3e');
INSERT INTO queues (node) VALUES (2);
INSERT INTO queue_items (queue, node, item, publisher, wall, since, bytes)
VALUES (1, 'q', 'x', 'a@gw/1', 0, 0, 3);
INSERT INTO queue_bodies (id, body) VALUES (1, x'3c612f3e');
""")
    database.migrate(empty)
    with database.transaction(empty, MOMENT) as tx:
        kept, queued = items.get(tx, 1, "x"), queue_items.get(tx, 1)
        assert kept is not None
        assert queued is not None
        assert (kept.payload, kept.attributes, queued.qos) == (b"<a/>", NO_ATTRIBUTES, 2)
        body, attributes = queue_items.body(tx, queued.row)
        assert (body, attributes._replace(retain=None)) == (b"<a/>", NO_ATTRIBUTES)


def test_usage_by_source_counts_the_items_of_an_older_database(
    empty: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate_until(empty, monkeypatch, "CREATE TABLE item_sources")
    empty.executescript("""
INSERT INTO accounts (name, trusted, created) VALUES ('a', 1, 0), ('b', 1, 0);
INSERT INTO nodes (name, owner, config) VALUES ('n', 'a@gw', '{}');
INSERT INTO items (node, item, publisher, wall, bytes, body, author) VALUES
    (1, 'x', 'a@gw/1', 0, 10, x'', NULL), (1, 'y', 'a@gw', 0, 5, x'', NULL),
    (1, 'z', 'a@gw/1', 0, 7, x'', 'b@gw');
INSERT INTO queues (node, share, filter) VALUES (1, NULL, NULL), (NULL, 's', '#');
INSERT INTO subscriptions (subid, account, jid, filter, queue) VALUES ('1', 2, 'b@gw/w', '#', 2);
INSERT INTO queue_items (queue, node, item, publisher, wall, since, bytes) VALUES
    (1, 'n', 'x', 'a@gw/1', 0, 0, 3), (2, 'n', 'x', 'a@gw/1', 0, 0, 4);
""")
    database.migrate(empty)
    assert empty.execute("SELECT * FROM item_sources ORDER BY 1").fetchall() == [
        ("a@gw", 2, 15),
        ("b@gw", 1, 7),
    ]
    queued = "SELECT * FROM queue_sources ORDER BY 1"
    assert empty.execute(queued).fetchall() == [("a@gw", 1, 3), ("b@gw", 1, 4)]
    empty.execute("PRAGMA foreign_keys = ON")
    empty.execute("DELETE FROM queue_items WHERE queue = 1")
    empty.execute("UPDATE items SET author = 'b@gw'")
    assert empty.execute("SELECT * FROM item_sources").fetchall() == [("b@gw", 3, 22)]
    assert empty.execute(queued).fetchall() == [("b@gw", 1, 4)]


def test_a_share_is_held_by_its_next_member_once_an_account_has_left(
    empty: sqlite3.Connection,
) -> None:
    """Every subscription has an account, so sessions of one account are known as such."""
    database.migrate(empty)
    empty.execute("PRAGMA foreign_keys = ON")
    empty.executescript("""
INSERT INTO accounts (name, trusted, created) VALUES ('b', 1, 0), ('c', 1, 0);
INSERT INTO queues (share, filter, owner, items, bytes) VALUES ('s', '#', 'b@gw', 1, 4);
INSERT INTO subscriptions (subid, account, jid, filter, queue) VALUES
    ('1', 1, 'b@gw/w', '#', 1), ('2', 1, 'b@gw/v', '#', 1), ('3', 2, 'c@gw/w', '#', 1);
INSERT INTO queue_sources VALUES ('b@gw', 1, 4);
""")
    with pytest.raises(sqlite3.IntegrityError, match=r"NOT NULL.*account"):
        empty.execute("UPDATE subscriptions SET account = NULL WHERE id = 1")
    for change, holder in (
        ("DELETE FROM subscriptions WHERE id = 1", "b@gw"),
        ("DELETE FROM accounts WHERE name = 'b'", "c@gw"),
        ("DELETE FROM subscriptions", "c@gw"),
    ):
        empty.execute(change)
        assert empty.execute("SELECT owner FROM queues").fetchall() == [(holder,)]
        assert empty.execute("SELECT * FROM queue_sources").fetchall() == [(holder, 1, 4)]


def test_a_failed_migration_changes_nothing(
    empty: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [(1, "CREATE TABLE a (x)"), (2, "CREATE TABLE b (x); CREATE TABLE a (x)")]
    monkeypatch.setattr(database, "migrations", lambda: steps)
    with pytest.raises(sqlite3.OperationalError, match="already exists"):
        database.migrate(empty)
    empty.execute("ROLLBACK")
    assert empty.execute("PRAGMA user_version").fetchone() == (0,)
    assert empty.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)


def test_a_newer_database_is_refused_unchanged(path: Path) -> None:
    newest = database.migrations()[-1][0]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {newest + 1}")
    with pytest.raises(SetupError, match=f"version {newest + 1}.*{newest}.*newer fieldpost"):
        database.connect(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (newest + 1,)


def test_the_settings_are_applied(path: Path) -> None:
    with closing(database.connect(path, max_bytes=64 * 1024 * 1024)) as connection:

        def pragma(name: str) -> object:
            return connection.execute(f"PRAGMA {name}").fetchone()[0]

        assert pragma("journal_mode") == "wal"
        assert pragma("synchronous") == 2, "FULL"
        assert pragma("foreign_keys") == 1
        assert pragma("auto_vacuum") == 2, "INCREMENTAL"
        assert pragma("page_size") == 4096
        assert pragma("temp_store") == 2, "MEMORY"
        assert pragma("journal_size_limit") == 4 * 1024 * 1024
        assert pragma("max_page_count") == (64 * 1024 * 1024 - WAL_SHARE) // 4096


def test_a_missing_or_existing_database_is_an_error(path: Path, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="exists"):
        database.create(path)
    missing = tmp_path / "missing.db"
    for connect in (database.connect, database.connect_reader):
        with pytest.raises(SetupError, match="does not exist"):
            connect(missing)
    assert not missing.exists()


def test_a_file_that_is_not_a_database_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "text.db"
    path.write_text("not a database, but text that is long enough for a header\n" * 100)
    with pytest.raises(StoreBroken, match="not a database"):
        database.connect(path)


@pytest.mark.parametrize("connect", [database.connect, database.connect_reader])
def test_an_unreadable_database_is_an_error(
    tmp_path: Path, connect: Callable[[Path], sqlite3.Connection]
) -> None:
    with pytest.raises(SetupError, match="cannot be read: it is a folder"):
        connect(tmp_path)
    empty = tmp_path / "empty.db"
    empty.touch()
    with pytest.raises(StoreDamaged, match=r"empty\.db is empty"):
        connect(empty)
    assert list(tmp_path.iterdir()) == [empty]
    assert empty.stat().st_size == 0
    path = new_database(tmp_path)
    path.with_name(f"{path.name}-wal").mkdir()
    with pytest.raises(StoreBroken, match="the database: "):
        connect(path)


def test_a_reader_cannot_write_and_needs_no_running_gateway(path: Path) -> None:
    with closing(database.connect_reader(path)) as reader:
        with (
            pytest.raises(StoreError, match="readonly"),
            database.transaction(reader, MOMENT, "BEGIN") as tx,
        ):
            tx.run("DELETE FROM meta")
        with database.transaction(reader, MOMENT, "BEGIN") as tx:
            assert tx.row("SELECT count(*) FROM meta") == (2,)


def test_a_transaction_commits_or_changes_nothing(path: Path) -> None:
    with closing(database.connect(path)) as connection:
        with database.transaction(connection, MOMENT) as tx:
            tx.run("INSERT INTO meta VALUES ('a', 1)")
        for key, last in (("b", "DELETE FROM nowhere"), ("c", "INSERT INTO meta VALUES ('a', 2)")):
            with pytest.raises(StoreError):
                _write_then(connection, key, last)
        assert not connection.in_transaction
        rows = connection.execute("SELECT key, value FROM meta WHERE key < 'd'").fetchall()
        assert rows == [("a", 1)]


def _write_then(connection: sqlite3.Connection, key: str, sql: str) -> None:
    with database.transaction(connection, MOMENT) as tx:
        tx.run("INSERT INTO meta VALUES (?, 1)", (key,))
        tx.run(sql)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_FULL, StoreFull),
        (sqlite3.SQLITE_IOERR_SHMSIZE, StoreFull),
        (sqlite3.SQLITE_BUSY, StoreBusy),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, StoreBusy),
        (sqlite3.SQLITE_LOCKED, StoreBusy),
        (sqlite3.SQLITE_IOERR_FSYNC, StoreBroken),
        (sqlite3.SQLITE_IOERR_WRITE, StoreBroken),
        (sqlite3.SQLITE_CORRUPT, StoreDamaged),
        (sqlite3.SQLITE_NOTADB, StoreDamaged),
        (sqlite3.SQLITE_READONLY_DBMOVED, StoreBroken),
        (sqlite3.SQLITE_CANTOPEN, StoreBroken),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, StoreError),
    ],
)
def test_errors_of_sqlite_are_translated(code: int, kind: type[StoreError]) -> None:
    error = sqlite3.OperationalError("it says")
    error.sqlite_errorcode = code
    translated = database.translate(error)
    assert type(translated) is kind
    says = "the disk is full" if code == sqlite3.SQLITE_IOERR_SHMSIZE else "it says"
    assert str(translated) == f"the database: {says}"
    assert type(database.translate(sqlite3.ProgrammingError("closed"))) is StoreError


def test_a_database_that_cannot_be_created_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "migrations", lambda: [(1, "CREATE NOTHING")])
    with pytest.raises(StoreError, match="syntax error"):
        database.create(tmp_path / "new.db")
