"""A TCP proxy on loopback that breaks its connections on request, for tests of recovery.

It forwards bytes without parsing them, so TLS goes through it from end to end. It runs in its own
thread and is called from any other, so it serves tests with and without an event loop. `cut` resets
both ends at once; `freeze` acts like a pulled cable: nothing arrives, and nothing is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

T = TypeVar("T")

CALL_S = 10.0
"""Seconds for the proxy's loop to run a call."""

CHUNK = 65536
"""Bytes forwarded at once."""

RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: closing sends RST, as a peer that lost its state does."""


class Cutter:
    """A proxy to one address: connect to 127.0.0.1 and `port`. Use it as a context manager."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._flows = asyncio.Event()
        self._withheld = threading.Event()
        self._server: asyncio.Server | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(self, *_exception: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_S)
        self._loop.close()

    def cut(self, hold: bool = False) -> int:
        """Reset every connection and return how many there were.

        With `hold`, later connections are accepted, but nothing is forwarded until `release`.
        """
        return self._run(self._cut(hold))

    def release(self) -> None:
        self._call(self._open.set)

    def freeze(self) -> None:
        """Forward nothing until `thaw`, and close nothing: both ends believe in the connection.

        A `cut` discards the withheld bytes, as a broken link loses bytes in transit.
        """
        self._withheld.clear()
        self._call(self._flows.clear)

    def wait_withheld(self) -> None:
        """Wait until one end has sent something since `freeze`."""
        if not self._withheld.wait(CALL_S):
            message = f"nothing was sent in {CALL_S} s"
            raise AssertionError(message)

    def thaw(self) -> None:
        """Forward again, beginning with the withheld bytes."""
        self._call(self._flows.set)

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(CALL_S)

    def _call(self, function: Callable[[], None]) -> None:
        async def call() -> None:
            function()

        self._run(call())

    async def _listen(self) -> None:
        self._open.set()
        self._flows.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._cut(hold=True)

    async def _cut(self, hold: bool) -> int:
        if hold:
            self._open.clear()
        tasks = list(self._tasks)
        for writer in self._writers:
            _reset(writer)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return len(tasks)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            await self._open.wait()
            await self._forward(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # the connection was cut, or an end closed it
        finally:
            self._tasks.discard(task)
            await self._end(writer)

    async def _end(self, writer: asyncio.StreamWriter) -> None:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        self._writers.discard(writer)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        self._writers.add(far_writer)
        try:
            async with asyncio.TaskGroup() as copies:
                copies.create_task(self._copy(reader, far_writer))
                copies.create_task(self._copy(far_reader, writer))
        except* OSError:
            pass  # one end has closed the connection; closing it tells the other
        finally:
            await self._end(far_writer)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            if not self._flows.is_set():
                self._withheld.set()
                await self._flows.wait()
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    sock: socket.socket | None = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() != -1:  # closed in the meantime
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    writer.transport.abort()
