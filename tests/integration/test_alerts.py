"""The `fieldpost-fleet alerts` command, killed between saving and sending, and restarted."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path

from sync.common.fleet_folder import FleetFolder
from sync.segment import Event
from tests.helpers.fleet_tables import Lane, fleet_folder, land
from tests.helpers.local_ingest import ingest
from tests.helpers.processes import start
from tests.helpers.webhook_server import WebhookServer

ONE, TWO = "gw-001.example", "gw-002.example"


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
    ingest(folder)
    server = WebhookServer()
    async with server.listening():
        await kill_and_restart(folder, server, two)


async def kill_and_restart(folder: FleetFolder, server: WebhookServer, two: Lane) -> None:
    out = folder.root / "alerts.jsonl"
    command = ("fieldpost-fleet", "alerts", "--dir", folder.root, "--out", out, "--interval", "1")
    env = {"FIELDPOST_ALERTS_WEBHOOK": server.url, "FIELDPOST_ALERTS_TOKEN": "sesame"}
    with start(*command, ready=False, env=env) as process:
        server.victim = process.pid
        await server.wait(1)
        assert await asyncio.to_thread(process.wait) == -signal.SIGKILL
    server.victim = 0
    with start(*command, ready=False, env=env) as process:
        await server.wait(2)
        arrive(folder, two, 0)
        await server.wait(3)
        assert await asyncio.to_thread(process.terminate) == 0
        assert process.stderr == ""
    first, repeated, recovered = server.received_alerts
    assert first == repeated
    assert (first["state"], first["kind"], first["gateway"]) == ("raised", "silent", TWO)
    assert (recovered["state"], recovered["id"]) == ("recovered", first["id"])
    assert set(server.tokens) == {"Bearer sesame"}
    assert [json.loads(line) for line in out.read_text("utf-8").splitlines()] == [first, recovered]
    assert [json.loads(line) for line in process.stdout.splitlines()] == [recovered]
