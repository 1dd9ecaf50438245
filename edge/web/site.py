"""The pages by path: `/` for people, `/metrics` for Prometheus, and two for supervisors.

`/health` tells whether messages are accepted, `/live` whether the process answers.
"""

from __future__ import annotations

import time
from typing import Final

import msgspec

from edge.errors import StoreError
from edge.ops.checks import health
from edge.ops.checks.health import Health
from edge.web import http, metrics, page
from edge.web.http import Response
from edge.web.status_snapshot import Snapshot, SnapshotReader
from sync.common.metrics import CONTENT_TYPE

_JSON: Final = "application/json"
_HTML: Final = "text/html; charset=utf-8"


class Site:
    """The status page, health check and metrics, by path."""

    def __init__(self, reader: SnapshotReader) -> None:
        self._reader = reader

    async def respond(self, path: str) -> Response:
        """Return the response for a path."""
        if path == "/live":
            return _json(200, {"status": "live"})
        if path not in ("/", "/health", "/metrics"):
            return http.status_response(404)
        found = await self._reader.check_health()
        try:
            snapshot = await self._reader.snapshot()
            reports = await self._reader.queue_reports() if path == "/" else []
        except StoreError:  # the query takes too long, or the database is closed
            return _health(found, None) if path == "/health" else http.status_response(503)
        found, process = health.with_limits(found, snapshot.status), self._reader.process()
        if path == "/health":
            return _health(found, snapshot)
        if path == "/metrics":
            text = metrics.format_metrics(snapshot, process, found)
            return Response(200, CONTENT_TYPE, text.encode())
        text = page.render(snapshot, reports, process, found, round(time.time() * 1000))
        return Response(200, _HTML, text.encode())


def _health(found: Health, snapshot: Snapshot | None) -> Response:
    """Report whether messages are accepted. An unreachable centre is not a failure.

    No problem that a gateway can report is solved by its restart, which would end its sessions.
    """
    report: dict[str, object] = {
        "status": found.state,
        "restart": False,
        "problems": [each._asdict() for each in found.problems],
        "uplink": None if snapshot is None else _uplink(snapshot),
    }
    return _json(503 if found.state == health.FAILING else 200, report)


def _json(status: int, report: dict[str, object]) -> Response:
    return Response(status, _JSON, msgspec.json.encode(report) + b"\n")


def _uplink(snapshot: Snapshot) -> dict[str, object]:
    notice = snapshot.uplink.last_notice
    return {
        "last_taken": snapshot.uplink.last_upload,
        "last_notice": None if notice is None else notice.name,
        "waiting_segments": snapshot.status.waiting.segments,
        "waiting_bytes": sum(lane.bytes for lane in snapshot.uplink.lanes),
    }
