"""The device's own store of what it has to send: an SQLite file, one process at a time.

What `add` has taken survives `kill -9` and a power cut from the commit on (WAL, synchronous=FULL),
and so does each step of the sender's machine. Several changes share one commit by `transaction`.
It is bounded in messages and bytes; what has ended is remembered within a bound, and counted.

It is synchronous: a device has little else to do while its card writes, and a step must not be sent
before it is stored. It decides nothing; `line` and `sender` do. Never copy an outbox to a second
device: its message ids would be used twice.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from firmware_sim.device import storage
from firmware_sim.device.errors import MessageRefused, OutboxError, OutboxFull
from firmware_sim.device.limits import OutboxLimits
from firmware_sim.device.sender_rules import IN_FLIGHT, LIVE, Level, Message, State

_VERSION: Final = 1
_LABEL_BYTES: Final = 256
_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"

_SCHEMA: Final = """
CREATE TABLE outbox (id TEXT NOT NULL, jid TEXT NOT NULL) STRICT;
CREATE TABLE ended (state TEXT PRIMARY KEY, count INTEGER NOT NULL) STRICT;
CREATE TABLE message (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    recipient TEXT NOT NULL,
    level INTEGER NOT NULL,
    label TEXT NOT NULL,
    body TEXT,
    size INTEGER NOT NULL,
    state TEXT NOT NULL,
    sends INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    reason TEXT NOT NULL DEFAULT '',
    added_ms INTEGER NOT NULL,
    ended_ms INTEGER
) STRICT;
CREATE INDEX message_by_state ON message (state, number);
"""
_CREATE: Final = "INSERT INTO outbox (id, jid) VALUES (?, ?)"
_OWNER: Final = "SELECT id, jid FROM outbox"
_LIVE: Final = (
    "SELECT state, count(*), coalesce(sum(size), 0) FROM message"
    " WHERE state IN ('queued', 'offered', 'released') GROUP BY state"
)
_ENDED: Final = "SELECT state, count FROM ended"
_ADD: Final = (
    "INSERT INTO message (recipient, level, label, body, size, state, added_ms)"
    " VALUES (?, ?, ?, ?, ?, 'queued', ?)"
)
_STEP: Final = "UPDATE message SET state = ?, sends = ?, attempts = ? WHERE number = ?"
_END: Final = (
    "UPDATE message SET state = ?, reason = ?, ended_ms = ?, sends = ?, attempts = ?,"
    " body = CASE WHEN ? THEN NULL ELSE body END WHERE number = ?"
)
_COUNT: Final = (
    "INSERT INTO ended (state, count) VALUES (?, 1)"
    " ON CONFLICT (state) DO UPDATE SET count = count + 1"
)
_FORGET: Final = (
    "DELETE FROM message WHERE number IN ("
    "SELECT number FROM message WHERE state = ? ORDER BY number DESC LIMIT -1 OFFSET ?)"
)
_RULES: Final = (
    "SELECT number, level, size, state, sends, attempts FROM message"
    " WHERE state = ? AND number > ? ORDER BY number LIMIT ?"
)
_ENVELOPE: Final = "SELECT recipient, body FROM message WHERE number = ?"
_RECORDS: Final = (
    "SELECT number, label, recipient, level, state, reason, added_ms, ended_ms FROM message"
    " WHERE state = ? AND number > ? ORDER BY number LIMIT ?"
)
_PAGE: Final = 256  # rows read at once: an iteration holds no cursor open, nor the whole table


class Envelope(NamedTuple):
    """What a transmission needs beside the rules: to whom, and the body as it was stored."""

    recipient: str
    body: str


class Record(NamedTuple):
    """A message as its owner sees it. Times are milliseconds since 1970 UTC, its own clock."""

    number: int
    label: str
    recipient: str
    level: Level
    state: State
    reason: str
    added_ms: int
    ended_ms: int | None


class Outbox:
    """One device's messages on disk. Open it by `Outbox.open`, close it, or use it in a `with`."""

    def __init__(self, db: sqlite3.Connection, jid: str, limits: OutboxLimits) -> None:
        self._db = db
        self._limits = limits
        self.id, owner = db.execute(_OWNER).fetchone()
        if owner != jid:
            raise OutboxError(f"this outbox belongs to {owner}, not to {jid}")
        self._load()

    @classmethod
    def open(cls, path: Path, jid: str, limits: OutboxLimits | None = None) -> Self:
        """Open the outbox of a device, or make it.

        Args:
            path: its file; two more (`-wal`, `-shm`) may lie beside it.
            jid: the device's full JID, for message ids are unique per full JID.
            limits: how much it keeps.

        Raises:
            OutboxError: it belongs to another JID, another process has it, it is damaged or newer.
        """
        db = storage.open_file(path, OutboxError)
        try:
            _prepare(db, jid)
            return cls(db, jid, limits or OutboxLimits())
        except BaseException as error:
            db.close()
            if isinstance(error, sqlite3.Error):
                raise OutboxError(f"{path}: {error}") from error
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. A transaction that is open is rolled back."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all changes inside it one commit; an error rolls all of them back.

        Raises:
            OutboxError: SQLite failed (a full disk, a dead card): nothing of it was kept.
        """
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except BaseException as error:
            with suppress(sqlite3.Error):  # the error that is raised is the first
                self._roll_back()
            if isinstance(error, sqlite3.Error):
                raise OutboxError(str(error)) from error
            raise

    def check(self, size: int, label: str, more: int = 0, more_bytes: int = 0) -> None:
        """Check that a message may be added, beside others that are about to be.

        Args:
            size: bytes of its body.
            label: the owner's name for it, up to 256 bytes.
            more, more_bytes: what else is about to be added.

        Raises:
            MessageRefused: its body or label is larger than any may be.
            OutboxFull: there is no room now.
        """
        limits = self._limits
        if len(label.encode()) > _LABEL_BYTES:
            raise MessageRefused(f"a label has at most {_LABEL_BYTES} bytes")
        if size > limits.message_bytes:
            raise MessageRefused(f"{size} bytes, of {limits.message_bytes} that a message may have")
        if self.live + more >= limits.messages:
            raise OutboxFull(f"{limits.messages} messages are not delivered yet")
        if self.live_bytes + more_bytes + size > limits.bytes:
            raise OutboxFull(f"{limits.bytes} bytes are not delivered yet")

    def add(self, recipient: str, level: Level, body: str, label: str = "") -> Message:
        """Take in a message, inside a transaction.

        Args:
            recipient: the JID it goes to.
            level: acknowledged or assured.
            body: the `<message/>`, as text that is sent as it is, each time.
            label: the owner's name for it, up to 256 bytes.

        Raises:
            MessageRefused, OutboxFull: as `check`.
        """
        size = len(body.encode())
        self.check(size, label)
        row = (recipient, int(level), label, body, size, _now_ms())
        number = self._db.execute(_ADD, row).lastrowid
        assert number is not None  # noqa: S101 - an INSERT that did not raise has a rowid
        self._counts[State.QUEUED] += 1
        self.live_bytes += size
        return Message(number, level, size)

    def save(self, before: State, message: Message, reason: str = "") -> None:
        """Store a message's step and counts, inside a transaction.

        Args:
            before: the state that is stored now.
            message: the message as the rules left it.
            reason: why it ended, where it did.
        """
        if message.state in LIVE:
            row = (message.state.value, message.sends, message.attempts, message.number)
            self._db.execute(_STEP, row)
        else:
            self._end(message, reason)
        self._counts[before] -= 1
        self._counts[message.state] += 1

    def envelope(self, number: int) -> Envelope:
        """Read what a transmission of that message needs."""
        return Envelope(*self._db.execute(_ENVELOPE, (number,)).fetchone())

    def queued(self, after: int, limit: int) -> list[Message]:
        """Read the oldest messages that were not offered yet, with a number above `after`."""
        return self._messages(State.QUEUED, after, limit)

    def in_flight(self) -> list[Message]:
        """Read what was offered or released and did not end, oldest first: at most a window."""
        found = [m for state in IN_FLIGHT for m in self._messages(state, 0, -1)]
        return sorted(found, key=lambda message: message.number)

    def records(self, *states: State) -> Iterator[Record]:
        """Go through the messages in these states, each state's oldest first.

        Raises:
            OutboxError: it is closed, or cannot be read.
        """
        for state in states:
            last = 0
            while rows := self._page(state, last):
                last = rows[-1][0]
                for number, label, recipient, level, word, *rest in rows:
                    yield Record(number, label, recipient, Level(level), State(word), *rest)

    @property
    def live(self) -> int:
        """How many messages have not ended."""
        return sum(self._counts[state] for state in LIVE)

    def counts(self) -> Mapping[State, int]:
        """Count the messages in each state since the outbox was made, forgotten ones included."""
        return dict(self._counts)

    def _page(self, state: State, after: int) -> list[Any]:
        try:
            return self._db.execute(_RECORDS, (state.value, after, _PAGE)).fetchall()
        except sqlite3.Error as error:
            raise OutboxError(str(error)) from error

    def _messages(self, state: State, after: int, limit: int) -> list[Message]:
        rows = self._db.execute(_RULES, (state.value, after, limit)).fetchall()
        return [
            Message(number, Level(level), size, State(word), sends, attempts)
            for number, level, size, word, sends, attempts in rows
        ]

    def _end(self, message: Message, reason: str) -> None:
        done = message.state is State.DONE
        word = message.state.value
        ended = (word, reason, _now_ms(), message.sends, message.attempts, done, message.number)
        self._db.execute(_END, ended)
        self._db.execute(_COUNT, (word,))
        keep = self._limits.keep_done if done else self._limits.keep_failed
        self._db.execute(_FORGET, (word, keep))
        self.live_bytes -= message.size

    def _load(self) -> None:
        self._counts = dict.fromkeys(State, 0)
        self.live_bytes = 0
        for word, count, size in self._db.execute(_LIVE).fetchall():
            self._counts[State(word)] = count
            self.live_bytes += size
        for word, count in self._db.execute(_ENDED).fetchall():
            self._counts[State(word)] = count

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        self._load()


def _prepare(db: sqlite3.Connection, jid: str) -> None:
    if storage.is_new(db, _VERSION, OutboxError):
        storage.make(db, _SCHEMA, _VERSION)
        db.execute(_CREATE, (_new_id(), jid))
        db.execute("COMMIT")


def _new_id() -> str:
    """Make the outbox's own part of its message ids: 80 random bits in 16 characters."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(16))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
