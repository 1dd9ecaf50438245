"""Rules for whether the database has room for a new message: in its size, its WAL and on the disk.

When the database is full, stored messages must still be delivered and deleted, and both take pages.
So new messages are refused before SQLite would refuse writes; the difference is the reserve
(`limits.database_reserve`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edge.engine.rules.quota import ExceededLimit
from sync.common.text import size as in_units

WAL_SHARE: Final = 5 * 1024 * 1024
"""Minimum bytes that are set aside for the WAL: SQLite shortens the WAL when a commit makes it
larger than 4 MiB."""


MESSAGE_ROOM: Final = 4096
"""Bytes of room below which the database counts as full: hardly any message is accepted."""


DATABASE_REMEDY: Final = (
    "raise limits.database_bytes and run `fieldpost reload`, or delete waiting messages"
)
"""Remedy for a database that has reached its limit."""


class SpaceUsage(NamedTuple):
    """The space that the database takes, in bytes.

    Attributes:
        live: pages of the database file in use.
        free: its free pages, which are used before the file grows.
        disk: free space on the disk.
    """

    live: int
    free: int
    wal: int
    disk: int


class SpaceLimits(NamedTuple):
    """The options `database_bytes`, `database_reserve` and `wal_bytes` of `[limits]`, in bytes."""

    database: int
    reserve: int
    wal: int


def free_room(usage: SpaceUsage, limits: SpaceLimits) -> int:
    """Return the bytes that new messages may take; if negative, none is accepted."""
    if usage.wal > limits.wal:
        return -1
    return min(_room_in_database(usage, limits), _room_on_disk(usage, limits))


def exceeded_limit(size: int, usage: SpaceUsage, limits: SpaceLimits) -> ExceededLimit | None:
    """Return the limit that a new message of `size` bytes would exceed, if any."""
    if usage.wal > limits.wal:
        return ExceededLimit("wal_bytes", limits.wal)
    if size > _room_in_database(usage, limits):
        return ExceededLimit("database_bytes", limits.database)
    if size > _room_on_disk(usage, limits):
        return ExceededLimit("database_reserve", limits.reserve)
    return None


def shortage(usage: SpaceUsage, limits: SpaceLimits, over: ExceededLimit) -> tuple[str, str]:
    """Return why there is no room for new messages, because of the limit `over`, and what to do."""
    if over.name == "wal_bytes":
        text = f"the write-ahead log uses {in_units(usage.wal)} of {in_units(limits.wal)}"
        remedy = "end the process that reads the database continuously"
    elif over.name == "database_bytes":
        used = in_units(usage.live + usage.wal)
        text = (
            f"the database uses {used} of {in_units(limits.database)}, of which"
            f" {in_units(limits.reserve)} are reserved for the delivery of stored messages"
        )
        remedy = DATABASE_REMEDY
    else:
        needed = limits.reserve + max(0, WAL_SHARE - usage.wal)
        text = (
            f"{in_units(max(0, usage.disk))} are free on the disk, and new messages need more than"
            f" {in_units(needed)}"
        )
        remedy = "free disk space, or lower limits.database_reserve and run `fieldpost reload`"
    return f"{text}: new messages are refused", remedy


def can_ever_accept(disk: int, limits: SpaceLimits) -> bool:
    """Return whether a disk of `disk` bytes has room for messages if nothing else is on it."""
    return disk > limits.reserve + WAL_SHARE


def _room_in_database(usage: SpaceUsage, limits: SpaceLimits) -> int:
    return limits.database - limits.reserve - usage.live - max(usage.wal, WAL_SHARE)


def _room_on_disk(usage: SpaceUsage, limits: SpaceLimits) -> int:
    return usage.free + usage.disk - max(0, WAL_SHARE - usage.wal) - limits.reserve
