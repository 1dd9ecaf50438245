"""Accept connections, limit them by address and by gateway, and run their TLS handshakes."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import ssl
from asyncio import sslproto
from typing import Final, NamedTuple

from aiohttp import web

from sync.common.json_log import log_event
from sync.receiver.limits import ReceiverLimits
from sync.receiver.log_throttle import LogThrottle
from sync.receiver.metrics import Metrics
from sync.receiver.proxy import ReverseProxy
from sync.receiver.rate_limit import RateLimiter

TLS_BUFFER_BYTES: Final = 16 * 1024
"""Bytes that asyncio buffers for each TLS connection: one TLS record; the default is 256 KiB."""

_IPV6_NETWORK_BITS: Final = 64
"""Prefix length of an IPv6 subnet, within which a host chooses its address (RFC 4291, 2.5.1)."""


class Connection(asyncio.Protocol):
    """One connection from accept to close. It forwards the protocol's callbacks to `inner`.

    `owner` is the gateway once a request was authenticated, and the client's network before.
    `handshake` is the task that starts the connection.
    """

    def __init__(self, registry: ConnectionRegistry, network: str, *, authenticated: bool) -> None:
        self.owner = network
        self.authenticated = authenticated
        self._registry = registry
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + registry.limits.first_request_timeout_s
        self._timer: asyncio.TimerHandle | None = None
        self._inner: asyncio.Protocol = asyncio.Protocol()
        self._transport: asyncio.Transport | None = None
        self.handshake: asyncio.Task[None] | None = None

    def wrap(self, inner: asyncio.Protocol) -> Connection:
        """Forward callbacks to `inner` from now on."""
        self._inner = inner
        return self

    def request_received(self) -> None:
        """Cancel the time limit of the first request, whose headers are complete."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def abort(self) -> None:
        """Close the connection at once, or end its TLS handshake."""
        if self._transport is not None:
            abort(self._transport)
        elif self.handshake is not None:
            self.handshake.cancel()

    def _time_out(self) -> None:
        self._registry.metrics.count_refused_connection("no_request")
        self.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the time limit of the first request, and forward the call to `inner`."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 # asyncio's types are wider
        self._transport = transport
        self._timer = self._loop.call_at(self._deadline, self._time_out)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the registry, and forward its end to `inner`."""
        self.request_received()
        self._registry.remove(self)
        self._inner.connection_lost(exc)


class RefusedConnection(NamedTuple):
    """The reason why a connection is refused, as a metrics label and as a text."""

    reason: str
    text: str


class ConnectionRegistry:
    """Counts and limits the connections of a receiver.

    A connection is unauthenticated until a request on it is authenticated. At a limit, a new
    connection takes the place of an unauthenticated one, the oldest of its address or of the
    address with most: so idle connections behind a site's address do not keep out its gateways,
    which are authenticated within some round trips. With `behind_proxy`, all
    connections are the proxy's, which limits its clients itself.
    """

    def __init__(self, limits: ReceiverLimits, metrics: Metrics, *, behind_proxy: bool) -> None:
        self.limits = limits
        self.metrics = metrics
        self._behind_proxy = behind_proxy
        self._all: set[Connection] = set()
        self._unauthenticated: dict[str, dict[Connection, None]] = {}
        self._gateways: dict[str, dict[Connection, None]] = {}
        self._rate_limiter = RateLimiter(limits.connections_per_address_s, limits.rate_window_s)

    def counts(self) -> dict[str, int]:
        """Return the number of connections by kind of peer."""
        unauthenticated = sum(map(len, self._unauthenticated.values()))
        gateways = sum(map(len, self._gateways.values()))
        proxies = len(self._all) - unauthenticated - gateways
        return {"unauthenticated": unauthenticated, "gateway": gateways, "proxy": proxies}

    def add(self, address: str) -> Connection | RefusedConnection:
        """Register a connection from `address`, or return why it is refused."""
        network = client_network(address)
        refused = self._check(network)
        if refused is not None:
            self.metrics.count_refused_connection(refused.reason)
            return refused
        connection = Connection(self, network, authenticated=self._behind_proxy)
        self._all.add(connection)
        if not connection.authenticated:
            self._unauthenticated.setdefault(network, {})[connection] = None
        return connection

    def _check(self, network: str) -> RefusedConnection | None:
        """Make room for a connection from `network`, or return why it is refused."""
        if not self._behind_proxy and self._rate_limiter.take(network, 1):
            text = "too many new connections per second from this address"
            return RefusedConnection("connection_rate", text)
        own = self._unauthenticated.get(network, {})
        if len(own) >= self.limits.unauthenticated_per_address:
            self._replace(own, "address")
        elif self.counts()["unauthenticated"] >= self.limits.unauthenticated:
            self._replace(self._most(), "unauthenticated")
        if len(self._all) >= self.limits.connections:
            if not self._unauthenticated:
                return RefusedConnection("connections", "too many connections")
            self._replace(self._most(), "connections")
        return None

    def _most(self) -> dict[Connection, None]:
        """Return the unauthenticated connections of the network that has most."""
        return max(self._unauthenticated.values(), key=len)

    def _replace(self, connections: dict[Connection, None], reason: str) -> None:
        """Close the oldest of these unauthenticated connections."""
        oldest = next(iter(connections))
        self.metrics.count_refused_connection(reason)
        self.remove(oldest)
        oldest.abort()

    def remove(self, connection: Connection) -> None:
        """Remove a connection; do nothing if it is already removed."""
        if connection not in self._all:
            return
        self._all.remove(connection)
        self._remove_from_owner(connection)

    def request_received(self, transport: asyncio.BaseTransport | None) -> None:
        """Cancel the time limit of the connection's first request: its headers are complete."""
        connection = self._find(transport)
        if connection is not None:
            connection.request_received()

    def is_unauthenticated(self, transport: asyncio.BaseTransport | None) -> bool:
        """Return whether no request on this connection has been authenticated."""
        connection = self._find(transport)
        return connection is not None and not connection.authenticated

    def authenticated(self, transport: asyncio.BaseTransport | None, gateway: str) -> None:
        """Assign the connection to `gateway`; if that has too many, close the one idle longest."""
        connection = self._find(transport)
        if connection is None or self._behind_proxy:
            return
        self._remove_from_owner(connection)
        connection.owner, connection.authenticated = gateway, True
        of_gateway = self._gateways.setdefault(gateway, {})
        of_gateway[connection] = None  # at the end: the first one is idle longest
        if len(of_gateway) > self.limits.connections_per_gateway:
            self.metrics.count_refused_connection("gateway")
            next(iter(of_gateway)).abort()

    def _remove_from_owner(self, connection: Connection) -> None:
        owners = self._gateways if connection.authenticated else self._unauthenticated
        of_owner = owners.get(connection.owner, {})
        of_owner.pop(connection, None)
        if not of_owner:
            owners.pop(connection.owner, None)

    def _find(self, transport: asyncio.BaseTransport | None) -> Connection | None:
        protocol = None if transport is None else transport.get_protocol()
        if isinstance(protocol, Connection) and protocol in self._all:
            return protocol
        return None


def client_network(address: str) -> str:
    """Return the unit that limits apply to: an IPv4 address, or the /64 network of an IPv6 one."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, _IPV6_NETWORK_BITS), strict=False))


class Listener:
    """Serves the connections that arrive at the socket `listener` while its context lasts.

    `frontend` is the TLS context of the connections, or the proxy that sends plain HTTP. A
    connection has `limits.handshake_timeout_s` for its TLS handshake. It counts against the limits
    from accept on, so that stalled handshakes count too. At the end, `listener` and the connections
    that are still in their handshake are closed.
    """

    def __init__(
        self,
        listener: socket.socket,
        server: web.Server,
        frontend: ssl.SSLContext | ReverseProxy,
        limits: ReceiverLimits,
        connections: ConnectionRegistry,
        log: LogThrottle,
    ) -> None:
        self._listener = listener
        self._server = server
        self._proxy = frontend if isinstance(frontend, ReverseProxy) else None
        self._tls = None if isinstance(frontend, ReverseProxy) else frontend
        self._limits = limits
        self._connections = connections
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._handshakes: dict[asyncio.Task[None], socket.socket] = {}
        self._retry: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        _limit_tls_buffers()

    async def __aenter__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._retry = None
        self._loop.add_reader(self._listener, self._accept)

    async def __aexit__(self, *_: object) -> None:
        self._loop.remove_reader(self._listener)
        if self._retry is not None:
            self._retry.cancel()
        self._listener.close()
        unfinished = dict(self._handshakes)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        for connection in unfinished.values():
            connection.close()

    def _accept(self) -> None:
        """Accept one connection; the event loop calls this again while more connections wait."""
        try:
            sock, peer = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return
        except OSError as error:
            text = f"cannot accept connections for {self._limits.accept_retry_s:g} s: {error}"
            log_event(logging.ERROR, "accept", text=text)
            self._loop.remove_reader(self._listener)
            self._retry = self._loop.call_later(self._limits.accept_retry_s, self._start)
            return
        if self._proxy is not None and not self._proxy.is_trusted(peer[0]):
            self._connections.metrics.count_refused_connection("proxy")
            self._refuse(sock, "the peer is not a trusted proxy", peer[0])
            return
        connection = self._connections.add(peer[0])
        if isinstance(connection, RefusedConnection):
            self._refuse(sock, connection.text, peer[0])
            return
        task = self._loop.create_task(self._serve(sock, peer[0], connection))
        connection.handshake = task
        self._handshakes[task] = sock
        task.add_done_callback(self._handshakes.pop)

    def _refuse(self, sock: socket.socket, text: str, peer: str) -> None:
        self._log.log(logging.WARNING, (text,), "refused", text=text, peer=peer)
        sock.close()

    async def _serve(self, sock: socket.socket, peer: str, connection: Connection) -> None:
        started = False
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection.wrap(self._server()),
                sock,
                ssl=self._tls,
                ssl_handshake_timeout=self._limits.handshake_timeout_s if self._tls else None,
                ssl_shutdown_timeout=self._limits.linger_s if self._tls else None,
            )
            started = True
        except OSError as error:
            reason = str(error) or type(error).__name__
            self._connections.metrics.count_refused_connection("handshake")
            text = f"TLS handshake failed: {reason}"
            self._log.log(logging.INFO, ("handshake",), "refused", text=text, peer=peer)
        finally:
            if not started:
                self._connections.remove(connection)


def _limit_tls_buffers() -> None:
    """Reduce the memory of asyncio's TLS connections.

    The attribute that is set is private. In a Python without this attribute, TLS connections use
    more memory, and the test of the memory of stalled handshakes fails.
    """
    if isinstance(getattr(sslproto.SSLProtocol, "max_size", None), int):
        sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES


def abort(transport: asyncio.Transport) -> None:
    """Close a connection at once.

    Python 3.11.2 fails to if aiohttp has closed the TLS on it twice; then it ends by itself.
    """
    with contextlib.suppress(AttributeError):
        transport.abort()
