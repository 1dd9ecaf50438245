"""A gateway's listeners in the test's own process, with real sockets, store and folder.

For situations that a separate process cannot be brought into, such as a database that is locked at
a certain moment, or a failing feature.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

from edge.config import load
from edge.config.load import Address
from edge.engine.dispatch.hooks import new_context
from edge.engine.store import database
from edge.engine.store.group_commit import Store, UnitLimits
from edge.engine.time.clock import Clock
from edge.routing.xmpp.router import Router
from edge.server.endpoints import Endpoints
from edge.server.mqtt.listener import MqttListener
from edge.server.mqtt.traffic import Traffic
from edge.server.refusal_counters import RefusalCounters
from edge.server.server_context import ServerContext
from edge.server.xmpp.listener import XmppListener
from edge.server.xmpp.session import XmppSession
from tests.helpers.gateway import Gateway, bind_session, log_in
from tests.helpers.xmpp import Client


class InProcessGateway(NamedTuple):
    gateway: Gateway
    store: Store
    router: Router
    refusals: RefusalCounters
    port: int
    context: ServerContext
    endpoints: Endpoints
    listener: XmppListener
    mqtt: Address

    def session(self, full: str) -> XmppSession | None:
        sessions = self.listener._registry.sessions()
        return next((session for session in sessions if session.full == full), None)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the database as another process does."""
        other = sqlite3.connect(self.gateway.folder / database.FILE_NAME, isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
            yield
            other.execute("ROLLBACK")
        finally:
            other.close()

    async def log_in(self, user: str, from_: str = "") -> Client:
        """Connect, from the address `from_` if it is set, and log in without TLS."""
        return await log_in(self.port, user, from_=from_)

    async def bind_session(self, user: str, resource: str = "fw", from_: str = "") -> Client:
        return await bind_session(self.port, user, resource, from_)


@asynccontextmanager
async def in_process(
    folder: Path, *names: str, **options: object
) -> AsyncIterator[InProcessGateway]:
    """Open the listeners of a gateway with these devices."""
    gateway = Gateway(folder / "gateway", *names, require_tls=False, **options)
    gateway.configure_section("mqtt", listen="127.0.0.1:0", require_tls=False)
    settings = load.load(gateway.folder)
    limits = settings.limits
    bounds = UnitLimits(limits.waiting_units, limits.waiting_bytes)
    store = await Store.open(gateway.folder / database.FILE_NAME, Clock(0.0), bounds)
    hooks_context = new_context(
        settings.gateway.domain,
        limits,
        settings.xmpp,
        settings.pubsub,
        uplink=settings.uplink,
        readings=settings.readings,
    )
    router = Router(hooks_context)
    refusals = RefusalCounters()
    context = ServerContext(gateway.folder, settings, store, router.context, refusals)
    listener = XmppListener(context, router, settings.listen, settings.listen_tls)
    mqtt = MqttListener(context, settings.listen_mqtt, [], Traffic())
    endpoints = Endpoints(context, [listener, mqtt])
    places = dict(reversed(await endpoints.start()))
    try:
        port, at = places["xmpp"].port, places["mqtt"]
        yield InProcessGateway(
            gateway, store, router, refusals, port, context, endpoints, listener, at
        )
    finally:
        await endpoints.stop(5.0)
        await store.close()
