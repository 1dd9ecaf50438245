"""The `fieldpost-fleet alerts` command, killed between saving and sending, and restarted."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from sync.common.fleet_folder import FleetFolder
from sync.segment import Event
from tests.helpers.fleet_tables import Lane, fleet_folder, land
from tests.helpers.processes import Process, start
from tests.helpers.small_ingest import SmallIngest

ONE, TWO = "gw-001.example", "gw-002.example"
WAIT_S = 30.0


@dataclass
class WebhookServer:
    """A webhook that records alerts and kills `victim` before it answers."""

    victim: Process | None = None
    heard: list[dict[str, Any]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def hear(self, request: web.Request) -> web.Response:
        self.heard.append(json.loads(await request.read()))
        self.tokens.append(request.headers["Authorization"])
        if self.victim is not None:
            os.kill(self.victim.pid, signal.SIGKILL)
        self.news.set()
        return web.Response(status=204)

    async def wait(self, number: int) -> None:
        """Wait until this number of alerts was received."""
        async with asyncio.timeout(WAIT_S):
            while len(self.heard) < number:
                self.news.clear()
                await self.news.wait()


def arrive(folder: FleetFolder, lane: Lane, ago_s: float) -> None:
    at = time.time() - ago_s
    beat = Event(seq=1, time=round(at * 1000), clock=True, kind="system", name="heartbeat")
    land(folder, lane.seal([beat]), at)


async def test_killed_process_sends_each_alert_at_least_once_with_one_id(tmp_path: Path) -> None:
    folder = fleet_folder(tmp_path / "fleet")
    one, two = Lane(ONE, "system"), Lane(TWO, "system")
    for ago_s in range(9_000, -1, -300):
        arrive(folder, one, ago_s)
        if ago_s >= 4_500:
            arrive(folder, two, ago_s)
    SmallIngest(folder).run()
    server = WebhookServer()
    app = web.Application()
    app.router.add_post("/hook", server.hear)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        await killed_and_gone_on_with(folder, f"http://{host}:{port}/hook", server, two)
    finally:
        await runner.cleanup()


async def killed_and_gone_on_with(
    folder: FleetFolder, url: str, server: WebhookServer, two: Lane
) -> None:
    out = folder.root / "alerts.jsonl"
    command = ("fieldpost-fleet", "alerts", "--dir", folder.root, "--out", out, "--interval", "1")
    env = {"FIELDPOST_ALERTS_WEBHOOK": url, "FIELDPOST_ALERTS_TOKEN": "sesame"}
    with start(*command, ready=False, env=env) as process:
        server.victim = process
        await server.wait(1)
        assert await asyncio.to_thread(process.wait) == -signal.SIGKILL
    server.victim = None
    with start(*command, ready=False, env=env) as process:
        await server.wait(2)
        arrive(folder, two, 0)
        await server.wait(3)
        assert await asyncio.to_thread(process.terminate) == 0
        assert process.stderr == ""
    first, again, recovered = server.heard
    assert first == again
    assert (first["state"], first["kind"], first["gateway"]) == ("raised", "silent", TWO)
    assert (recovered["state"], recovered["id"]) == ("recovered", first["id"])
    assert set(server.tokens) == {"Bearer sesame"}
    assert [json.loads(line) for line in out.read_text("utf-8").splitlines()] == [first, recovered]
    assert [json.loads(line) for line in process.stdout.splitlines()] == [recovered]
