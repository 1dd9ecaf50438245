"""A SQLite connection on its own thread, on which any function can run in one hop.

aiosqlite provides the thread, with one hop per statement. Running a whole transaction in one hop
takes its private `_execute`, so its minor version is pinned, and a test checks this class with it.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

import aiosqlite

P = ParamSpec("P")
T = TypeVar("T")

CACHED_STATEMENTS: Final = 128
"""Prepared statements that a connection keeps: more than the gateway has."""

BEGIN_TIMEOUT: Final = 0.01
"""Seconds that the event loop waits at most until a function of `call_first` begins."""


class DatabaseThread:
    """A connection and its thread; a cancelled call still runs to its end."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection
        self._begun = threading.Event()

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

    async def call_first(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function on the thread as `call` does; it begins before the event loop goes on.

        For a function that soon waits for the disk, which it does while the loop goes on. Otherwise
        it would wait for the interpreter's lock until the loop has nothing else to do.
        """

        def begin() -> T:
            self._begun.set()
            return function(*args, **kwargs)

        self._begun.clear()
        asyncio.get_running_loop().call_soon(self._begun.wait, BEGIN_TIMEOUT)
        return await self.call(begin)

    async def close(self) -> None:
        """Close the connection and end the thread."""
        await self._connection.close()
