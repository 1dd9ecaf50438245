"""Open and create durable SQLite files that one process uses at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

if TYPE_CHECKING:
    from firmware_sim.device.errors import FirmwareError


class DurableFile:
    """A durable SQLite file. Close it with `close`, or use it in a `with` block.

    Errors of SQLite are raised as exceptions of the type `error`.
    """

    error: ClassVar[type[FirmwareError]]

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    @property
    def database(self) -> sqlite3.Connection:
        """Return the SQLite connection, for the application's own tables.

        It is in autocommit mode: outside of a transaction, each statement is committed at once.
        """
        return self._db

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all changes in the block at once; an error rolls all of them back.

        Raises an exception of the type `error` if SQLite failed (such as a full disk or a failed
        card); then no change was stored.
        """
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except BaseException as fault:
            with suppress(sqlite3.Error):  # the first error is raised
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
            if isinstance(fault, sqlite3.Error):
                raise self.error(str(fault)) from fault
            raise

    def _rows(self, sql: str, *values: object) -> list[Any]:
        """Return the rows of a query. Raises an exception of the type `error` if that fails."""
        try:
            return self._db.execute(sql, values).fetchall()
        except sqlite3.Error as fault:
            raise self.error(str(fault)) from fault

    def close(self) -> None:
        """Close the file. An open transaction is rolled back."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Schema(NamedTuple):
    """The SQL for a new file, and for upgrades of older files.

    `tables` creates the tables, `first_row` inserts the first row. `steps` maps a version to the
    SQL that upgrades a file to it from the preceding version.
    """

    version: int
    tables: str
    first_row: str
    steps: Mapping[int, str] = {}


@contextmanager
def opened(
    path: Path, error: type[FirmwareError], schema: Schema, first: tuple[str, ...]
) -> Iterator[sqlite3.Connection]:
    """Open or create an SQLite file with durable commits, locked for this process.

    SQLite creates two more files (`-wal`, `-shm`) beside it. `first` are the values of the first
    row of a new file. An exception in the `with` block closes the connection; otherwise, the
    connection stays open. Raises an exception of the type `error` if the file is no database, is of
    a newer version, or is locked by another process.
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
        raise error(
            f"the file has version {found}; update this library, which supports at most {version}"
        )
    if not found:
        db.executescript(f"BEGIN IMMEDIATE;{schema.tables};PRAGMA user_version={version}")
        db.execute(schema.first_row, first)
        db.execute("COMMIT")
        return
    for number, step in sorted(schema.steps.items()):
        if found < number:
            db.executescript(f"BEGIN IMMEDIATE;{step};PRAGMA user_version={number};COMMIT")


def bare(jid: str) -> str:
    """Return the bare JID: a JID without its resource."""
    return jid.partition("/")[0]
