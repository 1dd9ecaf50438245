"""Open and create durable SQLite files that one process uses at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from firmware_sim.errors import FirmwareError


def open_file(path: Path, error: type[FirmwareError]) -> sqlite3.Connection:
    """Open or create a file with durable commits, locked for this process.

    Args:
        path: the file; SQLite creates two more (`-wal`, `-shm`) beside it.
        error: the type of error to raise.

    Raises:
        FirmwareError: (of that type) it is no database, or another process has locked it.
    """
    try:
        db = sqlite3.connect(path, timeout=1.0, isolation_level=None)
    except sqlite3.Error as fault:
        raise error(f"{path}: {fault}") from fault
    try:
        for pragma in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL"):
            db.execute(f"PRAGMA {pragma}")
    except sqlite3.Error as fault:
        db.close()
        raise error(f"{path}: {fault}") from fault
    return db


def is_new(db: sqlite3.Connection, version: int, error: type[FirmwareError]) -> bool:
    """Return whether the file is still empty.

    Raises:
        FirmwareError: (of that type) a newer version of this software created it.
    """
    found = db.execute("PRAGMA user_version").fetchone()[0]
    if found > version:
        raise error(f"the file has version {found}; this software supports {version}")
    return bool(found == 0)


def make(db: sqlite3.Connection, schema: str, version: int) -> None:
    """Create the tables, in a transaction that the caller completes and commits."""
    db.executescript(f"BEGIN IMMEDIATE;{schema};PRAGMA user_version={version}")


def upgrade(db: sqlite3.Connection, steps: Mapping[int, str]) -> None:
    """Bring an older file to the present version.

    Args:
        db: the file, which is not empty.
        steps: for each version, the SQL that leads to it from the one before.
    """
    found = db.execute("PRAGMA user_version").fetchone()[0]
    for version in sorted(steps):
        if found < version:
            db.executescript(
                f"BEGIN IMMEDIATE;{steps[version]};PRAGMA user_version={version};COMMIT"
            )


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
