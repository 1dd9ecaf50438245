"""The endpoints of the gateway: the ways by which devices reach it. Any number of them run side by
side, of the same protocol or of several.

An endpoint has its connections and sessions; what it shares with the others is in `ServerContext`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Protocol

from edge.config.load import Address
from edge.ops.gateway.control import ConnectedSession, FrontStatus
from edge.server.external_changes import ExternalChanges
from edge.server.server_context import ServerContext


class Endpoint(Protocol):
    """An endpoint, such as the listening sockets of a protocol or the link to another server."""

    async def start(self) -> list[tuple[str, Address]]:
        """Begin to serve devices; return the addresses, with their names in the `ready` line.

        Raises `ConfigError` or `SetupError` if the endpoint cannot serve.
        """

    @property
    def up(self) -> bool:
        """Return whether devices can connect."""

    @property
    def link_error(self) -> str | None:
        """Return why there is no link to another server, if the endpoint needs one."""
        return None

    def used(self) -> dict[str, int]:
        """Return how much of each limit is in use, by the name of the limit's option.

        Of a limit that the endpoints share, this is the use by all. A limit on each session has the
        value of the endpoint's session that uses most of it.
        """

    def connected_sessions(self, wall: int) -> list[ConnectedSession]:
        """Return the sessions of devices; `wall` is the present time in ms since 1970."""

    def prepare_reload(self) -> Callable[[], None]:
        """Check that the present files can be used; return a function that puts them into use.

        Raises `FieldpostError`.
        """
        return lambda: None

    def stop_accepting(self) -> None:
        """Accept no more connections and sessions. It may not have started."""

    async def close(self, patience: float) -> None:
        """End the sessions and close; wait at most `patience` seconds for them."""


class Endpoints:
    """All endpoints of the gateway, as one."""

    def __init__(self, context: ServerContext, endpoints: Sequence[Endpoint]) -> None:
        self._context = context
        self._endpoints = endpoints
        self._changes = ExternalChanges(context)

    async def start(self) -> list[tuple[str, Address]]:
        """Start one endpoint after the other; return the addresses of all.

        Raises what `Endpoint.start` raises; `stop` must be called even then.
        """
        addresses: list[tuple[str, Address]] = []
        for endpoint in self._endpoints:
            addresses += await endpoint.start()
        if self._context.front_processes is not None:
            await self._context.front_processes.start()
        return addresses

    @property
    def up(self) -> bool:
        """Return whether devices can connect to each endpoint."""
        return all(endpoint.up for endpoint in self._endpoints)

    @property
    def processes(self) -> list[FrontStatus]:
        """Return the front processes."""
        processes = self._context.front_processes
        return [] if processes is None else processes.status()

    @property
    def link_error(self) -> str | None:
        """Return why links to other servers are missing, if one is."""
        errors = [
            error for endpoint in self._endpoints if (error := endpoint.link_error) is not None
        ]
        return "; ".join(errors) if errors else None

    @property
    def certificate_error(self) -> str | None:
        """Return why the present certificate files are not used, if that is so."""
        return self._context.certificate_error

    def used(self) -> dict[str, int]:
        """Return how much of each limit is in use, by the name of the limit's option.

        A limit on each session has the value of the session that uses most of it. `paused` is the
        number of connections that are paused by their rate limit.
        """
        used: dict[str, int] = {}
        for endpoint in self._endpoints:
            for name, figure in endpoint.used().items():
                used[name] = max(used.get(name, 0), figure)
        waiting, admission = self._context.store.waiting, self._context.admission
        per_account, _ = admission.largest_groups()
        return used | {
            "sessions": admission.session_count,
            "sessions_per_account": per_account,
            "waiting_units": waiting.units,
            "waiting_bytes": waiting.bytes,
        }

    def connected_sessions(self, wall: int) -> list[ConnectedSession]:
        """Return the sessions of devices; `wall` is the present time in ms since 1970."""
        return [
            session for endpoint in self._endpoints for session in endpoint.connected_sessions(wall)
        ]

    def prepare_reload(self) -> Callable[[], None]:
        """Prepare certificates and endpoints for a reload; return a function that applies it.

        Raises `FieldpostError`.
        """
        prepared = [self._context.prepare_reload()]
        prepared += [endpoint.prepare_reload() for endpoint in self._endpoints]
        if (processes := self._context.front_processes) is not None:
            prepared.append(lambda: processes.set_limits(self._context.settings.limits))

        def apply() -> None:
            for use in prepared:
                use()

        return apply

    async def stop(self, patience: float) -> None:
        """Stop accepting on all endpoints, then end all sessions; wait at most `patience` seconds.

        An endpoint that fails keeps no other from closing; its exception is raised at the end.
        """
        self._changes.stop()
        self._context.lifecycle.stop()
        async with AsyncExitStack() as stack:
            stack.callback(self._context.close)
            stack.push_async_callback(self._end_processes)
            stack.push_async_callback(self._close, patience)
            for endpoint in self._endpoints:
                stack.callback(endpoint.stop_accepting)
            if self._context.front_processes is not None:
                stack.callback(self._context.front_processes.stop_accepting)

    async def _close(self, patience: float) -> None:
        closing = (endpoint.close(patience) for endpoint in self._endpoints)
        for outcome in await asyncio.gather(*closing, return_exceptions=True):
            if outcome is not None:
                raise outcome

    async def _end_processes(self) -> None:
        if self._context.front_processes is not None:
            await self._context.front_processes.close()
