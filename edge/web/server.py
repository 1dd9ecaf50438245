"""The HTTP listener of the status page, with limits on connections and time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from edge.config.load import Address
from edge.ops.machine.listen_error import listen_error
from edge.server.transports import unlink
from edge.web import http
from edge.web.http import RequestError, Response

MAX_CONNECTIONS: Final = 16
"""Maximum concurrent connections; browsers and Prometheus need one or two.

A new connection above the limit replaces the oldest connection that has sent no request yet, so
that silent clients cannot block others. If all have sent one, the new connection is closed.
"""

TIMEOUT: Final = 10.0
"""Maximum seconds from connecting to the last byte of the response, of which the database can take
five."""


class Server:
    """A listener that passes each requested path to `respond` if `is_known` accepts the host."""

    def __init__(
        self, respond: Callable[[str], Awaitable[Response]], is_known: Callable[[str], bool]
    ) -> None:
        self.respond = respond
        self.is_known = is_known
        self.connections: dict[_Connection, None] = {}
        self._server: asyncio.Server | None = None

    async def start(self, wanted: Address) -> list[Address]:
        """Listen, and return the bound addresses; raises `ConfigError` if that fails."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: _Connection(self), wanted.host, wanted.port, backlog=MAX_CONNECTIONS
            )
        except (OSError, UnicodeError) as error:
            raise listen_error("web", "listen", wanted, error) from error
        return [Address(*bound.getsockname()[:2]) for bound in self._server.sockets]

    def stop(self) -> None:
        """Stop listening and close all connections."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.abort()

    def admit(self, connection: _Connection) -> bool:
        """Return whether a new connection is accepted.

        At the limit, the oldest connection that has sent no request is closed to make room.
        """
        if len(self.connections) >= MAX_CONNECTIONS:
            silent = next((each for each in self.connections if not each.has_request), None)
            if silent is None:
                return False
            del self.connections[silent]
            silent.abort()
        self.connections[connection] = None
        return True


class _Connection(asyncio.Protocol):
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
        self._timer = asyncio.get_running_loop().call_later(TIMEOUT, transport.abort)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None  # noqa: S101
        if self._task is not None:
            return
        self._head += data[: http.MAX_HEAD_BYTES + 1]
        head, end, _ = self._head.partition(http.END)
        if end or len(self._head) > http.MAX_HEAD_BYTES:
            self._transport.pause_reading()
            complete = head if end else None
            self._task = asyncio.create_task(self._respond(self._transport, complete))

    async def _respond(self, transport: asyncio.Transport, head: bytes | None) -> None:
        """Respond to a request; `head` is `None` if it was too long."""
        try:
            if head is None:
                raise RequestError(431)
            request = http.parse(head)
            if self._owner.is_known(request.host):
                response = await self._owner.respond(request.path)
            else:
                response = http.status_response(421)
            transport.write(http.serialize(response, head_only=request.method == "HEAD"))
        except RequestError as error:
            transport.write(http.serialize(http.status_response(error.status)))
        except Exception as error:
            transport.write(http.serialize(http.status_response(500)))
            context = {"message": "a status page could not be rendered", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
        transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        unlink(self._transport)
        self._owner.connections.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    @property
    def has_request(self) -> bool:
        """Return whether a request was received."""
        return self._task is not None

    def abort(self) -> None:
        """Close the connection now."""
        if self._transport is not None:
            with suppress(OSError):
                self._transport.abort()
