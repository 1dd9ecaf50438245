"""The receiver's door: accepts connections, and sees each through its handshake.

A connection counts from its accept, so that one whose handshake stalls takes a place as any other
does: `sync.receiver.connections` counts. What is said on it is the protocol's business.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
from asyncio import sslproto
from collections import Counter
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from sync.common.json_log import log_event
from sync.receiver.limits import ReceiverLimits
from sync.receiver.log_throttle import LogThrottle
from sync.receiver.metrics import Metrics
from sync.receiver.proxy import ReverseProxy
from sync.receiver.rate_limit import RateLimiter

if TYPE_CHECKING:
    import socket
    import ssl

    from aiohttp import web


TLS_BUFFER_BYTES: Final = 16 * 1024
"""Bytes that asyncio holds for each TLS connection: one TLS record, in place of its 256 KiB."""


@contextlib.asynccontextmanager
async def open_listener(
    listener: socket.socket,
    server: web.Server,
    way: ssl.SSLContext | ReverseProxy,
    limits: ReceiverLimits,
    connections: ConnectionRegistry,
    seldom: LogThrottle,
) -> AsyncIterator[None]:
    """Give `server` what comes in at `listener`, until the context ends: over TLS, or of a proxy.

    `listener` is closed at its end, and so is each connection that is still in its handshake.
    """
    _bound_tls_buffers()
    door = Listener(listener, server, way, limits, connections, seldom)
    door.watch()
    try:
        yield
    finally:
        await door.close()


class Listener:
    """Accepts what `connections` has room for, each with `limits.handshake_s` to begin."""

    def __init__(
        self,
        listener: socket.socket,
        server: web.Server,
        way: ssl.SSLContext | ReverseProxy,
        limits: ReceiverLimits,
        connections: ConnectionRegistry,
        seldom: LogThrottle,
    ) -> None:
        self._listener = listener
        self._server = server
        self._proxy = way if isinstance(way, ReverseProxy) else None
        self._context = None if isinstance(way, ReverseProxy) else way
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
            log_event(logging.ERROR, "accept", text=str(error))
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
        sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES


_HOST_BITS: Final = 64
"""Bits of an IPv6 address that whoever has a network chooses as it likes (RFC 4291, 2.5.1)."""


class Connection(asyncio.Protocol):
    """One connection, from its accept to its end; passes on what happens to the `inner` protocol.

    `who` is a gateway once one has shown itself, and until then the network that it comes from.
    """

    def __init__(self, registry: ConnectionRegistry, network: str, *, stranger: bool) -> None:
        self.who = network
        self.stranger = stranger
        self._registry = registry
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + registry.limits.first_request_s
        self._timer: asyncio.TimerHandle | None = None
        self._inner: asyncio.Protocol = asyncio.Protocol()
        self._transport: asyncio.Transport | None = None

    def over(self, inner: asyncio.Protocol) -> Connection:
        """Pass on to `inner` from now on."""
        self._inner = inner
        return self

    def heard(self) -> None:
        """The head of a request is here: the time for the first one is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def abort(self) -> None:
        """Cut it."""
        if self._transport is not None:
            self._transport.abort()

    def _overdue(self) -> None:
        self._registry.metrics.turned_away("silent")
        self.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin: the handshake is done."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101
        self._transport = transport
        self._timer = self._loop.call_at(self._deadline, self._overdue)
        self._registry.made(transport, self)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Pass on."""
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass on."""
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        """Pass on."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Pass on."""
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """End, and give the place back."""
        self.heard()
        if self._transport is not None:
            self._registry.lost(self._transport)
        self._registry.end(self)
        self._inner.connection_lost(exc)


class ConnectionRegistry:
    """The connections of a receiver, which is `behind` a proxy or not."""

    def __init__(self, limits: ReceiverLimits, metrics: Metrics, *, behind: bool) -> None:
        self.limits = limits
        self.metrics = metrics
        self._behind = behind
        self._all: set[Connection] = set()
        self._by_transport: dict[asyncio.BaseTransport, Connection] = {}
        self._strangers: Counter[str] = Counter()
        self._gateways: dict[str, dict[Connection, None]] = {}
        self._pace = RateLimiter(limits.connections_per_address_s, limits.rate_window_s)

    def counts(self) -> dict[str, int]:
        """How many there are, by who has them; a proxy's are neither."""
        strangers = self._strangers.total()
        gateways = sum(map(len, self._gateways.values()))
        proxies = len(self._all) - strangers - gateways
        return {"stranger": strangers, "gateway": gateways, "proxy": proxies}

    def begin(self, address: str) -> Connection | tuple[str, str]:
        """Count a connection in; or give the word and the text why it is refused."""
        network = client_network(address)
        refused = self._refused(network)
        if refused is not None:
            self.metrics.turned_away(refused[0])
            return refused
        connection = Connection(self, network, stranger=not self._behind)
        self._all.add(connection)
        if connection.stranger:
            self._strangers[network] += 1
        return connection

    def _refused(self, network: str) -> tuple[str, str] | None:
        if len(self._all) >= self.limits.connections:
            return "connections", "too many connections"
        if self._behind:
            return None
        if self._strangers.total() >= self.limits.strangers:
            return "strangers", "too many connections of nobody that is known"
        if self._strangers[network] >= self.limits.strangers_per_address:
            return "address", "too many connections of this address before a log-in"
        if self._pace.take(network, 1):
            return "pace", "too many new connections of this address in a while"
        return None

    def end(self, connection: Connection) -> None:
        """Count a connection out. Harmless again."""
        if connection not in self._all:
            return
        self._all.remove(connection)
        self._leave(connection)

    def made(self, transport: asyncio.BaseTransport, connection: Connection) -> None:
        """Know a connection by its transport."""
        self._by_transport[transport] = connection

    def lost(self, transport: asyncio.BaseTransport) -> None:
        """Know it no more."""
        self._by_transport.pop(transport, None)

    def heard(self, transport: asyncio.BaseTransport | None) -> None:
        """Note that the head of a request has come."""
        connection = self._of(transport)
        if connection is not None:
            connection.heard()

    def is_stranger(self, transport: asyncio.BaseTransport | None) -> bool:
        """Tell whether nobody that is known has asked for anything on it."""
        connection = self._of(transport)
        return connection is not None and connection.stranger

    def logged_in(self, transport: asyncio.BaseTransport | None, gateway: str) -> None:
        """Note that a request was a gateway's; its connection that rested longest may be cut."""
        connection = self._of(transport)
        if connection is None or self._behind:
            return
        self._leave(connection)
        connection.who, connection.stranger = gateway, False
        others = self._gateways.setdefault(gateway, {})
        others[connection] = None
        if len(others) > self.limits.connections_per_gateway:
            self.metrics.turned_away("gateway")
            next(iter(others)).abort()

    def _leave(self, connection: Connection) -> None:
        """Take it from those that it was counted with."""
        if connection.stranger:
            self._strangers[connection.who] -= 1
            if not self._strangers[connection.who]:
                del self._strangers[connection.who]
            return
        others = self._gateways.get(connection.who, {})
        others.pop(connection, None)
        if not others:
            self._gateways.pop(connection.who, None)

    def _of(self, transport: asyncio.BaseTransport | None) -> Connection | None:
        return None if transport is None else self._by_transport.get(transport)


def client_network(address: str) -> str:
    """What counts as one address: an IPv4 address, or the network that an IPv6 host is in."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((found, _HOST_BITS), strict=False))
