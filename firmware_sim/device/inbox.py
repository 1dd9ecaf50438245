"""The device's own store of what it takes: an SQLite file, one process at a time.

It holds assured messages until they are released, remembers the keys of those that were, and gives
each delivered message to the application in the transaction that removes it. So what the
application writes into this file is done exactly once, across `kill -9` and power cuts (WAL,
synchronous=FULL). A key is the sender's full JID and the msgId.

It is synchronous, as the outbox is, and decides nothing: `receiver` does. Its time is its own: the
seconds that it was open, so that no wrong clock can end what it holds.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple, Self

from firmware_sim.device import storage
from firmware_sim.device.errors import InboxError
from firmware_sim.device.limits import InboxLimits
from firmware_sim.device.receiver_rules import State

_VERSION: Final = 1

_SCHEMA: Final = """
CREATE TABLE inbox (
    jid TEXT NOT NULL,
    seconds INTEGER NOT NULL DEFAULT 0,
    handed INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE inbox_tally (word TEXT PRIMARY KEY, count INTEGER NOT NULL) STRICT;
CREATE TABLE inbox_held (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    sender TEXT NOT NULL,
    msg_id TEXT NOT NULL,
    source TEXT NOT NULL,
    body TEXT NOT NULL,
    size INTEGER NOT NULL,
    since INTEGER NOT NULL,
    UNIQUE (sender, msg_id)
) STRICT;
CREATE INDEX inbox_held_by_source ON inbox_held (source, size);
CREATE TABLE inbox_released (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    sender TEXT NOT NULL,
    msg_id TEXT NOT NULL,
    source TEXT NOT NULL,
    UNIQUE (sender, msg_id)
) STRICT;
CREATE INDEX inbox_released_by_source ON inbox_released (source, number);
"""
_CREATE: Final = "INSERT INTO inbox (jid) VALUES (?)"
_OWNER: Final = "SELECT jid, seconds FROM inbox"
_AGE: Final = "UPDATE inbox SET seconds = ?"
_HAND: Final = "UPDATE inbox SET handed = handed + 1 RETURNING handed"
_COUNT: Final = (
    "INSERT INTO inbox_tally (word, count) VALUES (?, ?)"
    " ON CONFLICT (word) DO UPDATE SET count = count + excluded.count"
)
_COUNTS: Final = "SELECT word, count FROM inbox_tally"
_HELD: Final = "SELECT body FROM inbox_held WHERE sender = ? AND msg_id = ?"
_RELEASED: Final = "SELECT 1 FROM inbox_released WHERE sender = ? AND msg_id = ?"
_ALL: Final = "SELECT count(*), coalesce(sum(size), 0) FROM inbox_held"
_OF_SOURCE: Final = "SELECT count(*), coalesce(sum(size), 0) FROM inbox_held WHERE source = ?"
_EXPIRE: Final = "DELETE FROM inbox_held WHERE since <= ?"
_HOLD: Final = (
    "INSERT INTO inbox_held (sender, msg_id, source, body, size, since) VALUES (?, ?, ?, ?, ?, ?)"
)
_DROP: Final = "DELETE FROM inbox_held WHERE sender = ? AND msg_id = ? RETURNING body"
_REMEMBER: Final = "INSERT INTO inbox_released (sender, msg_id, source) VALUES (?, ?, ?)"
_FORGET: Final = "DELETE FROM inbox_released WHERE sender = ? AND msg_id = ?"
_FORGET_OF_SOURCE: Final = (
    "DELETE FROM inbox_released WHERE number IN (SELECT number FROM inbox_released"
    " WHERE source = ? ORDER BY number DESC LIMIT -1 OFFSET ?)"
)
_FORGET_OLDEST: Final = (
    "DELETE FROM inbox_released WHERE number IN (SELECT number FROM inbox_released"
    " ORDER BY number DESC LIMIT -1 OFFSET ?)"
)


class Key(NamedTuple):
    """What an assured message is known by."""

    sender: str
    msg_id: str


class Tally(Enum):
    """What an inbox counts, since it was made."""

    PLAIN = "level 0"
    ACKNOWLEDGED = "level 1"
    ASSURED = "level 2"
    REFUSED = "refused"
    FAILED = "failed in the application"
    EXPIRED = "held, never released, dropped"


HANDED_OVER: Final = (Tally.PLAIN, Tally.ACKNOWLEDGED, Tally.ASSURED)
"""The tally of each level, by its number."""


class Inbox:
    """One device's inbox. Open it by `Inbox.open`, close it, or use it in a `with`."""

    def __init__(self, db: sqlite3.Connection, jid: str, limits: InboxLimits) -> None:
        self._db = db
        self._limits = limits
        owner, seconds = db.execute(_OWNER).fetchone()
        if owner != jid:
            raise InboxError(f"this inbox belongs to {owner}, not to {jid}")
        self._begun = time.monotonic() - seconds

    @classmethod
    def open(
        cls, path: Path, jid: str, limits: InboxLimits | None = None, schema: str = ""
    ) -> Self:
        """Open the inbox of a device, or make it.

        Args:
            path: its file; two more (`-wal`, `-shm`) may lie beside it.
            jid: the device's full JID.
            limits: how much it holds and remembers.
            schema: SQL of the application's tables, run with its own when it is made. Names that
                begin with `inbox` are its own.

        Raises:
            InboxError: it belongs to another JID, another process has it, it is damaged or newer.
        """
        db = storage.open_file(path, InboxError)
        try:
            if storage.is_new(db, _VERSION, InboxError):
                storage.make(db, f"{_SCHEMA};{schema}", _VERSION)
                db.execute(_CREATE, (jid,))
                db.execute("COMMIT")
            return cls(db, jid, limits or InboxLimits())
        except BaseException as error:
            db.close()
            if isinstance(error, sqlite3.Error):
                raise InboxError(f"{path}: {error}") from error
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. A transaction that is open is rolled back."""
        self._db.close()

    @property
    def database(self) -> sqlite3.Connection:
        """The file's connection, for the application to read and write its own tables by.

        Outside `on_message` it commits by itself, statement by statement.
        """
        return self._db

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all changes inside it one commit; an error rolls all of them back.

        Raises:
            InboxError: SQLite failed (a full disk, a dead card): nothing of it was kept.
        """
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except BaseException as error:
            self._roll_back()
            if isinstance(error, sqlite3.Error):
                raise InboxError(str(error)) from error
            raise

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Undo all changes inside it if it raises, within a transaction that goes on.

        Raises:
            InboxError: the transaction is gone: the disk failed, or the application ended it.
        """
        self._db.execute("SAVEPOINT attempt")
        try:
            yield
        except BaseException as error:
            self._check(error)
            self._db.execute("ROLLBACK TO attempt")
            self._db.execute("RELEASE attempt")
            raise
        self._check(None)
        self._db.execute("RELEASE attempt")

    def find(self, key: Key) -> tuple[State, str | None]:
        """Find where the message of that key is, and its body if it is held."""
        held = self._db.execute(_HELD, key).fetchone()
        if held is not None:
            return State.HELD, str(held[0])
        known = self._db.execute(_RELEASED, key).fetchone() is not None
        return (State.RELEASED if known else State.UNKNOWN), None

    def has_room(self, key: Key, body: str) -> bool:
        """Tell whether the message may be held too; what is too old to wait for makes room."""
        fits = self._fits(key, body)
        if not fits:
            self._expire()
            fits = self._fits(key, body)
        return fits

    def hold(self, key: Key, body: str) -> None:
        """Hold a message, inside a transaction. A key that was released before begins anew."""
        age = self._age()
        self._db.execute(_FORGET, key)
        row = (*key, storage.bare(key.sender), body, _charge(key, body), age)
        self._db.execute(_HOLD, row)

    def release(self, key: Key) -> str:
        """Remove a held message, inside a transaction, and remember its key; return its body."""
        body = self._db.execute(_DROP, key).fetchone()[0]
        source = storage.bare(key.sender)
        self._db.execute(_REMEMBER, (*key, source))
        self._db.execute(_FORGET_OF_SOURCE, (source, self._limits.keep_source))
        self._db.execute(_FORGET_OLDEST, (self._limits.keep,))
        return str(body)

    def next_number(self) -> int:
        """Give the number of the message that is handed over now, inside a transaction."""
        return int(self._db.execute(_HAND).fetchone()[0])

    def count(self, what: Tally, more: int = 1) -> None:
        """Count what happened, inside a transaction."""
        self._db.execute(_COUNT, (what.value, more))

    def counts(self) -> Mapping[Tally, int]:
        """Count what happened since the inbox was made.

        Raises:
            InboxError: it is closed, or cannot be read.
        """
        try:
            found = dict(self._db.execute(_COUNTS).fetchall())
        except sqlite3.Error as error:
            raise InboxError(str(error)) from error
        return {what: found.get(what.value, 0) for what in Tally}

    def held(self) -> tuple[int, int]:
        """Count what is held: messages, and bytes with their keys.

        Raises:
            InboxError: it is closed, or cannot be read.
        """
        try:
            messages, size = self._db.execute(_ALL).fetchone()
        except sqlite3.Error as error:
            raise InboxError(str(error)) from error
        return messages, size

    def _fits(self, key: Key, body: str) -> bool:
        limits, more = self._limits, _charge(key, body)
        messages, size = self._db.execute(_ALL).fetchone()
        if messages >= limits.messages or size + more > limits.bytes:
            return False
        source = storage.bare(key.sender)
        messages, size = self._db.execute(_OF_SOURCE, (source,)).fetchone()
        return bool(messages < limits.source_messages and size + more <= limits.source_bytes)

    def _expire(self) -> None:
        dropped = self._db.execute(_EXPIRE, (self._age() - self._limits.held_s,)).rowcount
        if dropped:
            self.count(Tally.EXPIRED, dropped)

    def _age(self) -> int:
        """Say for how many seconds it was open in all, and keep that."""
        age = int(time.monotonic() - self._begun)
        self._db.execute(_AGE, (age,))
        return age

    def _check(self, error: BaseException | None) -> None:
        if not self._db.in_transaction:
            raise InboxError("the transaction of the inbox was ended within it") from error

    def _roll_back(self) -> None:
        with suppress(sqlite3.Error):  # the error that is raised is the first
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")


def _charge(key: Key, body: str) -> int:
    return len(body.encode()) + len(key.sender.encode()) + len(key.msg_id.encode())
