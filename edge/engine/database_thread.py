"""A SQLite connection on its own thread, on which any function can run in one hop.

aiosqlite provides the thread, with one hop per statement. Running a whole transaction in one hop
takes its private `_execute`, so its minor version is pinned, and a test checks this class with it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

import aiosqlite

P = ParamSpec("P")
T = TypeVar("T")

CACHED_STATEMENTS: Final = 128
"""Prepared statements that a connection keeps: more than the gateway has."""


class DatabaseThread:
    """A connection and its thread; a cancelled call still runs to its end."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    @classmethod
    async def start(cls, connect: Callable[[], sqlite3.Connection]) -> DatabaseThread:
        """Start the thread and call `connect` there; raise what it raises."""
        return cls(await aiosqlite.Connection(connect, CACHED_STATEMENTS))

    @property
    def raw(self) -> sqlite3.Connection:
        """The connection, to be used only by functions that run on its thread."""
        return self._connection._conn

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function on the thread; return what it returns, or raise what it raises."""
        execute: Any = self._connection._execute
        result: T = await execute(function, *args, **kwargs)
        return result

    async def close(self) -> None:
        """Close the connection and end the thread."""
        await self._connection.close()
