"""A device's durable store of outgoing messages: one SQLite file, used by one process at a time.

Each added message, and each step of the sender's state machine, survives `kill -9` and power cuts
after its commit (WAL, synchronous=FULL). `transaction` combines several changes in one commit.
Pending messages are limited in number and bytes. Ended messages are counted, and remembered up to a
limit. The calls block, because a step must be stored before its stanza is sent. Never copy an
outbox to a second device, because both would use the same message ids.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from firmware_sim.device.errors import MessageRefused, OutboxError, OutboxFull
from firmware_sim.device.limits import OutboxLimits
from firmware_sim.device.sender_rules import IN_FLIGHT, LIVE, Level, Message, State
from firmware_sim.device.storage import DurableFile, Schema, opened

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
_TABLES: Final = Schema(_VERSION, _SCHEMA, "INSERT INTO outbox (id, jid) VALUES (?, ?)")
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
_RETURN: Final = (
    "UPDATE message SET state = ?, reason = ? WHERE number = ? AND state = 'done' RETURNING number"
)
_DISCOUNT: Final = "UPDATE ended SET count = count - 1 WHERE state = 'done'"
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
_RECORD: Final = (
    "SELECT number, label, recipient, level, state, reason, added_ms, ended_ms FROM message"
    " WHERE number = ?"
)
_PAGE: Final = 256  # rows read at once: an iteration holds neither a cursor nor the whole table


class Envelope(NamedTuple):
    """The recipient and the stored body of a message."""

    recipient: str
    body: str


class OutboxRecord(NamedTuple):
    """A message of the outbox. Times are milliseconds since 1970 UTC by the device's clock."""

    number: int
    label: str
    recipient: str
    level: Level
    state: State
    reason: str
    added_ms: int
    ended_ms: int | None


class Outbox(DurableFile):
    """A device's outbox. Open with `Outbox.open`; close with `close`, or use a `with` block."""

    error = OutboxError

    def __init__(self, db: sqlite3.Connection, jid: str, limits: OutboxLimits) -> None:
        super().__init__(db)
        self._limits = limits
        self.id, owner = db.execute(_OWNER).fetchone()
        if owner != jid:
            raise OutboxError(f"this outbox belongs to {owner}, not to {jid}; give another file")
        self._load()

    @classmethod
    def open(cls, path: Path, jid: str, limits: OutboxLimits | None = None) -> Self:
        """Open a device's outbox, or create it; SQLite creates two more files beside it.

        Message ids are unique per full JID. Raises OutboxError if the file belongs to another JID,
        is locked or damaged, or is of a newer version.
        """
        with opened(path, OutboxError, _TABLES, (_new_id(), jid)) as db:
            return cls(db, jid, limits or OutboxLimits())

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all changes in the block at once; an error rolls all of them back."""
        try:
            with super().transaction():
                yield
        except BaseException:
            with suppress(sqlite3.Error):  # the first error is raised
                self._load()
            raise

    def check(self, size: int, label: str, more: int = 0, more_bytes: int = 0) -> None:
        """Check that the outbox has room for a message of `size` bytes and its label.

        `more` messages, with `more_bytes` bytes together, are about to be added as well. Raises
        MessageRefused if the message or the label is too large, and OutboxFull if there is no room
        until pending messages have ended.
        """
        limits = self._limits
        if len(label.encode()) > _LABEL_BYTES:
            raise MessageRefused(f"the label has more than {_LABEL_BYTES} bytes")
        if size > limits.message_bytes:
            raise MessageRefused(
                f"the message has {size} bytes; the limit is {limits.message_bytes}"
            )
        if self.live + more >= limits.messages:
            raise OutboxFull(f"the outbox is full: {limits.messages} messages are pending")
        if self.live_bytes + more_bytes + size > limits.bytes:
            raise OutboxFull(f"the outbox is full: more than {limits.bytes} bytes would be pending")

    def add(self, recipient: str, level: Level, body: str, label: str = "") -> Message:
        """Store a message, in the current transaction; its text is sent unchanged at each
        transmission.

        Raises MessageRefused and OutboxFull as `check` does.
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
        """Store a message's state and counts, in the current transaction.

        `before` is the stored state that is replaced; `reason` is why the message failed or is in
        doubt.
        """
        if message.state in LIVE:
            row = (message.state.value, message.sends, message.attempts, message.number)
            self._db.execute(_STEP, row)
        else:
            self._end(message, reason)
        self._counts[before] -= 1
        self._counts[message.state] += 1

    def fail_delivered(self, number: int, state: State, reason: str) -> bool:
        """Record that an answered message was not delivered, in the current transaction.

        `state` is failed or in doubt, `reason` the error that came after the answer. Returns
        whether the message is stored as done; older ones are forgotten.
        """
        if self._db.execute(_RETURN, (state.value, reason, number)).fetchone() is None:
            return False
        self._db.execute(_DISCOUNT)
        self._db.execute(_COUNT, (state.value,))
        self._counts[State.DONE] -= 1
        self._counts[state] += 1
        self._db.execute(_FORGET, (state.value, self._limits.keep_failed))
        return True

    def envelope(self, number: int) -> Envelope:
        """Return the recipient and the body of a message by its number."""
        return Envelope(*self._db.execute(_ENVELOPE, (number,)).fetchone())

    def queued(self, after: int, limit: int) -> list[Message]:
        """Return up to `limit` queued messages with a number above `after`, oldest first."""
        return self._messages(State.QUEUED, after, limit)

    def in_flight(self) -> list[Message]:
        """Return the offered and released messages, oldest first; at most one send window."""
        found = [m for state in IN_FLIGHT for m in self._messages(state, 0, -1)]
        return sorted(found, key=lambda message: message.number)

    def records(self, *states: State) -> Iterator[OutboxRecord]:
        """Iterate over the messages in these states: state by state, oldest first.

        Raises OutboxError if the outbox is closed or cannot be read.
        """
        for state in states:
            last = 0
            while rows := self._rows(_RECORDS, state.value, last, _PAGE):
                last = rows[-1][0]
                yield from map(_record, rows)

    def record(self, number: int) -> OutboxRecord:
        """Return a stored message by its number."""
        return _record(self._db.execute(_RECORD, (number,)).fetchone())

    @property
    def live(self) -> int:
        """Return the number of pending messages: queued, offered or released."""
        return sum(self._counts[state] for state in LIVE)

    def counts(self) -> Mapping[State, int]:
        """Return the number of messages in each state, including those not stored any more."""
        return dict(self._counts)

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


def _record(row: tuple[Any, ...]) -> OutboxRecord:
    number, label, recipient, level, word, *rest = row
    return OutboxRecord(number, label, recipient, Level(level), State(word), *rest)


def _new_id() -> str:
    """Return a random id, the prefix of an outbox's message ids: 80 bits in 16 characters."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(16))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
