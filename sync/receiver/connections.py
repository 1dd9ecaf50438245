"""Who is connected: strangers by their address, gateways by their name, and how long each may take.

A connection is a stranger's until a request on it was a gateway's. Strangers are few, have little
time, and are answered once. Behind a proxy connections are the proxy's, which is no stranger, and
what its clients may do is its own to bound. Counts and ends connections, and knows no HTTP.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from typing import Final

from sync.receiver.limits import ReceiverLimits
from sync.receiver.metrics import Metrics
from sync.receiver.rate_limit import Rate

_HOST_BITS: Final = 64
"""Bits of an IPv6 address that whoever has a network chooses as it likes (RFC 4291, 2.5.1)."""


class Connection(asyncio.Protocol):
    """One connection, from its accept to its end; passes on what happens to the `inner` protocol.

    `who` is a gateway once one has shown itself, and until then the network that it comes from.
    """

    def __init__(self, registry: Connections, network: str, *, stranger: bool) -> None:
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


class Connections:
    """The connections of a receiver, which is `behind` a proxy or not."""

    def __init__(self, limits: ReceiverLimits, metrics: Metrics, *, behind: bool) -> None:
        self.limits = limits
        self.metrics = metrics
        self._behind = behind
        self._all: set[Connection] = set()
        self._by_transport: dict[asyncio.BaseTransport, Connection] = {}
        self._strangers: Counter[str] = Counter()
        self._gateways: dict[str, dict[Connection, None]] = {}
        self._pace = Rate(limits.connections_per_address_s, limits.rate_window_s)

    def counts(self) -> dict[str, int]:
        """How many there are, by who has them; a proxy's are neither."""
        strangers = self._strangers.total()
        gateways = sum(map(len, self._gateways.values()))
        proxies = len(self._all) - strangers - gateways
        return {"stranger": strangers, "gateway": gateways, "proxy": proxies}

    def begin(self, address: str) -> Connection | tuple[str, str]:
        """Count a connection in; or give the word and the text why it is refused."""
        network = network_of(address)
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


def network_of(address: str) -> str:
    """What counts as one address: an IPv4 address, or the network that an IPv6 host is in."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((found, _HOST_BITS), strict=False))
