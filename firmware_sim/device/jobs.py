"""A worker's durable record of its items (XEP-0254): one SQLite file for one worker of one queue.

Finished work on an item is recorded before the item's deletion is requested. When the service
confirms the deletion, the work is committed in one transaction with the application's own rows.
Therefore no crash of the worker or of the gateway loses finished work or commits it twice (WAL,
synchronous=FULL).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple, Self

from firmware_sim.device.errors import JobsError
from firmware_sim.device.storage import DurableFile, Schema, opened

_VERSION: Final = 2
_STEPS: Final = {2: "ALTER TABLE job ADD COLUMN publisher TEXT NOT NULL DEFAULT ''"}

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
    commits INTEGER NOT NULL DEFAULT 0,
    publisher TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX job_by_state ON job (state, number);
"""
_CREATE: Final = "INSERT INTO jobs (jid, node) VALUES (?, ?)"
_OWNER: Final = "SELECT jid, node FROM jobs"
_RECORD_WORK: Final = (
    "INSERT INTO job (item, payload, times, publisher, state) VALUES (?, ?, ?, ?, 'asked')"
    " ON CONFLICT (item) DO UPDATE SET state = 'asked', runs = runs + 1,"
    " payload = excluded.payload, publisher = excluded.publisher,"
    " times = max(times, excluded.times)"
)
_COMMIT: Final = (
    "UPDATE job SET state = 'done', commits = commits + 1 WHERE item = ? AND state <> 'done'"
    " RETURNING item, payload, times, publisher"
)
_UNDO: Final = "UPDATE job SET state = 'undone' WHERE item = ? AND state = 'asked'"
_UNCONFIRMED: Final = "SELECT item FROM job WHERE state = 'asked' ORDER BY number"
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
    """An item of a queue, as delivered to a worker.

    `item` is the id, `payload` the XML text, or empty. `times` counts earlier deliveries of the
    item to any worker. `publisher` is the publisher's bare JID, empty if the event does not contain
    it.
    """

    item: str
    payload: str
    times: int
    publisher: str = ""


class JobState(Enum):
    """The state of an item whose work is finished; the enum's values are stored in the file."""

    DELETION_REQUESTED = "asked"
    """The deletion was requested, or is about to be requested, and is not confirmed yet."""
    DONE = "done"
    """The service confirmed the deletion, and the work is committed."""
    UNDONE = "undone"
    """The item went back to the queue before the service deleted it; another worker may get it."""


class JobCounter(Enum):
    """Counters of a worker since its file was created; the enum's values are stored in the file."""

    WORKED = "worked on"
    DONE = "done"
    UNDONE = "undone"
    UNLOCKED = "given back"
    REPEATED = "confirmations of what was done"


class JobRecord(NamedTuple):
    """A worker's record of an item: work on it was finished `runs`, committed `commits` times."""

    item: str
    state: JobState
    runs: int
    commits: int
    times: int


class JobStore(DurableFile):
    """A worker's record of its items. Open with `open`; close with `close`, or use `with`."""

    error = JobsError

    def __init__(self, db: sqlite3.Connection, keep: int) -> None:
        super().__init__(db)
        self._keep = keep

    @classmethod
    def open(cls, path: Path, jid: str, node: str, *, keep: int, schema: str = "") -> Self:
        """Open a worker's file, or create it; SQLite creates two more files beside it.

        `keep` is the number of finished items to remember. `schema` is SQL that creates the
        application's tables, run once, at creation. Names that begin with `job` are reserved.
        Raises JobsError if the file belongs to another worker or queue, is locked or damaged, or is
        of a newer version.
        """
        tables = Schema(_VERSION, f"{_SCHEMA};{schema}", _CREATE, _STEPS)
        with opened(path, JobsError, tables, (jid, node)) as db:
            row = db.execute(_OWNER).fetchone()
            if row != (jid, node):
                text = f"{path} belongs to worker {row[0]} of queue {row[1]}; give another file"
                raise JobsError(text)
            return cls(db, keep)

    def record_work(self, job: Job) -> None:
        """Record finished work on an item, before its deletion is requested."""
        with self.transaction():
            self._db.execute(_RECORD_WORK, job)
            self._db.execute(_COUNT, (JobCounter.WORKED.value,))

    def commit(self, item: str, apply: Callable[[Job, sqlite3.Connection], object]) -> bool:
        """Commit finished work after the service confirmed the item's deletion.

        `apply` is called in the transaction with the item and the database connection; if it
        raises, nothing is committed. Returns False, without calling it, if the item is not in the
        file or already committed.
        """
        with self.transaction():
            row = self._db.execute(_COMMIT, (item,)).fetchone()
            if row is not None:
                apply(Job(*row), self._db)
                self._db.execute(_FORGET, (self._keep,))
            counter = JobCounter.REPEATED if row is None else JobCounter.DONE
            self._db.execute(_COUNT, (counter.value,))
        return row is not None

    def mark_undone(self, item: str) -> bool:
        """Record that an item returned to its queue; return False if no deletion was pending."""
        with self.transaction():
            changed = self._db.execute(_UNDO, (item,)).rowcount == 1
            if changed:
                self._db.execute(_COUNT, (JobCounter.UNDONE.value,))
        return changed

    def count(self, tally: JobCounter) -> None:
        """Increment a counter by 1."""
        self._db.execute(_COUNT, (tally.value,))

    def unconfirmed(self) -> list[str]:
        """Return the ids of the items whose deletion was requested and not confirmed."""
        return [item for (item,) in self._db.execute(_UNCONFIRMED)]

    def records(self) -> Iterator[JobRecord]:
        """Iterate over the remembered items, ordered by the time of their first recorded work."""
        for item, state, *counts in self._db.execute(_RECORDS):
            yield JobRecord(item, JobState(state), *counts)

    def counts(self) -> Mapping[JobCounter, int]:
        """Return the values of the counters since the database file was created."""
        row = dict(self._rows(_COUNTS))
        return {tally: row.get(tally.value, 0) for tally in JobCounter}
