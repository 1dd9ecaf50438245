"""A device's durable store of incoming messages: one SQLite file, used by one process at a time.

It holds assured messages until their release, and remembers the keys of released messages. A key is
the sender's full JID and the msgId. The application processes a message in the transaction that
removes it. Therefore the application's own rows in this file are written exactly once, across `kill
-9` and power cuts (WAL, synchronous=FULL). The age of a message counts only seconds for which the
file was open, so that a wrong clock cannot expire a message.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple, Self

from firmware_sim.device.errors import InboxError
from firmware_sim.device.limits import InboxLimits
from firmware_sim.device.receiver_rules import State
from firmware_sim.device.storage import DurableFile, Schema, bare, opened

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
    """The key of an assured message: the sender's full JID and the msgId."""

    sender: str
    msg_id: str


class InboxCounter(Enum):
    """Counters of an inbox since its creation; the enum's values are stored in the file."""

    PLAIN = "level 0"
    ACKNOWLEDGED = "level 1"
    ASSURED = "level 2"
    REFUSED = "refused"
    FAILED = "failed in the application"
    EXPIRED = "held, never released, dropped"


LEVEL_COUNTERS: Final = (InboxCounter.PLAIN, InboxCounter.ACKNOWLEDGED, InboxCounter.ASSURED)
"""The counters of delivered messages by quality of service level: 0, 1 and 2."""


class Inbox(DurableFile):
    """A device's inbox. Open with `Inbox.open`; close with `close`, or use a `with` block."""

    error = InboxError

    def __init__(self, db: sqlite3.Connection, jid: str, limits: InboxLimits) -> None:
        super().__init__(db)
        self._limits = limits
        owner, seconds = db.execute(_OWNER).fetchone()
        if owner != jid:
            raise InboxError(f"this inbox belongs to {owner}, not to {jid}; give another file")
        self._begun = time.monotonic() - seconds

    @classmethod
    def open(
        cls, path: Path, jid: str, limits: InboxLimits | None = None, schema: str = ""
    ) -> Self:
        """Open a device's inbox, or create it; SQLite creates two more files beside it.

        `schema` is SQL that creates the application's tables, run once, at creation. Names that
        begin with `inbox` are reserved. Raises InboxError if the file belongs to another JID, is
        locked or damaged, or is of a newer version.
        """
        tables = Schema(_VERSION, f"{_SCHEMA};{schema}", _CREATE)
        with opened(path, InboxError, tables, (jid,)) as db:
            return cls(db, jid, limits or InboxLimits())

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Undo the changes in the block if it raises; the surrounding transaction continues.

        Raises InboxError if the transaction has ended, because the disk failed or the application
        ended it.
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
        """Return the state of the message with this key, and its body if it is held, else None."""
        held = self._db.execute(_HELD, key).fetchone()
        if held is not None:
            return State.HELD, str(held[0])
        known = self._db.execute(_RELEASED, key).fetchone() is not None
        return (State.RELEASED if known else State.UNKNOWN), None

    def has_room(self, key: Key, body: str) -> bool:
        """Return whether there is room for a message; if necessary, drop expired messages first."""
        fits = self._fits(key, body)
        if not fits:
            self._expire()
            fits = self._fits(key, body)
        return fits

    def hold(self, key: Key, body: str) -> None:
        """Hold a message, in the current transaction; forget an earlier release of its key."""
        age = self._age()
        self._db.execute(_FORGET, key)
        row = (*key, bare(key.sender), body, _charge(key, body), age)
        self._db.execute(_HOLD, row)

    def release(self, key: Key) -> str:
        """Remove and return a held body, and remember its key, in the current transaction."""
        body = self._db.execute(_DROP, key).fetchone()[0]
        source = bare(key.sender)
        self._db.execute(_REMEMBER, (*key, source))
        self._db.execute(_FORGET_OF_SOURCE, (source, self._limits.keep_source))
        self._db.execute(_FORGET_OLDEST, (self._limits.keep,))
        return str(body)

    def next_number(self) -> int:
        """Allocate the number of the next delivered message, in the current transaction."""
        return int(self._db.execute(_HAND).fetchone()[0])

    def count(self, counter: InboxCounter, more: int = 1) -> None:
        """Add `more` to a counter, in the current transaction."""
        self._db.execute(_COUNT, (counter.value, more))

    def counts(self) -> Mapping[InboxCounter, int]:
        """Return the values of the counters since the inbox was created.

        Raises InboxError if the inbox is closed or cannot be read.
        """
        found = dict(self._rows(_COUNTS))
        return {counter: found.get(counter.value, 0) for counter in InboxCounter}

    def held(self) -> tuple[int, int]:
        """Return the number of held messages, and the bytes of their bodies and keys.

        Raises InboxError if the inbox is closed or cannot be read.
        """
        ((messages, size),) = self._rows(_ALL)
        return messages, size

    def _fits(self, key: Key, body: str) -> bool:
        limits, more = self._limits, _charge(key, body)
        messages, size = self._db.execute(_ALL).fetchone()
        if messages >= limits.messages or size + more > limits.bytes:
            return False
        source = bare(key.sender)
        messages, size = self._db.execute(_OF_SOURCE, (source,)).fetchone()
        return bool(messages < limits.source_messages and size + more <= limits.source_bytes)

    def _expire(self) -> None:
        dropped = self._db.execute(_EXPIRE, (self._age() - self._limits.held_s,)).rowcount
        if dropped:
            self.count(InboxCounter.EXPIRED, dropped)

    def _age(self) -> int:
        """Compute and store the total seconds for which the file was open."""
        age = int(time.monotonic() - self._begun)
        self._db.execute(_AGE, (age,))
        return age

    def _check(self, error: BaseException | None) -> None:
        if not self._db.in_transaction:
            raise InboxError(
                "`on_message` ended the transaction; it must not commit or roll back"
            ) from error


def _charge(key: Key, body: str) -> int:
    return len(body.encode()) + len(key.sender.encode()) + len(key.msg_id.encode())
