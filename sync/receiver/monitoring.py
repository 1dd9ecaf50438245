"""Monitoring pages of the receiver: `/metrics` for Prometheus, and `/health`.

They are plain HTTP on an address of their own and contain no secrets and no names of gateways.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from sync.common.metrics import CONTENT_TYPE, GAUGE, Family, exposition, labels, single
from sync.receiver.disk_quota import DiskQuota
from sync.receiver.gateways import GatewayRegistry
from sync.receiver.incoming_files import PartialUploads
from sync.receiver.listener import ConnectionRegistry
from sync.receiver.metrics import PREFIX, Metrics
from sync.receiver.pki import expires_at
from sync.receiver.threads import ThreadRunner
from sync.receiver.uploads import Uploads
from sync.segment import MAX_FILE


@dataclass(frozen=True, slots=True)
class MonitoringPages:
    """The two pages. `certificate` is the server certificate; None behind a proxy."""

    metrics: Metrics
    uploads: Uploads
    connections: ConnectionRegistry
    partials: PartialUploads
    quota: DiskQuota
    gateways: GatewayRegistry
    certificate: Path | None
    in_thread: ThreadRunner

    def application(self) -> web.Application:
        """Return the aiohttp application with its routes."""
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/health", self._health)
        return app

    async def _metrics(self, request: web.Request) -> web.Response:
        del request
        text = await self.in_thread(self._exposition)
        return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})

    async def _health(self, request: web.Request) -> web.Response:
        """Answer 200 if segments of any size are accepted, else 503 with `stopping` or `full`."""
        del request
        state = "ok"
        if self.uploads.stopping:
            state = "stopping"
        elif not await self.in_thread(self._has_room):
            state = "full"
        return web.json_response({"status": state}, status=200 if state == "ok" else 503)

    def _has_room(self) -> bool:
        try:
            self.quota.require(MAX_FILE)
        except OSError:
            return False
        return True

    def _exposition(self) -> str:
        enrolled = sum(record.revoked is None for record in self.gateways.survey().records)
        return exposition(PREFIX, [*self.metrics.families(enrolled), *self._gauges()])

    def _gauges(self) -> Iterator[Family]:
        sizes = self.partials.sizes()
        counts = [
            (labels(peer=peer), float(count)) for peer, count in self.connections.counts().items()
        ]
        meaning = "Open connections, by kind of peer."
        yield Family("connections", GAUGE, meaning, counts)
        yield single("uploads_in_progress", GAUGE, "Uploads in progress.", self.uploads.count)
        meaning = "Partial uploads: in progress, or interrupted and kept to be resumed."
        yield single("partial_uploads", GAUGE, meaning, len(sizes))
        yield single("partial_upload_bytes", GAUGE, "Bytes of partial uploads.", sum(sizes))
        meaning = "Free bytes on the landing's file system."
        yield single("disk_free_bytes", GAUGE, meaning, self.quota.free())
        if self.certificate is not None:
            meaning = "Expiry of the receiver's certificate, in seconds since 1970 UTC."
            expiry = expires_at(self.certificate)
            yield single("certificate_expiry_timestamp_seconds", GAUGE, meaning, expiry)


@contextlib.asynccontextmanager
async def serve_monitoring(pages: MonitoringPages, listener: socket.socket) -> AsyncIterator[None]:
    """Serve the pages at `listener` while the context lasts, and close it."""
    runner = web.AppRunner(pages.application(), access_log=None)
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        yield
    finally:
        await runner.cleanup()
