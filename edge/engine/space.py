"""What the database takes on the disk, its WAL included: measured, bounded, and given back.

`refuses` is asked before a new message is taken; what is kept already is delivered and deleted in
the reserve. `Keeper` is the last bound: a WAL that cannot be taken back, since another process
reads without end, grows no further than the database may. How much is allowed is decided in
`rules.space`. Source: https://www.sqlite.org/wal.html, "Avoiding Excessively Large WAL Files".
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from edge.engine import space_rules
from edge.engine.database import BUSY_TIMEOUT, PAGE_BYTES, Transaction, connect_guard
from edge.engine.quota import ExceededLimit
from edge.engine.space_rules import WAL_SHARE, SpaceLimits, SpaceUsage
from edge.errors import StoreBroken, StoreFull

if TYPE_CHECKING:
    from edge.config.limits import Limits

FREE_PAGES: Final = 1024
"""Free pages that the file keeps, 4 MiB: what comes and goes needs no growing and shrinking."""

STEP: Final = 256
"""Pages that are given back at once, 1 MiB: each is moved, and units wait meanwhile."""

MARGIN: Final = 512 * 1024
"""Bytes that one more transaction may add to the WAL, in round figures."""

UNBOUNDED: Final = 2**62
"""What is left to a database that is in no file."""

_FILE: Final = "SELECT file FROM pragma_database_list WHERE name = 'main'"
_PAGES: Final = "PRAGMA main.page_count"
_FREE: Final = "PRAGMA main.freelist_count"
_GIVE_BACK: Final = f"PRAGMA main.incremental_vacuum({STEP})"
_TRUNCATE: Final = "PRAGMA main.wal_checkpoint(TRUNCATE)"
_PASSIVE: Final = "PRAGMA main.wal_checkpoint(PASSIVE)"
_NO_WAIT: Final = "PRAGMA busy_timeout = 0"
_WAIT: Final = f"PRAGMA busy_timeout = {round(BUSY_TIMEOUT * 1000)}"


def reserve(tx: Transaction, size: int, limits: Limits) -> ExceededLimit | None:
    """Tell which bound of the database a new message of `size` bytes would exceed.

    Where there is none, its bytes are taken from the room that the rest of the transaction finds.
    """
    room: int | None = tx.memo.get("room")
    if room is None:  # it is measured once in a transaction
        room = tx.memo["room"] = space_rules.free_room(measure(tx), _bounds(limits))
    if size > room:
        return _why(tx, size, room, limits)
    tx.memo["room"] = room - size
    return None


def exceeded_limit(tx: Transaction, size: int, limits: Limits) -> ExceededLimit | None:
    """Tell the same without taking any room: what a look at it needs."""
    return space_rules.exceeded_limit(size, measure(tx), _bounds(limits))


def _bounds(limits: Limits) -> SpaceLimits:
    return SpaceLimits(limits.database_bytes, limits.database_reserve, limits.wal_bytes)


def _why(tx: Transaction, size: int, room: int, limits: Limits) -> ExceededLimit | None:
    """Tell which bound it is, also where others in this transaction have had the room."""
    found = measure(tx)
    taken = space_rules.free_room(found, _bounds(limits)) - room
    return space_rules.exceeded_limit(size + taken, found, _bounds(limits))


def measure(tx: Transaction) -> SpaceUsage:
    """Measure what the database takes; raises `StoreBroken` if its file was removed."""
    path = tx.known.get("path")
    if path is None:
        path = tx.known["path"] = tx.row(_FILE)[0]
    (pages,), (free,) = tx.row(_PAGES), tx.row(_FREE)
    live, spare = (pages - free) * PAGE_BYTES, free * PAGE_BYTES
    if not path:
        return SpaceUsage(live, spare, 0, UNBOUNDED)
    size = _size(path)
    if not size:  # what is committed to it from now on ends with the process
        raise StoreBroken(f"{path} is gone")
    growth = max(0, pages * PAGE_BYTES - size)  # what is in the WAL alone so far
    return SpaceUsage(live, spare, _size(f"{path}-wal"), _left(path) - growth)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - for each transaction; a Path costs more
    except FileNotFoundError:
        return 0


def _left(path: str) -> int:
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize


class SpaceGuard:
    """Keeps a database with its WAL within `max_bytes`, as far as it grows by transactions.

    All of it runs on the thread of the connection that writes.
    """

    def __init__(self, path: Path, max_bytes: int | None) -> None:
        self._path = path
        self._file, self._wal = str(path), f"{path}-wal"
        self._max_bytes = UNBOUNDED if max_bytes is None else max_bytes
        self._guard: sqlite3.Connection | None = None

    def begin(self, connection: sqlite3.Connection) -> None:
        """Begin a transaction: where there is no room, one in which nothing can be written.

        What only reads, or changes who is there, goes on so; the lock that keeps writing away is
        held by a connection of its own, and for this transaction alone.
        """
        if not self._crowded(connection):
            connection.execute("BEGIN IMMEDIATE")
            return
        self._guard = connect_guard(self._path)
        self._guard.execute("BEGIN IMMEDIATE")
        connection.execute(_NO_WAIT)
        connection.execute("BEGIN")

    def end(self, connection: sqlite3.Connection) -> None:
        """Let others write again; the transaction is over."""
        if self._guard is not None:
            guard, self._guard = self._guard, None
            guard.close()
            connection.execute(_WAIT)

    def explained(self, connection: sqlite3.Connection, error: BaseException) -> StoreFull | None:
        """Tell why there was no room, if that is what failed; the transaction is over.

        Where the disk is full, what the WAL holds is moved to where it belongs: so it starts anew,
        in the place that it has, and what is smaller finds room again.
        """
        if not isinstance(error, sqlite3.Error):
            return None
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if self._guard is not None and code == sqlite3.SQLITE_BUSY:
            return StoreFull("the WAL has no room beside the database", "database_bytes")
        if code != sqlite3.SQLITE_FULL:
            return None
        with suppress(sqlite3.Error):
            _without_waiting(connection, lambda: _checkpoint(connection, _PASSIVE))
        rule = "disk" if _left(self._file) < WAL_SHARE else "database_bytes"
        return StoreFull(f"the database: {error}", rule)

    def tidy(self, connection: sqlite3.Connection) -> None:
        """Give back a part of what is free, and a WAL that is large; waits for nobody.

        What cannot be done just now, since others read or write, is for the next time.
        """
        with suppress(sqlite3.Error):
            _without_waiting(connection, lambda: self._give_back(connection))

    def _give_back(self, connection: sqlite3.Connection) -> None:
        (free,) = connection.execute(_FREE).fetchone()
        if free > FREE_PAGES:
            connection.executescript(_GIVE_BACK)  # `execute` would stop after the first page
            _checkpoint(connection, _PASSIVE)  # which cuts the file
        if _size(self._wal) > WAL_SHARE:
            _checkpoint(connection, _TRUNCATE)

    def _crowded(self, connection: sqlite3.Connection) -> bool:
        """Tell whether the WAL takes what the file leaves, and cannot be taken back."""
        if self._fits(connection):
            return False
        with suppress(sqlite3.Error):
            _without_waiting(connection, lambda: _checkpoint(connection, _TRUNCATE))
        return not self._fits(connection)

    def _fits(self, connection: sqlite3.Connection) -> bool:
        """Tell whether one more transaction does: with a short WAL it always does."""
        wal = _size(self._wal) + MARGIN
        if wal <= WAL_SHARE:
            return True
        (pages,) = connection.execute(_PAGES).fetchone()
        file = max(pages * PAGE_BYTES, _size(self._file))
        return cast("bool", file + wal <= self._max_bytes)


def _checkpoint(connection: sqlite3.Connection, how: str) -> None:
    connection.execute(how).fetchall()


def _without_waiting(connection: sqlite3.Connection, work: Callable[[], None]) -> None:
    connection.execute(_NO_WAIT)
    try:
        work()
    finally:
        connection.execute(_WAIT)
