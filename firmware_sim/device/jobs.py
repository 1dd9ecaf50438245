"""A worker's own file: which items it has worked on, and what became of each (XEP-0254).

What is worked on is written here before its deletion is asked for, and is committed in the same
transaction as the application's own rows once the deletion is confirmed; so neither a crash of the
worker nor of the gateway can lose what was done, or count it twice. SQLite, WAL, synchronous=FULL.

It is synchronous and decides nothing: `worker` does. One file, one worker, one node.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple, Self

from firmware_sim.device import storage
from firmware_sim.device.errors import JobsError

_VERSION: Final = 1

_SCHEMA: Final = """
CREATE TABLE jobs (jid TEXT NOT NULL, node TEXT NOT NULL) STRICT;
CREATE TABLE jobs_tally (word TEXT PRIMARY KEY, count INTEGER NOT NULL) STRICT;
CREATE TABLE job (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    item TEXT NOT NULL UNIQUE,
    payload TEXT NOT NULL,
    times INTEGER NOT NULL,
    state TEXT NOT NULL,
    runs INTEGER NOT NULL DEFAULT 1,
    commits INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX job_by_state ON job (state, number);
"""
_CREATE: Final = "INSERT INTO jobs (jid, node) VALUES (?, ?)"
_OWNER: Final = "SELECT jid, node FROM jobs"
_WORKED: Final = (
    "INSERT INTO job (item, payload, times, state) VALUES (?, ?, ?, 'asked')"
    " ON CONFLICT (item) DO UPDATE SET state = 'asked', runs = runs + 1,"
    " payload = excluded.payload, times = max(times, excluded.times)"
)
_COMMIT: Final = (
    "UPDATE job SET state = 'done', commits = commits + 1 WHERE item = ? AND state <> 'done'"
    " RETURNING item, payload, times"
)
_UNDO: Final = "UPDATE job SET state = 'undone' WHERE item = ? AND state = 'asked'"
_ASKED: Final = "SELECT item FROM job WHERE state = 'asked' ORDER BY number"
_RECORDS: Final = "SELECT item, state, runs, commits, times FROM job ORDER BY number"
_COUNT: Final = (
    "INSERT INTO jobs_tally (word, count) VALUES (?, 1)"
    " ON CONFLICT (word) DO UPDATE SET count = count + 1"
)
_COUNTS: Final = "SELECT word, count FROM jobs_tally"
_FORGET: Final = (
    "DELETE FROM job WHERE state <> 'asked' AND number <= (SELECT max(number) FROM job) - ?"
)


class Job(NamedTuple):
    """An item of a queue, as a worker gets it.

    `payload` is its XML, empty if it has none. `times` is how often it was delivered before, to
    this worker or another.
    """

    item: str
    payload: str
    times: int


class State(Enum):
    """How an item stands that was worked on."""

    ASKED = "asked"
    """Its deletion is asked for, or about to be; whether it is deleted is not known."""
    DONE = "done"
    """Deleted, as the service said, and committed."""
    UNDONE = "undone"
    """No longer this worker's: the service gives it to another, or has."""


class Tally(Enum):
    """What a worker counts since its file was made."""

    WORKED = "worked on"
    DONE = "done"
    UNDONE = "undone"
    UNLOCKED = "given back"
    REPEATED = "confirmations of what was done"


class Record(NamedTuple):
    """An item that is remembered: how often it was worked on here, and how often committed."""

    item: str
    state: State
    runs: int
    commits: int
    times: int


class Jobs:
    """The file. Open it by `Jobs.open`, close it, or use it in a `with`."""

    def __init__(self, db: sqlite3.Connection, keep: int) -> None:
        self._db = db
        self._keep = keep

    @classmethod
    def open(cls, path: Path, jid: str, node: str, *, keep: int, schema: str = "") -> Self:
        """Open the file of a worker, or make it.

        Args:
            path: its place; two more (`-wal`, `-shm`) may lie beside it.
            jid: the worker's full JID.
            node: the queue.
            keep: how many items that are over it remembers.
            schema: SQL of the application's own tables, run when the file is made. Names that begin
                with `job` are its own.

        Raises:
            JobsError: it is another worker's or queue's, in use, damaged or newer.
        """
        db = storage.open_file(path, JobsError)
        try:
            if storage.is_new(db, _VERSION, JobsError):
                storage.make(db, f"{_SCHEMA};{schema}", _VERSION)
                db.execute(_CREATE, (jid, node))
                db.execute("COMMIT")
            found = db.execute(_OWNER).fetchone()
            if found != (jid, node):
                raise JobsError(f"this file belongs to {found[0]} and the queue {found[1]}")
        except sqlite3.Error as error:
            db.close()
            raise JobsError(f"{path}: {error}") from error
        except BaseException:
            db.close()
            raise
        return cls(db, keep)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def worked(self, job: Job) -> None:
        """Write that an item was worked on, before its deletion is asked for."""
        with self._transaction():
            self._db.execute(_WORKED, job)
            self._db.execute(_COUNT, (Tally.WORKED.value,))

    def commit(self, item: str, apply: Callable[[Job, sqlite3.Connection], object]) -> bool:
        """Commit what was done, since its deletion is confirmed.

        Args:
            item: the item's id.
            apply: given the item, and the file's connection, within the transaction; if it raises,
                nothing is committed.

        Returns:
            False if it was committed before, or is not known here; then nothing is done.
        """
        with self._transaction():
            found = self._db.execute(_COMMIT, (item,)).fetchone()
            if found is not None:
                apply(Job(*found), self._db)
                self._db.execute(_FORGET, (self._keep,))
            word = Tally.REPEATED if found is None else Tally.DONE
            self._db.execute(_COUNT, (word.value,))
        return found is not None

    def undo(self, item: str) -> bool:
        """Write that an item is no longer this worker's; False if it was not asked for."""
        with self._transaction():
            changed = self._db.execute(_UNDO, (item,)).rowcount == 1
            if changed:
                self._db.execute(_COUNT, (Tally.UNDONE.value,))
        return changed

    def count(self, tally: Tally) -> None:
        """Count one more."""
        self._db.execute(_COUNT, (tally.value,))

    def asked(self) -> list[str]:
        """List the items of which it is not known whether they are deleted."""
        return [item for (item,) in self._db.execute(_ASKED)]

    def records(self) -> Iterator[Record]:
        """Go through the items that are remembered, in the order in which each first came."""
        for item, state, *counts in self._db.execute(_RECORDS):
            yield Record(item, State(state), *counts)

    def counts(self) -> Mapping[Tally, int]:
        """Count since the file was made."""
        found = dict(self._db.execute(_COUNTS).fetchall())
        return {tally: found.get(tally.value, 0) for tally in Tally}

    @property
    def database(self) -> sqlite3.Connection:
        """The connection, for the application's own tables: read, and write none of the file's."""
        return self._db

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Commit what is done within, or nothing of it."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._rollback()
            raise JobsError(str(error)) from error
        except BaseException:
            self._rollback()
            raise

    def _rollback(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
