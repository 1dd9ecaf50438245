"""A webhook that records the alerts it gets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

WAIT_S = 30.0


@dataclass
class WebhookServer:
    """A server that answers with the next of `answers`, then with 204; 0 closes the connection.

    Before it answers, it kills the process `victim`, unless that is 0.
    """

    answers: deque[int] = field(default_factory=deque)
    headers: dict[str, str] = field(default_factory=dict)
    victim: int = 0
    received_alerts: list[dict[str, Any]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    url: str = ""
    alert_received: asyncio.Event = field(default_factory=asyncio.Event)

    async def receive(self, request: web.Request) -> web.Response:
        """Record an alert and answer."""
        self.received_alerts.append(json.loads(await request.read()))
        self.tokens.append(request.headers.get("Authorization", ""))
        if self.victim:
            os.kill(self.victim, signal.SIGKILL)
        self.alert_received.set()
        status = self.answers.popleft() if self.answers else 204
        if not status:
            assert request.transport is not None
            request.transport.abort()
        return web.Response(status=status or 204, headers=self.headers)

    async def wait(self, number: int) -> None:
        """Wait until this number of alerts was received."""
        async with asyncio.timeout(WAIT_S):
            while len(self.received_alerts) < number:
                self.alert_received.clear()
                await self.alert_received.wait()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Listen at `url` in the block."""
        app = web.Application()
        app.router.add_post("/hook", self.receive)
        app.router.add_route("*", "/elsewhere", self.receive)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0][:2]
            self.url = f"http://{host}:{port}/hook"
            yield
        finally:
            await runner.cleanup()
