"""slixmpp's own client with its own plugins of publish-subscribe, unchanged, in a test's loop.

It adds what a test needs to wait, and nothing to the protocol. Nothing waits without a bound.
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
"""Seconds for any one answer: generous for two busy cores, and bounded."""

PLUGINS: Final = ("xep_0004", "xep_0030", "xep_0050", "xep_0059", "xep_0060", "xep_0199")
NEWS: Final = (
    "pubsub_publish", "pubsub_retract", "pubsub_purge", "pubsub_delete", "pubsub_config",
    "pubsub_subscription",
)  # fmt: skip


class Peer:
    """A session of slixmpp, and what its plugin of publish-subscribe has told."""

    def __init__(self, jid: str, password: str, ca: Path, service: str) -> None:
        context = ssl.create_default_context(cafile=str(ca))
        self.client: Any = ClientXMPP(jid, password, ssl_context=context)
        self.client.enable_plaintext = False
        self.client.auto_authorize, self.client.auto_subscribe = None, False
        for plugin in PLUGINS:
            self.client.register_plugin(plugin)
        self.pubsub: Any = self.client.plugin["xep_0060"]
        self.service = service
        self._news: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        for name in NEWS:
            self.client.add_event_handler(name, self._hear(name))

    def _hear(self, name: str) -> Any:
        return lambda message: self._news.put_nowait((name, message))

    @property
    def full(self) -> str:
        return str(self.client.boundjid)

    @property
    def bare(self) -> str:
        return str(self.client.boundjid.bare)

    async def news(self, name: str) -> Any:
        """Wait for the next news, which has to be of this kind; returns the event."""
        async with asyncio.timeout(WAIT_S):
            kind, message = await self._news.get()
        assert kind == name, str(message)
        return message["pubsub_event"]

    async def quiet(self) -> None:
        """No news has come that was not asked for."""
        await self.client.plugin["xep_0199"].send_ping(self.client.boundjid.domain, timeout=WAIT_S)
        assert self._news.empty(), [str(self._news.get_nowait()) for _ in range(self._news.qsize())]

    def form(self, **fields: str | list[str]) -> Any:
        """Make a form that is submitted, of fields of publish-subscribe (without their prefix)."""
        form = self.client.plugin["xep_0004"].make_form(ftype="submit")
        for name, value in fields.items():
            form.add_field(var=f"pubsub#{name}", value=value)
        return form

    async def start(self, host: str, port: int) -> None:
        """Connect, log in, and be there."""
        started = asyncio.Event()
        self.client.add_event_handler("session_start", lambda _: started.set())
        self.client.connect(host, port)
        async with asyncio.timeout(WAIT_S):
            await started.wait()
        self.client.send_presence()

    async def stop(self) -> None:
        """End the session, and all that slixmpp runs for it."""
        over = self.client.disconnected
        self.client.disconnect(wait=2.0)
        await asyncio.wait({over}, timeout=WAIT_S)
        if self.client.transport is not None:
            self.client.transport.abort()
        for name in list(self.client.scheduled_events):
            self.client.cancel_schedule(name)
        sending = getattr(self.client, "_run_out_filters", None)
        if sending is not None:
            sending.cancel()


@asynccontextmanager
async def peer(
    jid: str, password: str, ca: Path, address: tuple[str, int], service: str
) -> AsyncIterator[Peer]:
    made = Peer(jid, password, ca, service)
    try:
        await made.start(*address)
        yield made
    finally:
        await made.stop()


async def refused(request: Awaitable[Any]) -> tuple[str, str]:
    """Await a request that has to be refused; returns the error's type and condition."""
    try:
        answer = await request
    except IqError as error:
        return error.etype, error.condition
    raise AssertionError(f"it was not refused: {answer}")
