"""The listening sockets for devices."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from edge.config.load import Address
from edge.ops.gateway.control import ConnectedSession
from edge.ops.machine.listen_error import listen_error
from edge.server.connection import Connection
from edge.server.fronts import Front
from edge.server.registry import Registry
from edge.server.server_context import ServerContext
from edge.server.tls import TlsServer
from edge.server.tls_client_hello import ClientHelloReader

BACKLOG: Final = 512
"""Maximum connections that the kernel queues while the process is busy: all devices of a site after
a power cut."""

IDLE_TIME: Final = 30.0
"""Seconds between two checks of all connections; parsers without input since the last check are
freed."""


class Listener(Front):
    """The front for devices by XMPP, with STARTTLS and with direct TLS (XEP-0368).

    Args:
        listen: the addresses for connections that begin in plain text.
        listen_tls: the addresses for connections that begin with TLS.
    """

    def __init__(
        self, context: ServerContext, listen: Sequence[Address], listen_tls: Sequence[Address]
    ) -> None:
        self._context = context
        self._listen = listen
        self._listen_tls = listen_tls
        self._registry = Registry(context.outputs, context.admission)
        self._servers: list[asyncio.Server] = []
        self._idle_timer: asyncio.TimerHandle | None = None
        context.store.on_room.append(self._registry.resume_reading)

    async def start(self) -> list[tuple[str, Address]]:
        """Listen and return the bound addresses; raises `ConfigError` if one cannot be bound."""
        tls_server = await self._context.prepare_logins()
        addresses: list[tuple[str, Address]] = []
        for name, option, wanted in (
            ("xmpp", "listen", self._listen),
            ("xmpps", "listen_tls", self._listen_tls),
        ):
            for address in wanted:
                bound = await self._bind(tls_server, option, address)
                addresses += ((name, one) for one in bound)
        self._release_idle()
        return addresses

    def _release_idle(self) -> None:
        self._registry.release_idle()
        self._idle_timer = self._context.loop.call_later(IDLE_TIME, self._release_idle)

    async def _bind(self, tls_server: TlsServer, option: str, wanted: Address) -> list[Address]:
        """Listen on all addresses of a host, which may be of several families."""
        context = self._context

        def protocol() -> asyncio.BaseProtocol:
            connection = Connection(context, tls_server, self._registry)
            only_tls = option == "listen_tls"
            return ClientHelloReader(connection, context.refusals, only_tls=only_tls)

        try:
            server = await context.loop.create_server(
                protocol, wanted.host, wanted.port, backlog=BACKLOG
            )
        except (OSError, UnicodeError) as error:  # UnicodeError: IDNA refuses the host name
            raise listen_error("xmpp", option, wanted, error) from error
        self._servers.append(server)
        return [Address(*bound.getsockname()[:2]) for bound in server.sockets]

    @property
    def up(self) -> bool:
        """Return whether devices can connect."""
        return any(server.is_serving() for server in self._servers)

    def used(self) -> dict[str, int]:
        """Return how much of each limit is in use (`Front.used`)."""
        context, sessions = self._context, self._registry.sessions()
        unauthenticated = context.admission.unauthenticated
        _, per_source = context.admission.largest_groups()
        handshakes = 0 if context.tls is None else context.tls.active_handshakes
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
