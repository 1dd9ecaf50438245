"""Transactions of commands, which may run beside the gateway.

Each transaction has its own connection. A running gateway notices that another process has changed
the database.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from edge.engine import database, meta
from edge.engine.database import Transaction
from edge.errors import SetupError
from edge.ops import current_time


@contextmanager
def reading(folder: Path) -> Iterator[Transaction]:
    """Begin a read transaction on the database in `folder`.

    Keep it short, because the write-ahead log cannot be truncated meanwhile. Raises `SetupError` if
    there is no database or its schema is older than this command.
    """
    path = folder / database.FILE_NAME
    with (
        closing(database.connect_reader(path)) as connection,
        database.transaction(connection, current_time.now(), "BEGIN") as tx,
    ):
        if database.schema_version(tx) < database.migrations()[-1][0]:
            raise SetupError(
                f"{path} has an older version; start the gateway to migrate it (`fieldpost run`)"
            )
        yield tx


@contextmanager
def changing(folder: Path) -> Iterator[Transaction]:
    """Begin a write transaction on the database in `folder`.

    Its service time is the last one that the gateway saved.
    """
    with (
        closing(database.connect(folder / database.FILE_NAME)) as connection,
        database.transaction(connection, current_time.now()) as tx,
    ):
        tx.now = tx.now._replace(service=meta.last_service_second(tx))
        yield tx
