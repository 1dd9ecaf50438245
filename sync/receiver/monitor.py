"""Tells a monitoring system how the receiver does: `/metrics` for Prometheus, and `/health`.

Plain HTTP on an address of its own, without any secret and without names of gateways.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from sync.common.metrics import CONTENT_TYPE, Family, exposition, labels, single
from sync.receiver.disk_quota import DiskQuota
from sync.receiver.gateways import GatewayRegistry
from sync.receiver.listener import ConnectionRegistry
from sync.receiver.metrics import PREFIX, Metrics
from sync.receiver.partial_uploads import PartialUploads
from sync.receiver.pki import ends_at
from sync.receiver.threads import ThreadRunner
from sync.receiver.uploads import Uploads
from sync.segment import MAX_FILE

if TYPE_CHECKING:
    import socket


@dataclass(frozen=True, slots=True)
class MonitoringPages:
    """What is looked at when somebody asks. `certificate` is the one that is shown, if any is."""

    metrics: Metrics
    bodies: Uploads
    connections: ConnectionRegistry
    partials: PartialUploads
    room: DiskQuota
    gateways: GatewayRegistry
    certificate: Path | None
    in_thread: ThreadRunner

    def application(self) -> web.Application:
        """The two pages."""
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/health", self._health)
        return app

    async def _metrics(self, request: web.Request) -> web.Response:
        del request
        text = await self.in_thread(self._text)
        return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})

    async def _health(self, request: web.Request) -> web.Response:
        """200 while segments of any size are taken; 503 when it stops, or has too little room."""
        del request
        state = "ok"
        if self.bodies.stopping:
            state = "stopping"
        elif not await self.in_thread(self._has_room):
            state = "full"
        return web.json_response({"status": state}, status=200 if state == "ok" else 503)

    def _has_room(self) -> bool:
        try:
            self.room.require(MAX_FILE)
        except OSError:
            return False
        return True

    def _text(self) -> str:
        enrolled = sum(record.revoked is None for record in self.gateways.survey().records)
        return exposition(PREFIX, [*self.metrics.families(enrolled), *self._gauges()])

    def _gauges(self) -> Iterator[Family]:
        sizes = self.partials.sizes()
        counts = self.connections.counts().items()
        there = [(labels(who=who), float(count)) for who, count in counts]
        yield Family("connections", "gauge", "Connections, by who has them.", there)
        yield single("bodies", "gauge", "Bodies on their way in.", self.bodies.count)
        yield single("partials", "gauge", "Beginnings of bodies that are kept.", len(sizes))
        yield single("partial_bytes", "gauge", "Bytes of those.", sum(sizes))
        yield single("disk_free_bytes", "gauge", "Bytes free for segments.", self.room.free())
        if self.certificate is not None:
            meaning = "When the receiver's certificate ends, in seconds since 1970 UTC."
            ends = ends_at(self.certificate)
            yield single("certificate_end_seconds", "gauge", meaning, ends)


@contextlib.asynccontextmanager
async def serve_monitoring(
    monitor: MonitoringPages, listener: socket.socket
) -> AsyncIterator[None]:
    """Answer at `listener` while the context lasts, and close it."""
    runner = web.AppRunner(monitor.application(), access_log=None)
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        yield
    finally:
        await runner.cleanup()
