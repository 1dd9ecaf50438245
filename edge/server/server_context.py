"""The state that the endpoints of the gateway, their connections and their sessions share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Protocol

from edge.config.load import Config
from edge.engine.dispatch.hooks import Context
from edge.engine.dispatch.outputs import Outputs
from edge.engine.sessions.session_lifecycle import SessionLifecycle
from edge.engine.store import meta
from edge.engine.store.group_commit import Store
from edge.features.accounts.store import known_logins
from edge.server.admission import Admission
from edge.server.front_processes import FrontProcesses
from edge.server.login_throttle import LoginThrottle
from edge.server.refusal_counters import RefusalCounters, RefusalLog
from edge.server.tls import TlsContexts, TlsServer
from edge.server.wire import WireContext

CHECK_INTERVAL: Final = 1.0
"""Seconds between two calls of `PeerCheck.check_peer` for each session that waits for its peer."""


RESERVED: Final = 4
"""Divisor of `limits.unacknowledged_total_bytes` that gives the part reserved for the gateway's
answers and for messages that are stored in the database."""


class Flushable(Protocol):
    """A connection with output to flush."""

    def flush(self) -> None:
        """Write the output."""


class PeerCheck(Protocol):
    """A session whose peer is checked regularly while the peer must read or acknowledge."""

    def check_peer(self) -> bool:
        """Check that the peer reads and acknowledges; return whether to check it again later."""


class ServerContext:
    """The shared state of the server; created once, on the event loop.

    Attributes:
        engine: what the features have registered, and their configuration.
        outputs: the receivers of what committed units of work send.
        admission: the limits on the numbers of connections and sessions.
        tls: the server's side of TLS, if an endpoint uses it (`prepare_logins`).
        front_processes: the processes that have the sockets of devices, unless this one has them.
        decoy_secret: makes credentials for accounts that do not exist.
        paused_connections: number of connections paused by their rate limit.
        unacknowledged_bytes: unacknowledged bytes of all sessions.
        returning_bytes: bytes of messages of ended sessions that wait to be routed again.
        wires: what the wires share.
        hashing: the thread that hashes passwords and prepares `OffloadedWork`.
    """

    def __init__(
        self,
        folder: Path,
        settings: Config,
        store: Store,
        engine: Context,
        refusals: RefusalCounters,
    ) -> None:
        self.folder = folder
        self.settings = settings
        self.store = store
        self.engine = engine
        self.lifecycle = SessionLifecycle(engine)
        self.outputs = Outputs()
        self.admission = Admission(settings.limits)
        self.tls: TlsServer | None = None
        self.front_processes: FrontProcesses | None = None
        self.decoy_secret = b""
        self.refusals = refusals
        self.refusal_log = RefusalLog(store, engine, refusals)
        self.paused_connections = 0
        self.unacknowledged_bytes = 0
        self.returning_bytes = 0
        self.loop = asyncio.get_running_loop()
        self.wires = WireContext(settings.limits)
        self.hashing = ThreadPoolExecutor(1, thread_name_prefix="hashing")
        self.throttle = LoginThrottle(settings.limits)
        self._to_flush: list[Flushable] = []
        self._to_check: dict[PeerCheck, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        store.on_sends = self.outputs.deliver
        store.on_answered.append(self.flush)

    async def prepare_logins(self, alpn: str) -> TlsServer:
        """Load the certificate and what is known of earlier logins, unless an endpoint has done so.

        `alpn` is the protocol of connections that begin with TLS.

        Raises `SetupError` if the certificate cannot be used, and `StoreError`.
        """
        if self.tls is None:
            contexts = TlsContexts(
                self.folder,
                self.settings.gateway.domain,
                lambda: self.refusals.add("certificate_files"),
            )
            store = self.store
            self.decoy_secret = await store.read(lambda tx: meta.read_bytes(tx, meta.DECOY))
            for source, account in await store.read(known_logins.list_all):
                self.throttle.add_known(source, account)
            self.tls = TlsServer(contexts, self.settings.limits)
            if self.front_processes is not None:
                self.front_processes.watch(contexts)
                self.store.on_changed.append(contexts.refresh)  # a certificate may be revoked
        self.tls.add(alpn)
        return self.tls

    def refresh_certificates(self) -> None:
        """Let front processes use changed certificate files for the next handshake. Without them,
        each handshake looks at the files itself."""
        if self.front_processes is not None and self.tls is not None:
            self.tls.contexts.refresh()

    @property
    def certificate_error(self) -> str | None:
        """Return why the present certificate files are not used, if that is so."""
        return None if self.tls is None else self.tls.certificate_error

    def prepare_reload(self) -> Callable[[], None]:
        """Check the certificates and load them again; return a function that puts them into use.

        Raises `SetupError`.
        """
        return (lambda: None) if self.tls is None else self.tls.prepare_reload()

    def may_relay(self, size: int) -> bool:
        """Return whether there is memory for a message of `size` bytes from one session to another,
        to be kept until the recipient acknowledges it."""
        limit = self.settings.limits.unacknowledged_total_bytes // RESERVED * (RESERVED - 1)
        return self.unacknowledged_bytes + size <= limit

    def schedule_flush(self, connection: Flushable) -> None:
        """Flush a connection in the next iteration of the event loop."""
        if not self._to_flush:
            self.loop.call_soon(self.flush)
        self._to_flush.append(connection)

    def flush(self) -> None:
        """Flush all connections that are scheduled."""
        connections, self._to_flush = self._to_flush, []
        for connection in connections:
            connection.flush()
        if self.front_processes is not None:
            self.front_processes.flush()

    def schedule_check(self, session: PeerCheck) -> None:
        """Call `session.check_peer` each second until it returns False."""
        self._to_check[session] = None
        if self._timer is None:
            self._timer = self.loop.call_later(CHECK_INTERVAL, self._check)

    def _check(self) -> None:
        self._timer = None
        sessions, self._to_check = self._to_check, {}
        for session in sessions:
            if session.check_peer():
                self.schedule_check(session)

    def close(self) -> None:
        """Stop the checks and the hashing thread."""
        self._to_check.clear()
        if self._timer is not None:
            self._timer.cancel()
        self.hashing.shutdown(wait=False, cancel_futures=True)
