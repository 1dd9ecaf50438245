"""Copy the database in one consistent state, while the gateway may be writing.

Source: https://www.sqlite.org/backup.html.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final, TypeVar

from edge.engine.rules.service_time import Now
from edge.engine.store import database
from edge.engine.store.database import Transaction
from edge.errors import SetupError

T = TypeVar("T")

COPIED_PAGES: Final = 1024
"""Pages that are copied in one step: 4 MiB."""

_BEGIN_READING: Final = "SELECT count(*) FROM meta"


def copy(source: Path, target: Path, now: Now, mark: Callable[[Transaction], T]) -> T:
    """Copy the database to the new file `target`, check the copy, and return what `mark` returns.

    `mark` runs in a transaction of the copy. Copying reads one state of the source, because writes
    of the gateway would otherwise restart the copy again and again. The WAL grows meanwhile, and
    above `limits.wal_bytes` new messages are refused. Raises `FieldpostError`.
    """
    target.touch(0o600)
    try:
        with (
            closing(database.connect_reader(source)) as reading,
            closing(sqlite3.connect(target, isolation_level=None)) as writing,
        ):
            reading.execute("BEGIN")
            reading.execute(_BEGIN_READING).fetchone()
            reading.backup(writing, pages=COPIED_PAGES)
    except sqlite3.Error as error:
        raise database.translate(error) from error
    return check(target, now, mark, source)


def check(path: Path, now: Now, inspect: Callable[[Transaction], T], name: Path | None = None) -> T:
    """Check that a database is intact, migrate it, and return what `inspect` returns.

    `inspect` runs in a transaction; `name` is the file that an error names. Raises
    `FieldpostError`.
    """
    with closing(database.connect(path)) as connection:
        try:
            damage = database.integrity_errors(connection, 1, deep=False)
        except sqlite3.Error as error:
            raise database.translate(error) from error
        if damage:
            raise SetupError(f"{name or path} is damaged: {damage[0]}")
        with database.transaction(connection, now) as tx:
            return inspect(tx)
