"""The control socket: what the process alone knows, told to a command on the same machine.

One line asks, one line of JSON answers, and the connection ends; `admin.control` asks. Whoever may
open the folder may ask, and can change nothing here.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from edge.errors import StoreError
from edge.ops import control
from edge.ops.control import Running, There

CALLERS: Final = 8
"""Connections at once; a further one is closed."""

REQUEST_BYTES: Final = 64
"""The longest request."""

CALL_TIME: Final = 5.0
"""Seconds for a call, whose answer may have to be waited for on a busy machine."""

MODE: Final = 0o600


class Control:
    """The socket of one gateway, of which only one runs in its folder."""

    def __init__(
        self,
        folder: Path,
        state: Callable[[], Running],
        members: Callable[[int], Awaitable[There]],
    ) -> None:
        self._folder = folder
        self._state = state
        self._members = members
        self._server: asyncio.Server | None = None
        self._place = ExitStack()
        self.callers: set[_Caller] = set()

    async def start(self) -> None:
        """Listen; replaces the socket that a killed gateway left. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        with ExitStack() as undo:
            path = undo.enter_context(control.reachable(self._folder))
            listening = _bind(path)
            undo.callback(listening.close)
            self._server = await loop.create_unix_server(lambda: _Caller(self), sock=listening)
            self._place = undo.pop_all()  # asyncio looks at the path again when it closes

    def stop(self) -> None:
        """Answer nobody any more, and take the socket away."""
        if self._server is None:
            return
        self._server.close()
        for caller in list(self.callers):
            caller.abort()
        (self._folder / control.SOCKET).unlink(missing_ok=True)
        self._place.close()

    async def answer(self, request: bytes) -> bytes:
        """Answer a line, without its end; who is there of a queue takes a unit of work."""
        words = request.split(b" ")
        if request == control.STATUS:
            return msgspec.json.encode(self._state()) + b"\n"
        if len(words) == 2 and words[0] == control.MEMBERS and words[1].isdigit():
            try:
                return msgspec.json.encode(await self._members(int(words[1]))) + b"\n"
            except StoreError:  # a full disk, say: the gateway is busy with it
                return b'{"error":"the database"}\n'
        return b'{"error":"unknown request"}\n'


class _Caller(asyncio.Protocol):
    """Somebody who asks: bounded in bytes and in time."""

    def __init__(self, owner: Control) -> None:
        self._owner = owner
        self._asked = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._answer: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101
        self._transport = transport
        if len(self._owner.callers) >= CALLERS:
            transport.abort()
            return
        self._owner.callers.add(self)
        self._timer = asyncio.get_running_loop().call_later(CALL_TIME, transport.abort)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None  # noqa: S101
        if self._answer is not None:
            return
        self._asked += data[: REQUEST_BYTES + 1]
        line, end, _ = self._asked.partition(b"\n")
        if end:
            self._answer = asyncio.create_task(self._tell(self._transport, line))
        elif len(self._asked) > REQUEST_BYTES:
            self._transport.abort()

    async def _tell(self, transport: asyncio.Transport, line: bytes) -> None:
        transport.write(await self._owner.answer(line))
        transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.callers.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._answer is not None:
            self._answer.cancel()

    def abort(self) -> None:
        """End the call now."""
        if self._transport is not None:
            self._transport.abort()


def _bind(path: str) -> socket.socket:
    """Make the socket, readable by its owner alone from the first moment on."""
    place = Path(path)
    if place.is_socket():
        place.unlink()
    listening = socket.socket(socket.AF_UNIX)
    try:
        os.fchmod(listening.fileno(), MODE)
        listening.bind(path)
        place.chmod(MODE)  # whatever the umask
    except BaseException:
        listening.close()
        raise
    return listening
