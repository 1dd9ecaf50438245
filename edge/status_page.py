"""The status page as a part of the gateway; a reload can start, move or stop it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from edge.config.load import Address, Config, parse_address
from edge.engine.store.database import Transaction
from edge.errors import ConfigError
from edge.reload import Change

if TYPE_CHECKING:  # imported when the page is configured: without one it takes no memory
    from edge.web.server import Server
    from edge.web.status_snapshot import SnapshotReader, Sources


class StatusPage:
    """The status page, if `[web] listen` is set.

    Args:
        settings: the configuration in use.
        sources: returns the parts of the gateway from which the figures are read.
        on_done: called with each task of the page that ends; the gateway stops if it failed.
    """

    def __init__(
        self,
        settings: Config,
        sources: Callable[[], Sources],
        on_done: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._settings = settings
        self._sources = sources
        self._on_done = on_done
        self._reader: SnapshotReader | None = None
        self._server: Server | None = None
        self._lag_task: asyncio.Task[None] | None = None

    async def start(self) -> list[Address]:
        """Listen on the configured address, if any, and return the bound addresses.

        Raises `ConfigError`.
        """
        if not self._settings.web.listen:
            return []
        server = self._new_server(self._settings)
        addresses = await server.start(parse_address(self._settings.web.listen))
        self._use(server)
        return addresses

    def keep_events(self, tx: Transaction) -> None:
        """Keep a transaction's events for the status page if it is on; called before commit."""
        if self._server is not None and self._reader is not None:
            self._reader.keep_events(tx)

    async def stop(self) -> None:
        """Stop the status page."""
        server, self._server = self._server, None
        if server is not None:
            server.stop()
        task, self._lag_task = self._lag_task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):  # handled by `on_done`
                await task

    async def prepare_reload(self, target: Config) -> Change:
        """Listen on the new address, if the address changes, and return the change.

        Raises `ConfigError`.
        """
        if target.web.listen == self._settings.web.listen:
            return Change(self._update_names)
        if not target.web.listen:
            return Change(self._close)
        wanted, server = parse_address(target.web.listen), self._new_server(target)
        replaced = self._server_on(wanted.port)
        if replaced is not None:
            replaced.stop()
        try:
            await server.start(wanted)
        except ConfigError:
            await self._restart(replaced)
            raise

        async def apply() -> None:
            await self.stop()
            self._use(server)

        async def discard() -> None:
            server.stop()
            await self._restart(replaced)

        return Change(apply, discard)

    async def _close(self) -> None:
        await self.stop()
        self._reader = None  # it misses events from now on

    def _server_on(self, port: int) -> Server | None:
        """Return the running server if it uses `port`, whatever its host; otherwise `None`."""
        used = self._settings.web.listen
        return self._server if used and port and parse_address(used).port == port else None

    async def _restart(self, server: Server | None) -> None:
        if self._server is None:
            self._reader = None  # no page runs
        if server is not None:
            await server.start(parse_address(self._settings.web.listen))

    async def _update_names(self) -> None:
        if self._server is not None:
            self._server.is_known = self._known_hosts(self._settings)

    def _new_server(self, settings: Config) -> Server:
        from edge.web.server import Server
        from edge.web.site import Site
        from edge.web.status_snapshot import SnapshotReader

        sources = self._sources()
        if self._reader is None:
            self._reader = SnapshotReader(sources)
        respond = Site(self._reader).respond
        return Server(respond, self._known_hosts(settings))

    @staticmethod
    def _known_hosts(settings: Config) -> Callable[[str], bool]:
        from edge.web.hosts import KnownHosts

        return KnownHosts(settings.web.names, socket.gethostname()).is_known

    def _use(self, server: Server) -> None:
        assert self._reader is not None  # noqa: S101
        self._server = server
        loop = asyncio.get_running_loop()
        self._lag_task = loop.create_task(self._reader.measure_lag(), name="web")
        self._lag_task.add_done_callback(self._on_done)
