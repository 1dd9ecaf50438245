"""slixmpp's own client with its own plugins of publish-subscribe, unchanged, in a test's loop.

It adds only functions with which tests wait. Every wait has a timeout.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from slixmpp import ClientXMPP
from slixmpp.exceptions import IqError

WAIT_S: Final = 15.0
"""Seconds to wait for one answer; enough for two busy cores."""

PLUGINS: Final = ("xep_0004", "xep_0030", "xep_0050", "xep_0059", "xep_0060", "xep_0199")
EVENTS: Final = (
    "pubsub_publish", "pubsub_retract", "pubsub_purge", "pubsub_delete", "pubsub_config",
    "pubsub_subscription",
)  # fmt: skip


class Peer:
    """A session of slixmpp, and the events of its publish-subscribe plugin."""

    def __init__(self, jid: str, password: str, ca: Path, service: str) -> None:
        context = ssl.create_default_context(cafile=str(ca))
        self.client: Any = ClientXMPP(jid, password, ssl_context=context)
        self.client.enable_plaintext = False
        self.client.auto_authorize, self.client.auto_subscribe = None, False
        for plugin in PLUGINS:
            self.client.register_plugin(plugin)
        self.pubsub: Any = self.client.plugin["xep_0060"]
        self.service = service
        self._events: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        for name in EVENTS:
            self.client.add_event_handler(name, self._recorder(name))

    def _recorder(self, name: str) -> Any:
        return lambda message: self._events.put_nowait((name, message))

    @property
    def full(self) -> str:
        return str(self.client.boundjid)

    @property
    def bare(self) -> str:
        return str(self.client.boundjid.bare)

    async def next_event(self, name: str) -> Any:
        """Wait for the next event, which must be of this kind; return its payload."""
        async with asyncio.timeout(WAIT_S):
            kind, message = await self._events.get()
        assert kind == name, str(message)
        return message["pubsub_event"]

    async def assert_no_event(self) -> None:
        """Assert that no further event has been received."""
        await self.client.plugin["xep_0199"].send_ping(self.client.boundjid.domain, timeout=WAIT_S)
        assert self._events.empty(), self._events

    def form(self, **fields: str | list[str]) -> Any:
        """Make a submitted form with publish-subscribe fields (names without their prefix)."""
        form = self.client.plugin["xep_0004"].make_form(ftype="submit")
        for name, value in fields.items():
            form.add_field(var=f"pubsub#{name}", value=value)
        return form

    async def start(self, host: str, port: int) -> None:
        """Connect, log in, and send initial presence."""
        started = asyncio.Event()
        self.client.add_event_handler("session_start", lambda _: started.set())
        self.client.connect(host, port)
        async with asyncio.timeout(WAIT_S):
            await started.wait()
        self.client.send_presence()

    async def stop(self) -> None:
        """End the session and all tasks that slixmpp runs for it."""
        disconnected = self.client.disconnected
        self.client.disconnect(wait=2.0)
        await asyncio.wait({disconnected}, timeout=WAIT_S)
        if self.client.transport is not None:
            self.client.transport.abort()
        for name in list(self.client.scheduled_events):
            self.client.cancel_schedule(name)
        filter_task = getattr(self.client, "_run_out_filters", None)
        if filter_task is not None:
            filter_task.cancel()


@asynccontextmanager
async def peer(
    jid: str, password: str, ca: Path, address: tuple[str, int], service: str
) -> AsyncIterator[Peer]:
    session = Peer(jid, password, ca, service)
    try:
        await session.start(*address)
        yield session
    finally:
        await session.stop()


async def refused(request: Awaitable[Any]) -> tuple[str, str]:
    """Await a request that must be refused; return the error's type and condition."""
    try:
        answer = await request
    except IqError as error:
        return error.etype, error.condition
    raise AssertionError(f"it was not refused: {answer}")
