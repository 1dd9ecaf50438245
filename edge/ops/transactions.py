"""Transactions of commands, which may run beside the gateway.

Each transaction has its own connection. A running gateway notices that another process has changed
the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, TypeVar

from edge.engine.store import database, meta
from edge.engine.store.database import Transaction
from edge.errors import SetupError
from edge.ops import current_time

K = TypeVar("K")
T = TypeVar("T")

PAGE: Final = 100
"""Rows that `read_pages` reads in one transaction, so that a slow consumer does not block the
gateway."""


@contextmanager
def reading(folder: Path) -> Iterator[Transaction]:
    """Begin a read transaction on the database in `folder`.

    Keep it short, because the write-ahead log cannot be truncated meanwhile. Raises `SetupError` if
    there is no database or its schema is not that of this command.
    """
    path = folder / database.FILE_NAME
    with (
        closing(database.connect_reader(path)) as connection,
        database.transaction(connection, current_time.now(), "BEGIN") as tx,
    ):
        if database.is_older(database.schema_version(tx), database.migrations()[-1][0]):
            raise SetupError(
                f"{path} has an older version; start the gateway to migrate it (`fieldpost run`)"
            )
        yield tx


def read_pages(
    folder: Path,
    after: K,
    page: Callable[[Transaction, K, int], Sequence[T]],
    key: Callable[[T], K],
) -> Iterator[T]:
    """Yield rows in the order of their keys; no transaction is open while the caller handles a row.

    Args:
        after: a key below all keys.
        page: returns the first rows above a key, at most as many as its last argument.
        key: returns the key of a row.
    """
    while True:
        with reading(folder) as tx:
            rows = page(tx, after, PAGE)
        if not rows:
            return
        yield from rows
        after = key(rows[-1])


@contextmanager
def changing(folder: Path) -> Iterator[Transaction]:
    """Begin a write transaction on the database in `folder`.

    The service time of the transaction is the last one that the gateway saved.
    """
    with (
        closing(database.connect(folder / database.FILE_NAME)) as connection,
        database.transaction(connection, current_time.now()) as tx,
    ):
        tx.now = tx.now._replace(service=meta.last_service_second(tx))
        yield tx
