"""The pages by path: `/` for people, `/health` for supervisors, `/metrics` for Prometheus."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import msgspec

from edge.engine.group_commit import Store
from edge.errors import StoreError
from edge.web import http, metrics, page
from edge.web.http import Response
from edge.web.status_snapshot import SnapshotReader
from sync.common.metrics import CONTENT_TYPE

STORE_TIMEOUT: Final = 3.0
"""Maximum seconds of an empty transaction; above this, the health check fails.

A slow card needs tenths of a second.
"""

_JSON: Final = "application/json"
_HTML: Final = "text/html; charset=utf-8"


class Site:
    """The status page, health check and metrics, by path."""

    def __init__(self, reader: SnapshotReader, store: Store) -> None:
        self._reader = reader
        self._store = store

    async def respond(self, path: str) -> Response:
        """Return the response for a path."""
        if path == "/health":
            return await self._health()
        if path not in ("/", "/metrics"):
            return http.status_response(404)
        try:
            snapshot = await self._reader.snapshot()
        except StoreError:  # the query takes too long, or the database is closed
            return http.status_response(503)
        process = self._reader.process()
        if path == "/metrics":
            text = metrics.format_metrics(snapshot, process)
            return Response(200, CONTENT_TYPE, text.encode())
        text = page.render(snapshot, process, round(time.time() * 1000))
        return Response(200, _HTML, text.encode())

    async def _health(self) -> Response:
        """Report whether messages are accepted. An unreachable centre is not a failure."""
        store = await self._store_works()
        up = self._reader.process().accepts_devices
        health: dict[str, object] = {
            "status": "ok" if store and up else "failing",
            "store": "ok" if store else "failing",
            "front": "up" if up else "down",
        }
        if store:
            health["uplink"] = await self._uplink()
        return Response(200 if store and up else 503, _JSON, msgspec.json.encode(health) + b"\n")

    async def _store_works(self) -> bool:
        try:
            await asyncio.wait_for(self._store.run(lambda _tx: None), STORE_TIMEOUT)
        except (StoreError, TimeoutError):
            return False
        return True

    async def _uplink(self) -> dict[str, object] | None:
        try:
            snapshot = await self._reader.snapshot()
        except StoreError:
            return None
        notice = snapshot.last_notice
        return {
            "last_taken": snapshot.last_upload,
            "last_notice": None if notice is None else notice.name,
            "waiting_segments": snapshot.status.waiting.segments,
            "waiting_bytes": sum(lane.bytes for lane in snapshot.lanes),
        }
