"""The front door: the listening sockets, and what all sessions share.

What a connection does with its bytes is `connection`'s.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Final

from edge.config.load import Address, Config
from edge.engine import meta, sessions
from edge.engine.group_commit import Store
from edge.engine.router import Router
from edge.errors import ConfigError, StoreError
from edge.server import tls, usage
from edge.server.connection import Connection
from edge.server.refusal_counters import Tally
from edge.server.registry import Registry
from edge.server.session import Session
from edge.server.shared import Shared
from edge.server.store_errors import rule
from edge.server.tls import Contexts
from edge.server.tls_client_hello import Hello

QUEUE: Final = 512
"""Connections that the kernel accepts for us while we are busy: all of a site after a power cut."""


LOOK_AGAIN: Final = 5.0
"""Seconds after which revoked accounts are looked for again, where the store could not do it."""


class Listener:
    """The front door for devices, by STARTTLS and by direct TLS (XEP-0368)."""

    def __init__(
        self, folder: Path, settings: Config, store: Store, router: Router, tally: Tally
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._store = store
        self._router = router
        self._tally = tally
        self._registry = Registry(settings.limits)
        self._servers: list[asyncio.Server] = []
        self._shared: Shared | None = None

    async def start(self) -> list[tuple[str, Address]]:
        """Listen; returns what was bound; raises `ConfigError` if an address cannot be bound."""
        tls.bound_buffers()
        contexts = Contexts(self._folder, lambda: self._tally.add("certificate_files"))
        decoy = await self._store.read(lambda tx: meta.read_bytes(tx, meta.DECOY))
        shared = self._shared = Shared(
            self._settings,
            self._store,
            self._registry,
            self._router,
            contexts,
            decoy,
            self._tally,
        )
        self._store.on_room = self._registry.read_on
        self._store.on_sends = self._registry.deliver
        self._store.on_changed = self._changed
        places: list[tuple[str, Address]] = []
        for name, option, wanted in (
            ("xmpp", "listen", self._settings.listen),
            ("xmpps", "listen_tls", self._settings.listen_tls),
        ):
            for address in wanted:
                bound = await self._listen(shared, option, address)
                places += ((name, one) for one in bound)
        return places

    async def _listen(self, shared: Shared, option: str, wanted: Address) -> list[Address]:
        """Listen on all that an address stands for: a name may be of both families."""

        def protocol() -> asyncio.BaseProtocol:
            if option == "listen":
                return Connection(shared)
            return Hello(Connection(shared, direct=True), self._tally)

        try:
            server = await shared.loop.create_server(
                protocol,
                wanted.host,
                wanted.port,
                backlog=QUEUE,
            )
        except (OSError, UnicodeError) as error:  # a host name that IDNA refuses
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"xmpp.{option} {wanted} cannot be bound: {reason}") from error
        self._servers.append(server)
        return [Address(*bound.getsockname()[:2]) for bound in server.sockets]

    def _changed(self) -> None:
        """See to what another process has changed: what fails here is seen with the next look."""
        self._look_for_revoked()
        self._store.submit(self._router.run_external_change, lambda _outcome: None)

    def _look_for_revoked(self) -> None:
        """End the sessions whose account was removed or revoked: another process changes that."""

        def answer(outcome: list[int] | StoreError) -> None:
            if isinstance(outcome, StoreError):
                self._tally.add(rule(outcome))
                asyncio.get_running_loop().call_later(LOOK_AGAIN, self._look_for_revoked)
                return
            for generation in outcome:
                self._registry.end(generation, "not-authorized", "the account is revoked")

        self._store.submit(sessions.unprovisioned, answer)

    @property
    def up(self) -> bool:
        """Whether devices can connect."""
        return any(server.is_serving() for server in self._servers)

    def used(self) -> dict[str, int]:
        """Tell how much of the limits of connections, sessions and buffers is used now."""
        return {} if self._shared is None else usage.used(self._shared)

    def session(self, full: str) -> Session | None:
        """Return the session of a full JID, if there is one."""
        return next((s for s in self._registry.sessions() if s.full == full and not s.over), None)

    async def stop(self, patience: float) -> None:
        """Accept nobody more and end the sessions; waits `patience` seconds for them at most."""
        for server in self._servers:
            server.close()
        if self._shared is not None:
            self._shared.lifecycle.stop()
        self._registry.end_all("system-shutdown")
        with suppress(TimeoutError):
            await asyncio.wait_for(self._registry.empty.wait(), patience)
        if self._shared is not None:
            self._shared.close()
