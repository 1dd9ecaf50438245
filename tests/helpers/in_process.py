"""A gateway's front door in the test's own process: real sockets, store and folder.

For what a process from outside cannot be brought to: a database that is locked at a certain moment,
a feature that fails. Its TLS certificate is real, and nobody needs it.
"""

from __future__ import annotations

import sqlite3
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from edge import config
from edge.handlers.router import Router
from edge.net.clock import Clock
from edge.net.listener import Listener
from edge.net.tally import Tally
from edge.store import database
from edge.store.commit import Bounds, Store
from tests.helpers.gateway import PASSWORD, Gateway
from tests.helpers.xmpp import Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


class InProcess(NamedTuple):
    """What a test may touch of it."""

    gateway: Gateway
    store: Store
    router: Router
    tally: Tally
    port: int
    front: Listener

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep the database from the gateway, as another process would."""
        other = sqlite3.connect(self.gateway.folder / database.FILE_NAME, isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
            yield
            other.execute("ROLLBACK")
        finally:
            other.close()

    async def known(self, user: str) -> Client:
        """Connect and log in, without TLS."""
        client = await Client.connect(self.port)
        await client.element()
        assert await client.authenticate("SCRAM-SHA-256", user, PASSWORD) == "success"
        return client

    async def bound(self, user: str, resource: str = "fw") -> Client:
        """Connect, log in and bind, without TLS."""
        client = await self.known(user)
        await client.bind(resource)
        return client


@asynccontextmanager
async def in_process(folder: Path, *names: str, **options: object) -> AsyncIterator[InProcess]:
    """Open the front door of a gateway with these devices."""
    gateway = Gateway(folder / "gateway", *names, require_tls=False, **options)
    settings = config.load(gateway.folder)
    limits = settings.limits
    bounds = Bounds(limits.waiting_units, limits.waiting_bytes)
    store = await Store.open(gateway.folder / database.FILE_NAME, Clock(0.0), bounds)
    router = Router(
        settings.gateway.domain,
        limits,
        settings.xmpp,
        settings.pubsub,
        topics=settings.uplink.topics,
    )
    tally = Tally()
    front = Listener(gateway.folder, settings, store, router, tally)
    places = await front.start()
    try:
        yield InProcess(gateway, store, router, tally, dict(reversed(places))["xmpp"].port, front)
    finally:
        await front.stop(5.0)
        await store.close()
