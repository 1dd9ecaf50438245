"""The pages: `/` for people, `/health` for who restarts things, `/metrics` for Prometheus."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import msgspec

from edge.errors import StoreError
from edge.web import http, metrics, page
from edge.web.http import Answer
from edge.web.status_snapshot import Looker

if TYPE_CHECKING:
    from edge.engine.group_commit import Store

PATIENCE: Final = 3.0
"""Seconds that the store has for a transaction that does nothing, until the gateway is not well: a
slow card takes tenths of one."""

_JSON: Final = "application/json"
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_HTML: Final = "text/html; charset=utf-8"


class Site:
    """What is answered to which path."""

    def __init__(self, looker: Looker, store: Store) -> None:
        self._looker = looker
        self._store = store

    async def answer(self, path: str) -> Answer:
        """Answer a path."""
        if path == "/health":
            return await self._health()
        if path not in ("/", "/metrics"):
            return http.plain(404)
        try:
            look = await self._looker.look()
        except StoreError:  # a query that takes too long, or a database that is gone
            return http.plain(503)
        process = self._looker.process()
        if path == "/metrics":
            return Answer(200, _TEXT, metrics.gateway_metrics(look, process).encode())
        return Answer(200, _HTML, page.page(look, process, round(time.time() * 1000)).encode())

    async def _health(self) -> Answer:
        """Tell whether messages are taken: the centre may be away for as long as it likes."""
        store = await self._works()
        up = self._looker.process().up
        told: dict[str, object] = {
            "status": "ok" if store and up else "failing",
            "store": "ok" if store else "failing",
            "front": "up" if up else "down",
        }
        if store:
            told["uplink"] = await self._uplink()
        return Answer(200 if store and up else 503, _JSON, msgspec.json.encode(told) + b"\n")

    async def _works(self) -> bool:
        try:
            await asyncio.wait_for(self._store.run(lambda _tx: None), PATIENCE)
        except (StoreError, TimeoutError):
            return False
        return True

    async def _uplink(self) -> dict[str, object] | None:
        try:
            look = await self._looker.look()
        except StoreError:
            return None
        return {
            "last_taken": look.taken,
            "last_notice": None if look.told is None else look.told.name,
            "waiting_segments": look.status.waiting.segments,
            "waiting_bytes": sum(lane.bytes for lane in look.lanes),
        }
