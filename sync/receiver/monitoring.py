"""Monitoring pages of the receiver: `/metrics` for Prometheus, `/health` and `/live`.

They are plain HTTP on a separate address and contain no secrets and no names of gateways.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from sync.common.metrics import CONTENT_TYPE, exposition
from sync.receiver.disk_quota import DiskQuota
from sync.receiver.gateways import GatewayRegistry
from sync.receiver.incoming_files import PartialUploads
from sync.receiver.listener import ConnectionRegistry
from sync.receiver.metrics import PREFIX, Metrics, gauges
from sync.receiver.pki import expires_at
from sync.receiver.remote_landing import RemoteLanding
from sync.receiver.threads import ThreadRunner
from sync.receiver.uploads import Uploads
from sync.segment import MAX_FILE


@dataclass(frozen=True, slots=True)
class MonitoringPages:
    """`/metrics`, `/health` and `/live`.

    `remote` is the landing if it is not in the fleet folder. `certificate` is the server
    certificate; None behind a proxy.
    """

    metrics: Metrics
    uploads: Uploads
    connections: ConnectionRegistry
    partials: PartialUploads
    quota: DiskQuota
    remote: RemoteLanding | None
    gateways: GatewayRegistry
    certificate: Path | None
    in_thread: ThreadRunner

    def application(self) -> web.Application:
        """Return the aiohttp application with its routes."""
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/health", self._health)
        app.router.add_get("/live", self._live)
        return app

    async def _metrics(self, _request: web.Request) -> web.Response:
        text = await self.in_thread(self._exposition)
        return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})

    async def _health(self, _request: web.Request) -> web.Response:
        """Answer 200 if segments of any size are accepted, else 503.

        The status is `stopping`, `full` if the disk or the landing is, or `away` if the object
        store is away and the spool has no room.
        """
        state = "ok"
        if self.uploads.stopping:
            state = "stopping"
        elif self.remote is not None and not self.remote.is_accepting(MAX_FILE):
            state = "away"
        elif not await self.in_thread(self._has_room):
            state = "full"
        return web.json_response({"status": state}, status=200 if state == "ok" else 503)

    async def _live(self, _request: web.Request) -> web.Response:
        """Answer 200, because the process answers. A restart makes no room on a full disk."""
        return web.json_response({"status": "live"})

    def _has_room(self) -> bool:
        try:
            self.quota.require(MAX_FILE)
        except OSError:
            return False
        return True

    def _exposition(self) -> str:
        enrolled = sum(record.revoked is None for record in self.gateways.survey().records)
        current = gauges(
            self.connections.counts(),
            self.uploads.count,
            self.partials.sizes(),
            self.quota.free(),
            self.remote.spooled_bytes() if self.remote else 0,
            expires_at(self.certificate) if self.certificate else None,
        )
        return exposition(PREFIX, [*self.metrics.families(enrolled), *current])


@contextlib.asynccontextmanager
async def serve_monitoring(pages: MonitoringPages, listener: socket.socket) -> AsyncIterator[None]:
    """Serve the pages at the socket `listener` while the context lasts; then close the socket."""
    runner = web.AppRunner(pages.application(), access_log=None)
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        yield
    finally:
        await runner.cleanup()
