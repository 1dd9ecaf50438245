"""Commands of the operator leave nothing for Python's garbage collector, which may run only after
hours."""

from __future__ import annotations

import asyncio
import gc
import http.client
import io
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from edge.app import App
from edge.config import load
from edge.journal import Journal
from edge.ops.gateway import control
from tests.helpers.folder import configure
from tests.helpers.garbage import garbage
from tests.helpers.gateway import DOMAIN, Gateway
from tests.helpers.pki import issue_server

ROUNDS = 5


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[str]:
    """Run a gateway in this process; yield its `ready` line."""
    threshold, interval = gc.get_threshold(), sys.getswitchinterval()
    app = App(folder, load.load(folder), Journal(stream=io.StringIO()))
    lines: asyncio.Queue[str] = asyncio.Queue()
    serving = asyncio.create_task(app.serve(lines.put_nowait))
    try:
        async with asyncio.timeout(60):
            yield await lines.get()
    finally:
        app._stop.set()
        await serving
        gc.unfreeze()
        gc.set_threshold(*threshold)
        sys.setswitchinterval(interval)


def get(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


def operate(folder: Path, port: int, number: int) -> None:
    """Replace the certificate and options, reload, and read the status and its pages."""
    issue_server(folder, DOMAIN, 25)
    configure(folder, "limits", sessions_per_account=9 - number % 2)
    configure(folder, "uplink", bandwidth=4096 + number)
    report = control.reload(folder)
    assert report is not None
    assert len(report.changed) == 2
    assert control.process_status(folder) is not None
    assert control.device_connections(folder) is not None
    assert [get(port, path) for path in ("/", "/metrics", "/health")] == [200, 200, 200]


async def test_commands_of_the_operator_leave_no_garbage(tmp_path: Path) -> None:
    folder = Gateway(tmp_path / "gateway", "cam1").folder
    (tmp_path / "segments").mkdir()
    (tmp_path / "segments" / "fieldpost-segments").touch()
    configure(folder, "uplink", folder=str(tmp_path / "segments"))
    configure(folder, "web", listen="127.0.0.1:0")
    async with serving(folder) as ready:
        (web,) = (word for word in ready.split() if word.startswith("web="))
        port = int(web.rpartition(":")[2])
        await asyncio.to_thread(operate, folder, port, 0)
        with garbage() as left:
            for number in range(1, ROUNDS + 1):
                await asyncio.to_thread(operate, folder, port, number)
            await asyncio.sleep(0)
    kinds = Counter(type(each).__qualname__ for each in left)
    assert {kind: count for kind, count in kinds.items() if count >= ROUNDS} == {}
