"""The listening sockets for devices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from edge.config.load import Address, Config
from edge.engine import meta, sessions
from edge.engine.group_commit import Store
from edge.engine.router import Router
from edge.errors import StoreError
from edge.features.accounts.store import known_logins
from edge.ops.control import ConnectedSession
from edge.ops.listen_error import listen_error
from edge.server import tls
from edge.server.connection import Connection
from edge.server.refusal_counters import RefusalCounters
from edge.server.registry import Registry
from edge.server.server_context import ServerContext
from edge.server.store_errors import refusal_rule
from edge.server.tls import TlsContexts, TlsServer
from edge.server.tls_client_hello import ClientHelloReader

BACKLOG: Final = 512
"""Maximum connections that the kernel queues while the process is busy: all devices of a site after
a power cut."""

IDLE_TIME: Final = 30.0
"""Seconds between two checks of all connections; parsers without input since the last check are
freed."""

RETRY_INTERVAL: Final = 5.0
"""Seconds after which the handling of changes by another process is repeated if it failed."""


class Listener:
    """The server for devices, with STARTTLS and with direct TLS (XEP-0368)."""

    def __init__(
        self,
        folder: Path,
        settings: Config,
        store: Store,
        router: Router,
        refusals: RefusalCounters,
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._store = store
        self._router = router
        self._refusals = refusals
        self._registry = Registry(settings.limits)
        store.on_room = self._registry.resume_reading
        store.on_sends = self._registry.deliver
        self._servers: list[asyncio.Server] = []
        self._context: ServerContext | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._change_timer: asyncio.TimerHandle | None = None

    async def start(self) -> list[tuple[str, Address]]:
        """Listen and return the bound addresses; raises `ConfigError` if one cannot be bound."""
        tls.limit_buffers()
        contexts = TlsContexts(
            self._folder,
            self._settings.gateway.domain,
            lambda: self._refusals.add("certificate_files"),
        )
        context = self._context = ServerContext(
            self._settings,
            self._store,
            self._router,
            TlsServer(contexts, self._settings.limits),
            await self._store.read(lambda tx: meta.read_bytes(tx, meta.DECOY)),
            self._refusals,
        )
        for source, account in await self._store.read(known_logins.list_all):
            context.throttle.add_known(source, account)
        self._store.on_changed = self._on_external_change
        self._store.on_answered = context.flush
        addresses: list[tuple[str, Address]] = []
        for name, option, wanted in (
            ("xmpp", "listen", self._settings.listen),
            ("xmpps", "listen_tls", self._settings.listen_tls),
        ):
            for address in wanted:
                bound = await self._listen(context, option, address)
                addresses += ((name, one) for one in bound)
        self._release_idle(context.loop)
        return addresses

    def _release_idle(self, loop: asyncio.AbstractEventLoop) -> None:
        self._registry.release_idle()
        self._idle_timer = loop.call_later(IDLE_TIME, self._release_idle, loop)

    async def _listen(self, context: ServerContext, option: str, wanted: Address) -> list[Address]:
        """Listen on all addresses of a host, which may be of several families."""

        def protocol() -> asyncio.BaseProtocol:
            connection = Connection(context, self._registry)
            only_tls = option == "listen_tls"
            return ClientHelloReader(connection, self._refusals, only_tls=only_tls)

        try:
            server = await context.loop.create_server(
                protocol, wanted.host, wanted.port, backlog=BACKLOG
            )
        except (OSError, UnicodeError) as error:  # UnicodeError: IDNA refuses the host name
            raise listen_error("xmpp", option, wanted, error) from error
        self._servers.append(server)
        return [Address(*bound.getsockname()[:2]) for bound in server.sockets]

    def _on_external_change(self) -> None:
        """Handle changes of the database by another process: end the sessions of revoked accounts,
        and run the features' hooks. If either fails, both are repeated after `RETRY_INTERVAL`."""

        def repeat_failed(outcome: object) -> None:
            if isinstance(outcome, StoreError):
                self._refusals.add(refusal_rule(outcome))
                self._cancel_change_timer()
                loop = asyncio.get_running_loop()
                self._change_timer = loop.call_later(RETRY_INTERVAL, self._on_external_change)

        def end_sessions(outcome: list[int] | StoreError) -> None:
            repeat_failed(outcome)
            if not isinstance(outcome, StoreError):
                for generation in outcome:
                    self._registry.end(generation, "not-authorized", "the account was revoked")

        self._cancel_change_timer()
        self._store.submit(sessions.unprovisioned, end_sessions, heavy=True)
        self._store.submit(self._router.run_external_change, repeat_failed, heavy=True)

    def _cancel_change_timer(self) -> None:
        if self._change_timer is not None:
            self._change_timer.cancel()

    def prepare_reload(self) -> Callable[[], None]:
        """Check the certificates and load them again; return a function that puts them into use.

        Raises `SetupError`.
        """
        return (lambda: None) if self._context is None else self._context.tls.prepare_reload()

    @property
    def up(self) -> bool:
        """Return whether devices can connect."""
        return any(server.is_serving() for server in self._servers)

    @property
    def certificate_error(self) -> str | None:
        """Return why the present certificate files are not used, if that is so."""
        return None if self._context is None else self._context.tls.certificate_error

    @property
    def link_error(self) -> str | None:
        """Return `None`: a listener has no link, unlike a component."""
        return None

    def used(self) -> dict[str, int]:
        """Return how much of each limit is in use, by the name of the limit's option.

        A limit on each session has the value of the session that uses most of it. `paused` is the
        number of connections that are paused by their rate limit.
        """
        context, registry = self._context, self._registry
        if context is None:
            return {}
        waiting, sessions = context.store.waiting, registry.sessions()
        per_account, per_source = registry.largest_groups()
        unacknowledged = context.unacknowledged_bytes + context.returning_bytes
        return {
            "sessions": registry.session_count,
            "sessions_per_account": per_account,
            "sessions_per_address": per_source,
            "unauthenticated": len(registry.unauthenticated),
            "unauthenticated_per_address": registry.unauthenticated.largest_group(),
            "handshakes": context.tls.active_handshakes,
            "paused": context.paused_connections,
            "send_buffer": max((s.buffered_bytes for s in sessions), default=0),
            "session_units": max((s.in_flight for s in sessions), default=0),
            "session_bytes": max((s.in_flight_bytes for s in sessions), default=0),
            "unacknowledged_stanzas": max((s.unacknowledged_stanzas for s in sessions), default=0),
            "unacknowledged_bytes": max((s.unacknowledged_bytes for s in sessions), default=0),
            "unacknowledged_total_bytes": unacknowledged,
            "waiting_units": waiting.units,
            "waiting_bytes": waiting.bytes,
        }

    def connected_sessions(self, wall: int) -> list[ConnectedSession]:
        """Return the sessions of devices; `wall` is the present time in ms since 1970."""
        if self._context is None:
            return []
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

    async def stop(self, patience: float) -> None:
        """Stop listening and end the sessions; waits at most `patience` seconds for them."""
        for server in self._servers:
            server.close()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._cancel_change_timer()
        if self._context is not None:
            self._context.lifecycle.stop()
        self._registry.end_all("system-shutdown")
        with suppress(TimeoutError):
            await asyncio.wait_for(self._registry.no_connections.wait(), patience)
        if self._context is not None:
            self._context.close()
