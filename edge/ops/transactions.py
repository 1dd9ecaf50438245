"""Transactions of commands, beside a running gateway or without one.

Each is one, on a connection of its own: the gateway sees for itself that another process changed
the database.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from edge.engine import database, meta
from edge.engine.database import Transaction
from edge.errors import SetupError
from edge.ops import current_time

_VERSION: Final = "PRAGMA user_version"


@contextmanager
def reading(folder: Path) -> Iterator[Transaction]:
    """Read one state of the database of `folder`; keep it short, the WAL grows meanwhile.

    Raises `SetupError` where there is none, or where it is older than this command.
    """
    path = folder / database.FILE_NAME
    with (
        closing(database.connect_reader(path)) as connection,
        database.transaction(connection, current_time.now(), "BEGIN") as tx,
    ):
        if tx.row(_VERSION)[0] < database.migrations()[-1][0]:
            raise SetupError(f"{path} is of an older version: `fieldpost run` brings it up to date")
        yield tx


@contextmanager
def changing(folder: Path) -> Iterator[Transaction]:
    """Change the database of `folder`; events are dated with the service seconds saved last."""
    with (
        closing(database.connect(folder / database.FILE_NAME)) as connection,
        database.transaction(connection, current_time.now()) as tx,
    ):
        tx.now = tx.now._replace(service=meta.last_service_second(tx))
        yield tx
