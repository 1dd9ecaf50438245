"""Measure and limit the space that the database and its WAL take on the disk, and free it.

`reserve` is called before a new message is accepted. The room that it leaves free serves to deliver
and delete stored messages. `SpaceGuard` is the last resort: while another process reads without
end, the WAL cannot be shortened; `SpaceGuard` stops its growth at the limit of the database.
Source: https://www.sqlite.org/wal.html, "Avoiding Excessively Large WAL Files".
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from edge.config.limits import Limits
from edge.engine.rules import space_rules
from edge.engine.rules.quota import ExceededLimit
from edge.engine.rules.space_rules import WAL_SHARE, SpaceLimits, SpaceUsage
from edge.engine.store import database
from edge.engine.store.database import PAGE_BYTES, Transaction
from edge.errors import StoreDamaged, StoreFull

FREE_PAGES: Final = 1024
"""Free pages that the database file keeps, 4 MiB, so that it does not always grow and shrink."""

VACUUM_PAGES: Final = 256
"""Maximum pages that are freed at once, 1 MiB: SQLite moves pages, and units of work must wait."""

WAL_MARGIN: Final = 512 * 1024
"""Bytes that one more transaction may add to the WAL, approximately."""

UNBOUNDED: Final = 2**62
"""Bytes that stand for no limit, such as the free space of a database that is not in a file."""

_ROOM: Final = "room"
_LIMITS: Final = "limits of room"
_PATH: Final = "path"

_FILE: Final = "SELECT file FROM pragma_database_list WHERE name = 'main'"
_PAGES: Final = "PRAGMA main.page_count"
_FREE: Final = "PRAGMA main.freelist_count"
_VACUUM: Final = f"PRAGMA main.incremental_vacuum({VACUUM_PAGES})"
_TRUNCATE: Final = "PRAGMA main.wal_checkpoint(TRUNCATE)"
_PASSIVE: Final = "PRAGMA main.wal_checkpoint(PASSIVE)"
_NO_WAIT: Final = "PRAGMA busy_timeout = 0"


def reserve(tx: Transaction, size: int, limits: Limits) -> ExceededLimit | None:
    """Reserve room for a new message, and return the limit that it would exceed, if any.

    The room is measured once in a transaction, and each message reduces it by its bytes. A unit of
    work that runs in memory uses the room that `measure_room` found at the end of the previous
    transaction.
    """
    room: int | None = tx.memo.get(_ROOM)
    if room is None:
        room = tx.cache.get(_ROOM) if tx.is_in_memory else None
        if room is None:
            tx.cache[_LIMITS] = limits
            room = space_rules.free_room(measure(tx), space_limits(limits))
    if size > room:
        usage, bounds = measure(tx), space_limits(limits)
        reserved = space_rules.free_room(usage, bounds) - room
        return space_rules.exceeded_limit(size + reserved, usage, bounds)
    tx.memo[_ROOM] = room - size
    return None


def measure_room(tx: Transaction) -> None:
    """Measure the room that `reserve` uses for units that run in memory after this transaction."""
    limits: Limits | None = tx.cache.get(_LIMITS)
    if limits is not None:
        tx.cache[_ROOM] = space_rules.free_room(measure(tx), space_limits(limits))


def check_file(tx: Transaction) -> None:
    """Check that the database file was not removed, if it was ever measured; raises
    `StoreDamaged`."""
    path = tx.cache.get(_PATH)
    if path and not _file_size(path):
        raise _removed(path)


def exceeded_limit(tx: Transaction, size: int, limits: Limits) -> ExceededLimit | None:
    """Return the limit that a new message would exceed, if any; reserve nothing."""
    return space_rules.exceeded_limit(size, measure(tx), space_limits(limits))


def space_limits(limits: Limits) -> SpaceLimits:
    """Return the options of `[limits]` that limit the space of the database."""
    return SpaceLimits(limits.database_bytes, limits.database_reserve, limits.wal_bytes)


def set_max_bytes(tx: Transaction, max_bytes: int) -> None:
    """Change the limit of the database file on this connection (`database.limit_pages`)."""
    tx.run(database.limit_pages(max_bytes))


def measure(tx: Transaction) -> SpaceUsage:
    """Measure the space that the database takes; raises `StoreDamaged` if its file was removed."""
    path = tx.cache.get(_PATH)
    if path is None:
        path = tx.cache[_PATH] = tx.row(_FILE)[0]
    (pages,), (free,) = tx.row(_PAGES), tx.row(_FREE)
    live, spare = (pages - free) * PAGE_BYTES, free * PAGE_BYTES
    if not path:
        return SpaceUsage(live, spare, 0, UNBOUNDED)
    size = _file_size(path)
    if not size:
        raise _removed(path)
    growth = max(0, pages * PAGE_BYTES - size)  # pages that are only in the WAL so far
    return SpaceUsage(live, spare, _file_size(f"{path}-wal"), _free_on_disk(path) - growth)


def _removed(path: str) -> StoreDamaged:
    """Return the error for a removed file: commits to it are lost when the process ends."""
    return StoreDamaged(f"the database file {path} was removed")


def _file_size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - once a transaction; a Path costs more
    except FileNotFoundError:
        return 0


def _free_on_disk(path: str) -> int:
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize


class SpaceGuard:
    """Keeps a database and its WAL within `max_bytes`, transaction by transaction.

    `begin_now` runs on the event loop; all other methods may wait for the disk.
    """

    def __init__(self, path: Path, max_bytes: int | None) -> None:
        self._path = path
        self._file, self._wal = str(path), f"{path}-wal"
        self._limit = max_bytes
        self._max_bytes = UNBOUNDED if max_bytes is None else max_bytes
        self._guard: sqlite3.Connection | None = None

    def set_max_bytes(self, max_bytes: int) -> None:
        """Change the limit of the database and its WAL together."""
        self._limit = self._max_bytes = max_bytes

    def connect(self) -> sqlite3.Connection:
        """Open the connection that writes. It waits for other processes' locks only in `begin`."""
        connection = database.connect(self._path, self._limit)
        connection.execute(_NO_WAIT)
        return connection

    def begin(self, connection: sqlite3.Connection) -> None:
        """Begin a transaction. If the WAL has no room, the transaction cannot write.

        In that case a second connection holds the write lock until `end`. Units of work that only
        read, or change temporary tables, still run.
        """
        if self._is_wal_full(connection):
            self._guard = sqlite3.connect(self._path, timeout=0, isolation_level=None)
            self._guard.execute("BEGIN IMMEDIATE")
            connection.execute("BEGIN")
            return
        connection.execute(f"PRAGMA busy_timeout = {round(database.BUSY_TIMEOUT * 1000)}")
        try:
            connection.execute("BEGIN IMMEDIATE")
        finally:
            connection.execute(_NO_WAIT)

    def begin_now(self, connection: sqlite3.Connection) -> bool:
        """Begin a transaction; return False, without a transaction, if it has to wait or fails.

        In that case call `begin` on the database's thread, which waits or raises the error.
        """
        try:
            if not self._has_room(connection):
                return False
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error:
            return False
        return True

    def end(self) -> None:
        """After a transaction, release the lock with which `begin` kept it from writing, if any."""
        if self._guard is not None:
            guard, self._guard = self._guard, None
            guard.close()

    def explain_failure(
        self, connection: sqlite3.Connection, error: BaseException
    ) -> StoreFull | None:
        """Return a `StoreFull` if a transaction, already rolled back, failed for lack of room.

        If SQLite reports that the disk or the database is full, run a checkpoint, so that later,
        smaller transactions can reuse the space of the WAL.
        """
        if not isinstance(error, sqlite3.Error):
            return None
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if self._guard is not None and code == sqlite3.SQLITE_BUSY:
            return StoreFull(
                "the WAL is full, because another process reads the database for too long",
                "database_bytes",
            )
        if code != sqlite3.SQLITE_FULL:
            return None
        with suppress(sqlite3.Error):
            _checkpoint(connection, _PASSIVE)
        rule = "disk" if _free_on_disk(self._file) < WAL_SHARE else "database_bytes"
        return StoreFull(f"the database: {error}", rule)

    def reclaim(self, connection: sqlite3.Connection) -> None:
        """Return free pages and a large WAL to the file system; do not wait for other processes.

        A step that fails, usually because others read or write, is tried again by the next call.
        """
        with suppress(sqlite3.Error, OSError):
            self._reclaim(connection)

    def _reclaim(self, connection: sqlite3.Connection) -> None:
        (free,) = connection.execute(_FREE).fetchone()
        if free > FREE_PAGES:
            connection.executescript(_VACUUM)  # `execute` would stop after the first page
            _checkpoint(connection, _PASSIVE)  # this truncates the file
        if _file_size(self._wal) > WAL_SHARE:
            _checkpoint(connection, _TRUNCATE)

    def _is_wal_full(self, connection: sqlite3.Connection) -> bool:
        """Return whether the WAL has no room for one more transaction and cannot be shortened."""
        if self._has_room(connection):
            return False
        with suppress(sqlite3.Error):
            _checkpoint(connection, _TRUNCATE)
        return not self._has_room(connection)

    def _has_room(self, connection: sqlite3.Connection) -> bool:
        wal = _file_size(self._wal) + WAL_MARGIN
        if wal <= WAL_SHARE:  # a short WAL always has room
            return True
        (pages,) = connection.execute(_PAGES).fetchone()
        file = max(pages * PAGE_BYTES, _file_size(self._file))
        return cast("bool", file + wal <= self._max_bytes)


def _checkpoint(connection: sqlite3.Connection, mode: str) -> None:
    connection.execute(mode).fetchall()
