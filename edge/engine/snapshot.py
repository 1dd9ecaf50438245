"""Copies of the database: one state of it, whole, while the gateway may be writing.

Source: https://www.sqlite.org/backup.html.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from edge.engine import database
from edge.engine.service_time import Now
from edge.errors import SetupError
from edge.features.eventlog.store import epochs

PAGES: Final = 1024
"""Pages that are copied at once, 4 MiB."""

_HOLD: Final = "SELECT count(*) FROM meta"
_CHECK: Final = "PRAGMA quick_check(1)"


def copy(source: Path, target: Path, now: Now) -> str:
    """Copy the database to the new file `target`, see that it is whole, and mark it as a copy.

    Returns its epoch. One state of it is held meanwhile, or a gateway that writes would have it
    begin again and again: so the WAL grows, and beyond `limits.wal_bytes` new messages wait. Raises
    `FieldpostError`.
    """
    target.touch(0o600)
    try:
        with (
            closing(database.connect_reader(source)) as reading,
            closing(sqlite3.connect(target, isolation_level=None)) as writing,
        ):
            reading.execute("BEGIN")
            reading.execute(_HOLD).fetchone()
            reading.backup(writing, pages=PAGES)
    except sqlite3.Error as error:
        raise database.translate(error) from error
    with closing(_whole(target, source)) as connection, database.transaction(connection, now) as tx:
        epochs.mark_copy(tx)
        return epochs.latest(tx, 1)[0].epoch


def accept(path: Path, now: Now) -> None:
    """See that a database is whole and was made by `copy`; brings it to the newest version.

    Raises `FieldpostError`.
    """
    with closing(_whole(path, path)) as connection, database.transaction(connection, now) as tx:
        if not epochs.is_copy(tx):
            raise SetupError(f"{path.name} is not a copy that a backup made")


def _whole(path: Path, named: Path) -> sqlite3.Connection:
    connection = database.connect(path)
    try:
        (found,) = connection.execute(_CHECK).fetchone()
        if found != "ok":
            raise SetupError(f"{named} is damaged: {found}")
    except sqlite3.Error as error:
        connection.close()
        raise database.translate(error) from error
    except SetupError:
        connection.close()
        raise
    return connection
