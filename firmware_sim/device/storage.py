"""Open and create durable SQLite files that one process uses at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from firmware_sim.errors import FirmwareError


class DurableFile:
    """A durable SQLite file: close it, or use it in a `with` block."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    @property
    def database(self) -> sqlite3.Connection:
        """Return the file's connection, for the application's own tables.

        Outside of a transaction, each statement commits by itself.
        """
        return self._db

    def close(self) -> None:
        """Close the file. An open transaction is rolled back."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Schema(NamedTuple):
    """The tables of a kind of file, and the row with which a new file begins.

    `steps` has, for each version, the SQL that leads to it from the one before.
    """

    version: int
    tables: str
    first_row: str
    steps: Mapping[int, str] = {}


@contextmanager
def opened(
    path: Path, error: type[FirmwareError], schema: Schema, first: tuple[str, ...]
) -> Iterator[sqlite3.Connection]:
    """Open or create a file with durable commits, locked for this process.

    An error in the block closes it.

    Args:
        path: the file; SQLite creates two more (`-wal`, `-shm`) beside it.
        error: the type of error to raise.
        schema: what to create in a new file, and how to upgrade an older one.
        first: values of the first row.

    Raises:
        FirmwareError: (of that type) it is no database, is newer, or another process has locked it.
    """
    try:
        db = sqlite3.connect(path, timeout=1.0, isolation_level=None)
    except sqlite3.Error as fault:
        raise error(f"{path}: {fault}") from fault
    try:
        for pragma in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL"):
            db.execute(f"PRAGMA {pragma}")
        _migrate(db, error, schema, first)
        yield db
    except BaseException as fault:
        db.close()
        if isinstance(fault, sqlite3.Error):
            raise error(f"{path}: {fault}") from fault
        raise


def _migrate(
    db: sqlite3.Connection, error: type[FirmwareError], schema: Schema, first: tuple[str, ...]
) -> None:
    version = schema.version
    found = db.execute("PRAGMA user_version").fetchone()[0]
    if found > version:
        raise error(f"the file has version {found}; this software supports {version}")
    if not found:
        db.executescript(f"BEGIN IMMEDIATE;{schema.tables};PRAGMA user_version={version}")
        db.execute(schema.first_row, first)
        db.execute("COMMIT")
        return
    for number, step in sorted(schema.steps.items()):
        if found < number:
            db.executescript(f"BEGIN IMMEDIATE;{step};PRAGMA user_version={number};COMMIT")


@contextmanager
def transaction(db: sqlite3.Connection, error: type[FirmwareError]) -> Iterator[None]:
    """Commit all changes in the block at once; an error rolls all of them back.

    Raises:
        FirmwareError: (of that type) SQLite failed: a full disk, a failed card.
    """
    try:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("COMMIT")
    except BaseException as fault:
        with suppress(sqlite3.Error):  # the first error is raised
            if db.in_transaction:
                db.execute("ROLLBACK")
        if isinstance(fault, sqlite3.Error):
            raise error(str(fault)) from fault
        raise


def bare(jid: str) -> str:
    """Remove the resource from a JID."""
    return jid.partition("/")[0]
