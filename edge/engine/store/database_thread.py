"""A SQLite connection on its own thread, which can run a whole transaction in one call.

aiosqlite provides the thread, but only calls of single statements. To run a function with several
statements, this module uses its private method `_execute`; so the minor version of aiosqlite is
pinned, and a test checks this class with it.
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
"""Prepared statements that a connection keeps: more than the gateway uses."""

BEGIN_TIMEOUT: Final = 0.01
"""Maximum seconds that `call_first` blocks the event loop until its function begins."""


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
        """Run a function as `call` does, but block the event loop until the function has begun.

        It suits a function that soon waits for the disk, because the loop continues during that
        wait. With `call`, the function would begin only when the loop has nothing to do and
        releases the interpreter's lock.
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
