"""Whether the database has room for a new message: within its size, its WAL's, and the disk's.

What is kept in it must still be delivered and deleted when it is full, and both take pages: so new
messages are turned away before SQLite would, and what is left is the reserve. Nothing is measured
here.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edge.engine.quota import ExceededLimit

WAL_SHARE: Final = 5 * 1024 * 1024
"""Bytes of the database that are the WAL's also while it is small: SQLite takes it back from 4 MiB
on, after the commit that reaches them."""


class SpaceUsage(NamedTuple):
    """What the database takes, in bytes."""

    live: int
    """Pages in use."""
    free: int
    """Pages that were given back and are used again."""
    wal: int
    disk: int
    """What others have left on the disk."""


class SpaceLimits(NamedTuple):
    """How much it may take, in bytes."""

    database: int
    reserve: int
    wal: int


def free_room(space: SpaceUsage, bounds: SpaceLimits) -> int:
    """Return how many bytes new messages may have; none may be taken if it is negative."""
    return (
        -1 if space.wal > bounds.wal else min(_in_database(space, bounds), _on_disk(space, bounds))
    )


def exceeded_limit(size: int, space: SpaceUsage, bounds: SpaceLimits) -> ExceededLimit | None:
    """Tell which bound a new message of `size` bytes would exceed."""
    if space.wal > bounds.wal:
        return ExceededLimit("wal_bytes", bounds.wal)
    if size > _in_database(space, bounds):
        return ExceededLimit("database_bytes", bounds.database)
    if size > _on_disk(space, bounds):
        return ExceededLimit("database_reserve", bounds.reserve)
    return None


def _in_database(space: SpaceUsage, bounds: SpaceLimits) -> int:
    return bounds.database - bounds.reserve - space.live - max(space.wal, WAL_SHARE)


def _on_disk(space: SpaceUsage, bounds: SpaceLimits) -> int:
    return space.free + space.disk - max(0, WAL_SHARE - space.wal) - bounds.reserve
