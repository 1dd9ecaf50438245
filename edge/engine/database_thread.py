"""One SQLite connection on a thread of its own, where any function can run in one hop.

aiosqlite gives the thread, and a hop for each statement; a whole transaction in one hop takes its
`_execute`, which is not public. So its minor version is pinned, and a test holds this class to it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import aiosqlite

P = ParamSpec("P")
T = TypeVar("T")

STATEMENTS = 128
"""Prepared statements that a connection keeps: more than the gateway has."""


class DatabaseThread:
    """A connection and its thread; a call that was cancelled still runs to its end."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    @classmethod
    async def start(cls, connect: Callable[[], sqlite3.Connection]) -> DatabaseThread:
        """Start the thread and open the connection there; raises what `connect` raises."""
        return cls(await aiosqlite.Connection(connect, STATEMENTS))

    @property
    def raw(self) -> sqlite3.Connection:
        """The connection itself, to be touched by functions that run on its thread alone."""
        return self._connection._conn

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `function` on the thread and return what it returned, or raise what it raised."""
        execute: Any = self._connection._execute
        result: T = await execute(function, *args, **kwargs)
        return result

    async def close(self) -> None:
        """Close the connection and end the thread."""
        await self._connection.close()
