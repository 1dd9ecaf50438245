"""The socket that the status page is asked at: few callers at once, little time for each.

What is answered is the site's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from edge.config.load import Address
from edge.errors import ConfigError
from edge.web import http
from edge.web.http import Answer, Refused

CALLERS: Final = 16
"""Connections at once. For a further one the oldest goes that has not asked yet, so that nobody
keeps others out by silence; else it is closed. A browser and Prometheus have one or two."""

CALL_TIME: Final = 10.0
"""Seconds for a call, from its connection to the last byte of its answer: the database may take
five of them."""


class Server:
    """Listens, and gives each path that is asked for to `answer`, if it `serves` the host."""

    def __init__(
        self, answer: Callable[[str], Awaitable[Answer]], serves: Callable[[str], bool]
    ) -> None:
        self.answer = answer
        self.serves = serves
        self.callers: dict[_Caller, None] = {}
        self._server: asyncio.Server | None = None

    async def start(self, wanted: Address) -> list[Address]:
        """Listen; returns what was bound; raises `ConfigError` if it cannot be."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: _Caller(self), wanted.host, wanted.port, backlog=CALLERS
            )
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"web.listen {wanted} cannot be bound: {reason}") from error
        return [Address(*bound.getsockname()[:2]) for bound in self._server.sockets]

    def stop(self) -> None:
        """Answer nobody any more."""
        if self._server is not None:
            self._server.close()
        for caller in list(self.callers):
            caller.abort()

    def admit(self, caller: _Caller) -> bool:
        """Tell whether there is room for one more, which is made if somebody is silent."""
        if len(self.callers) >= CALLERS:
            silent = next((each for each in self.callers if not each.asked), None)
            if silent is None:
                return False
            del self.callers[silent]
            silent.abort()
        self.callers[caller] = None
        return True


class _Caller(asyncio.Protocol):
    """One connection: one request, one answer."""

    def __init__(self, owner: Server) -> None:
        self._owner = owner
        self._head = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101
        self._transport = transport
        if not self._owner.admit(self):
            transport.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(CALL_TIME, transport.abort)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None  # noqa: S101
        if self._task is not None:
            return
        self._head += data[: http.HEAD_BYTES + 1]
        head, end, _ = self._head.partition(http.END)
        if end or len(self._head) > http.HEAD_BYTES:
            self._transport.pause_reading()
            asked = head if end else None
            self._task = asyncio.create_task(self._tell(self._transport, asked))

    async def _tell(self, transport: asyncio.Transport, head: bytes | None) -> None:
        """Answer a head; without one, it was too long."""
        try:
            if head is None:
                raise Refused(431)
            request = http.parse(head)
            serves = self._owner.serves(request.host)
            answer = await self._owner.answer(request.path) if serves else http.plain(421)
            transport.write(http.written(answer, head_only=request.method == "HEAD"))
        except Refused as refused:
            transport.write(http.written(http.plain(refused.status)))
        except Exception as error:
            transport.write(http.written(http.plain(500)))
            context = {"message": "a page could not be made", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
        transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.callers.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    @property
    def asked(self) -> bool:
        """Whether its request has come."""
        return self._task is not None

    def abort(self) -> None:
        """End the call now."""
        if self._transport is not None:
            with suppress(OSError):
                self._transport.abort()
