"""The listening sockets of a protocol, with its connections and sessions."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

from edge.config.load import Address
from edge.ops.gateway.control import ConnectedSession
from edge.ops.machine.listen_error import listen_error
from edge.server import socket_side
from edge.server.endpoints import Endpoint
from edge.server.registry import Registry
from edge.server.server_context import ServerContext
from edge.server.session import Session
from edge.server.socket_side import BACKLOG
from edge.server.tls_client_hello import ClientHelloReader
from edge.server.wire import Wire

IDLE_TIME: Final = 30.0
"""Seconds between two checks of all connections; parsers without input since the last check are
freed."""

S = TypeVar("S", bound=Session[Any])


class Listen(NamedTuple):
    """Addresses to listen on.

    Attributes:
        name: the name of each address in the `ready` line.
        section, option: the section and the option of the configuration that have the addresses.
        only_tls: whether connections begin with TLS.
    """

    name: str
    section: str
    option: str
    addresses: Sequence[Address]
    only_tls: bool = False


class Listener(Endpoint, Generic[S]):
    """An endpoint whose devices connect to listening sockets, in this process or in front
    processes; a protocol adds the connections.

    Attributes:
        sockets: the module that has the protocol's `SocketSide`.
        alpn: the protocol's name in TLS (RFC 7301).
        transport: what carries the protocol; empty for TCP, with or without TLS.
    """

    sockets: ClassVar[str]
    alpn: ClassVar[str]
    transport: ClassVar[str] = ""

    def __init__(self, context: ServerContext, wanted: Sequence[Listen]) -> None:
        self._context = context
        self._wanted = wanted
        self._registry = Registry[S](context.outputs, context.admission)
        self._servers: list[asyncio.Server] = []
        self._idle_timer: asyncio.TimerHandle | None = None
        context.store.on_room.append(self._registry.resume_reading)

    @abstractmethod
    def connect(self, wire: Wire) -> None:
        """Make the connection of a new wire."""

    @abstractmethod
    def decoder(self) -> Callable[[bytes], Sequence[Any]]:
        """Return a function that decodes the items of one connection of a front process."""

    async def start(self) -> list[tuple[str, Address]]:
        """Listen and return the bound addresses; raises `ConfigError` if one cannot be bound."""
        await self._context.prepare_logins(self.alpn)
        bound: list[tuple[str, Address]] = []
        for wanted in self._wanted:
            for address in wanted.addresses:
                found = await self._bind(wanted, address)
                bound += ((wanted.name, one) for one in found)
        self._release_idle()
        return bound

    def _release_idle(self) -> None:
        self._registry.release_idle()
        self._idle_timer = self._context.loop.call_later(IDLE_TIME, self._release_idle)

    async def _bind(self, wanted: Listen, address: Address) -> list[Address]:
        """Listen on all addresses of a host, which may be of several families."""
        processes = self._context.front_processes
        try:
            server = await self._context.loop.create_server(
                self._acceptor(only_tls=wanted.only_tls),
                address.host,
                address.port,
                backlog=BACKLOG,
                start_serving=processes is None,
            )
        except (OSError, UnicodeError) as error:  # UnicodeError: IDNA refuses the host name
            raise listen_error(wanted.section, wanted.option, address, error) from error
        self._servers.append(server)
        if processes is not None:
            numbers = tuple(bound.fileno() for bound in server.sockets)
            processes.listen(self, numbers, only_tls=wanted.only_tls)
        return [Address(*bound.getsockname()[:2]) for bound in server.sockets]

    def _acceptor(self, *, only_tls: bool) -> Callable[[], asyncio.BaseProtocol]:
        """Return the function that makes the protocol of a new connection in this process, which
        may begin with TLS on each port."""
        context = self._context
        if context.front_processes is not None or context.tls is None:
            return asyncio.Protocol  # the sockets are not accepted from
        side, tls_server = socket_side.load(self.sockets), context.tls

        def accept() -> ClientHelloReader:
            wire = side.wire(context.wires, side.parser(context.settings.limits), tls_server)
            self.connect(wire)
            return ClientHelloReader(wire, side.alpn, only_tls=only_tls)

        return accept

    @property
    def up(self) -> bool:
        """Return whether devices can connect."""
        processes = self._context.front_processes
        if processes is not None:
            return bool(self._servers) and processes.up
        return any(server.is_serving() for server in self._servers)

    def used(self) -> dict[str, int]:
        """Return how much of each limit is in use (`Endpoint.used`)."""
        context, sessions = self._context, self._registry.sessions()
        unauthenticated = context.admission.unauthenticated
        _, per_source = context.admission.largest_groups()
        handshakes = 0 if context.tls is None else context.tls.active_handshakes
        if context.front_processes is not None:
            handshakes = context.front_processes.handshakes
        return {
            "sessions_per_address": per_source,
            "unauthenticated": len(unauthenticated),
            "unauthenticated_per_address": unauthenticated.largest_group(),
            "handshakes": handshakes,
            "paused": context.paused_connections,
            "send_buffer": max((s.buffered_bytes for s in sessions), default=0),
            "session_units": max((s.in_flight for s in sessions), default=0),
            "session_bytes": max((s.in_flight_bytes for s in sessions), default=0),
            "unacknowledged_stanzas": max((s.unacknowledged_stanzas for s in sessions), default=0),
            "unacknowledged_bytes": max((s.unacknowledged_bytes for s in sessions), default=0),
            "unacknowledged_total_bytes": context.unacknowledged_bytes + context.returning_bytes,
        }

    def connected_sessions(self, wall: int) -> list[ConnectedSession]:
        """Return the sessions of devices; `wall` is the present time in ms since 1970."""
        now = self._context.loop.time()

        def wall_time(at: float) -> int:
            return wall - round((now - at) * 1000)

        return [
            ConnectedSession(
                account=session.account,
                resource=session.full.partition("/")[2],
                protocol=session.protocol,
                version=session.version,
                transport="" if session.connection is None else session.connection.transport,
                address=None if session.connection is None else session.connection.address,
                since=wall_time(session.since),
                seen=wall_time(seen),
                detached=session.connection is None,
                unacknowledged=session.all_unacknowledged_stanzas,
            )
            for session in self._registry.sessions()
            if (seen := session.last_input) is not None
        ]

    def stop_accepting(self) -> None:
        """Stop listening."""
        for server in self._servers:
            server.close()
        if self._idle_timer is not None:
            self._idle_timer.cancel()

    async def close(self, patience: float) -> None:
        """End the sessions; wait at most `patience` seconds until their connections are closed."""
        self._registry.end_all()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._registry.no_connections.wait(), patience)
        self._context.store.on_room.remove(self._registry.resume_reading)
