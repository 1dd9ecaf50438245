"""A TCP proxy on loopback between a device and a gateway, which simulates a faulty link.

It can delay data, lose the data of one direction, half-close, close or reset connections. `faults`
decides when.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import Final, Self

_CHUNK: Final = 16 * 1024  # bytes passed at once; a delay applies to each
_STOP_S: Final = 5.0  # seconds until a stop no longer waits for what it has cut
_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s: closing sends RST


class _Route:
    def __init__(self, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self.near = near
        self.far = far
        self.up = True
        self.down = True

    def cut(self, *, reset: bool) -> None:
        for writer in (self.near, self.far):
            raw = writer.get_extra_info("socket")
            if reset and raw is not None:
                with contextlib.suppress(OSError):  # closed already: nothing is left to reset
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()

    def end(self, *, requests: bool, answers: bool) -> None:
        """Send a FIN to the gateway (`requests`), to the device (`answers`), or to both."""
        ended = [self.far] * (requests and self.up) + [self.near] * (answers and self.down)
        self.up, self.down = self.up and not requests, self.down and not answers
        for writer in ended:
            with contextlib.suppress(OSError):  # it is gone already
                writer.write_eof()


class FaultyLink:
    """A proxy that listens on a free port of 127.0.0.1 and forwards each connection to one address.

    `delay` is called for each chunk of data; it returns the seconds by which to delay it.
    """

    def __init__(self, host: str, port: int, delay: Callable[[], float] | None = None) -> None:
        self._target = (host, port)
        self._delay = delay
        self._routes: set[_Route] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._stopped = False
        self.port = 0
        """The port on which the link listens; 0 before `start`."""

    async def start(self) -> None:
        """Begin to listen and to forward connections."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close all connections and stop listening."""
        if self._server is not None:
            self._server.close()
        self._stopped = True
        self.cut()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_STOP_S)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def cut(self, *, reset: bool = False) -> None:
        """Close every connection; with `reset`, both ends receive a reset (RST), else a FIN."""
        for route in list(self._routes):
            route.cut(reset=reset)

    def lose(self, *, requests: bool = False, answers: bool = False) -> None:
        """Discard data to (`requests`) or from (`answers`) the gateway on present connections."""
        for route in self._routes:
            route.up = route.up and not requests
            route.down = route.down and not answers

    def half_close(self, *, requests: bool = False, answers: bool = False) -> None:
        """Half-close each connection: send a FIN in one direction and keep the other open.

        `requests` is the direction to the gateway, `answers` the one from it.
        """
        for route in list(self._routes):
            route.end(requests=requests, answers=answers)

    async def _accept(self, reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - asyncio runs this in a task of its own
        self._tasks.add(task)
        try:
            await self._carry(reader, near)
        except OSError:
            pass  # the gateway is not there: the device sees its connection end, as it should
        finally:
            near.transport.abort()
            self._tasks.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        answers, far = await asyncio.open_connection(*self._target)
        route = _Route(near, far)
        if self._stopped:
            route.cut(reset=False)
        self._routes.add(route)
        up = asyncio.create_task(self._pass(reader, far, lambda: route.up))
        down = asyncio.create_task(self._pass(answers, near, lambda: route.down))
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._routes.discard(route)
            route.cut(reset=False)
            for task in (up, down):
                task.cancel()
            await asyncio.gather(up, down, return_exceptions=True)

    async def _pass(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, passes: Callable[[], bool]
    ) -> None:
        while data := await source.read(_CHUNK):
            late = self._delay() if self._delay is not None else 0.0
            if late > 0.0:
                await asyncio.sleep(late)
            if passes():
                sink.write(data)
                await sink.drain()
