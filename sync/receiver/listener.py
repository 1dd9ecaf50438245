"""The receiver's door: accepts connections, and sees each through its handshake.

A connection counts from its accept, so that one whose handshake stalls takes a place as any other
does: `sync.receiver.connections` counts. What is said on it is the protocol's business.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from asyncio import sslproto
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from sync.common.json_log import tell
from sync.receiver.connections import Connection, Connections
from sync.receiver.limits import ReceiverLimits
from sync.receiver.log_throttle import Seldom
from sync.receiver.proxy import Proxy

if TYPE_CHECKING:
    import socket
    import ssl

    from aiohttp import web


TLS_BUFFER: Final = 16 * 1024
"""Bytes that asyncio holds for each TLS connection: one TLS record, in place of its 256 KiB."""


@contextlib.asynccontextmanager
async def open_door(
    listener: socket.socket,
    server: web.Server,
    way: ssl.SSLContext | Proxy,
    limits: ReceiverLimits,
    connections: Connections,
    seldom: Seldom,
) -> AsyncIterator[None]:
    """Give `server` what comes in at `listener`, until the context ends: over TLS, or of a proxy.

    `listener` is closed at its end, and so is each connection that is still in its handshake.
    """
    _bound_tls_buffers()
    door = Door(listener, server, way, limits, connections, seldom)
    door.watch()
    try:
        yield
    finally:
        await door.close()


class Door:
    """Accepts what `connections` has room for, each with `limits.handshake_s` to begin."""

    def __init__(
        self,
        listener: socket.socket,
        server: web.Server,
        way: ssl.SSLContext | Proxy,
        limits: ReceiverLimits,
        connections: Connections,
        seldom: Seldom,
    ) -> None:
        self._listener = listener
        self._server = server
        self._proxy = way if isinstance(way, Proxy) else None
        self._context = None if isinstance(way, Proxy) else way
        self._limits = limits
        self._connections = connections
        self._seldom = seldom
        self._loop = asyncio.get_running_loop()
        self._handshakes: dict[asyncio.Task[None], socket.socket] = {}
        self._pause: asyncio.TimerHandle | None = None
        listener.setblocking(False)

    def watch(self) -> None:
        """Accept what comes, from now on."""
        self._pause = None
        self._loop.add_reader(self._listener, self._accept)

    async def close(self) -> None:
        """Accept nothing more, and cut the connections that are still in their handshake."""
        self._loop.remove_reader(self._listener)
        if self._pause is not None:
            self._pause.cancel()
        self._listener.close()
        cut = dict(self._handshakes)
        for task in cut:
            task.cancel()
        await asyncio.gather(*cut, return_exceptions=True)
        for connection in cut.values():
            connection.close()

    def _accept(self) -> None:
        """Take one connection; the loop calls again while more wait."""
        try:
            connection, peer = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return
        except OSError as error:
            tell(logging.ERROR, "accept", text=str(error))
            self._loop.remove_reader(self._listener)
            self._pause = self._loop.call_later(self._limits.accept_retry_s, self.watch)
            return
        if self._proxy is not None and not self._proxy.admits(peer[0]):
            self._connections.metrics.turned_away("proxy")
            self._refuse(connection, logging.WARNING, "this is not the proxy", peer[0])
            return
        begun = self._connections.begin(peer[0])
        if not isinstance(begun, Connection):
            self._refuse(connection, logging.WARNING, begun[1], peer[0])
            return
        task = self._loop.create_task(self._begin(connection, peer[0], begun))
        self._handshakes[task] = connection
        task.add_done_callback(self._handshakes.pop)

    def _refuse(self, connection: socket.socket, level: int, text: str, peer: str) -> None:
        self._seldom.tell(level, (text,), "refused", text=text, peer=peer)
        connection.close()

    async def _begin(self, connection: socket.socket, peer: str, counted: Connection) -> None:
        """Do the handshake; from then on the protocol has the connection, until it is lost."""
        begun = False
        try:
            await self._loop.connect_accepted_socket(
                lambda: counted.over(self._server()),
                connection,
                ssl=self._context,
                ssl_handshake_timeout=self._limits.handshake_s if self._context else None,
                ssl_shutdown_timeout=self._limits.linger_s if self._context else None,
            )
            begun = True
        except OSError as error:
            reason = str(error) or type(error).__name__
            self._connections.metrics.turned_away("handshake")
            text = f"no TLS handshake: {reason}"
            self._seldom.tell(logging.INFO, ("handshake",), "refused", text=text, peer=peer)
        finally:
            if not begun:
                self._connections.end(counted)


def _bound_tls_buffers() -> None:
    """Make asyncio's TLS connections hold less memory.

    The attribute is private: where a Python does not have it, its TLS costs what it costs, and the
    test of the memory of stalled handshakes tells.
    """
    if isinstance(getattr(sslproto.SSLProtocol, "max_size", None), int):
        sslproto.SSLProtocol.max_size = TLS_BUFFER
