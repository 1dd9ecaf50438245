"""Receiver processes: two that share a fleet folder, and notifications to systemd."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from sync.common.fleet_folder import FleetFolder
from sync.segment import Identity
from sync.storage.locations import open_storage
from sync.storage.storage import Storage
from tests.helpers.fleet import (
    HOST,
    Centre,
    Client,
    client,
    contents,
    identity,
    landed,
    make_fleet,
    segment,
)
from tests.helpers.object_store import BUCKET
from tests.helpers.processes import Process, start, systemd
from tests.helpers.raw_put import start_upload
from tests.helpers.resuming import resume, send_interrupted


@contextlib.asynccontextmanager
async def two_receivers(
    root: Path, landing: str | None = None
) -> AsyncIterator[tuple[list[Process], list[Client]]]:
    """Run two receiver processes with a client each; kill them at the end.

    They share the fleet folder, or have one each and share the `landing`.
    """
    tokens, roots, words = make_fleet(root), [root, root], ["--listen", f"{HOST}:0"]
    if landing is not None:
        roots[1] = shutil.copytree(root, root.with_name("other"))
        words += ["--landing", landing]
    async with contextlib.AsyncExitStack() as stack:
        started = [
            stack.enter_context(
                start("fieldpost-fleet", "serve", "--dir", each, *words, ready=False)
            )
            for each in roots
        ]
        clients = []
        for process in started:
            process.wait_ready()
            connecting = client(process.host_port("https"), tokens, root / "pki" / "ca.pem")
            clients.append(await stack.enter_async_context(connecting))
        yield started, clients


async def until_uploads(centre: Centre, count: int) -> None:
    """Wait, at most 30 s, until `count` uploads are in progress."""
    async with asyncio.timeout(30):
        while len(contents(centre.folder.incoming)) != count:
            await centre.client.head()


async def test_stopped_receiver_cleans_up_and_killed_one_does_not(tmp_path: Path) -> None:
    """The same body is sent three times: only the first upload can be resumed."""
    folder = FleetFolder(tmp_path / "fleet")
    async with two_receivers(folder.root) as (receivers, clients):
        writers = []
        for count, each in enumerate((clients[0], clients[0], clients[1]), start=1):
            writers.append(await start_upload(Centre(folder, each)))
            await until_uploads(Centre(folder, clients[0]), count)
        receivers[1].kill9()
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*(each.wait_closed() for each in writers), return_exceptions=True)
        assert await asyncio.to_thread(receivers[0].terminate) == 0
        assert len(contents(folder.incoming)) == 2, "the resumable one, and that of the killed one"


@pytest.mark.parametrize("number", [11])
@pytest.mark.parametrize("where", ["disk", "bucket"])
async def test_two_receivers_share_one_landing(
    tmp_path: Path,
    scale: Callable[[int, int], int],
    number: int,
    where: str,
    request: pytest.FixtureRequest,
) -> None:
    """Each segment is sent to both at once, with a conflicting one; some are interrupted first."""
    rng = random.Random(number)
    expected: dict[Identity, bytes] = {}
    place: FleetFolder | Storage = FleetFolder(tmp_path / "fleet")
    landing = None
    if where == "bucket":
        request.getfixturevalue("s3")
        place, landing = open_storage(f"s3://{BUCKET}/fleet"), f"s3://{BUCKET}/fleet/landing"
    async with two_receivers(tmp_path / "fleet", landing) as (receivers, clients):
        for first in range(1, scale(12, 200)):
            name = identity(first, first)
            texts = [rng.randbytes(rng.choice((10, 30_000))).hex() for _ in range(2)]
            data, conflicting = (segment(name, text) for text in texts)
            if rng.random() < 0.5:
                size = rng.randrange(1, len(data))
                await send_interrupted(rng.choice(clients), name, data, size)
            sent = (resume(each, name, data) for each in clients)
            answers = await asyncio.gather(*sent, clients[first % 2].put(conflicting, name))
            statuses = Counter(answer.status for answer in answers)
            assert statuses[201] <= 1
            stored = conflicting if answers[2].status == 201 else data
            expected[name] = stored
        assert [receiver.terminate() for receiver in receivers] == [0, 0]
    assert landed(place) == expected


def test_systemd_is_notified_of_ready_and_stopping(tmp_path: Path) -> None:
    make_fleet(tmp_path / "fleet")
    words = ("fieldpost-fleet", "serve", "--dir", tmp_path / "fleet", "--listen", f"{HOST}:0")
    with systemd() as (notify_socket, env), start(*words, ready=False, env=env) as process:
        assert notify_socket.recv(100) == b"READY=1"
        process.wait_ready()
        with socket.create_connection(process.host_port("https"), 30):
            assert process.returncode is None
        assert process.terminate() == 0
        notify_socket.setblocking(False)
        assert notify_socket.recv(100) == b"STOPPING=1"


def test_failed_start_does_not_notify_ready(tmp_path: Path) -> None:
    make_fleet(tmp_path / "fleet")
    with socket.create_server((HOST, 0)) as listener, systemd() as (notify_socket, env):
        at = f"{HOST}:{listener.getsockname()[1]}"
        words = ("fieldpost-fleet", "serve", "--dir", tmp_path / "fleet", "--listen", at)
        with start(*words, ready=False, env=env) as process:
            assert process.wait() == 1
            assert "cannot listen" in process.stderr
        notify_socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            notify_socket.recv(100)
