"""Two receivers, each a process of its own, that share a fleet folder and race for the same."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from sync.central.folders import FleetFolder
from sync.format import identity_path
from tests.helpers.fleet import HOST, Client, client, identity, make_fleet, segment
from tests.helpers.processes import start
from tests.helpers.resuming import cut, go_on

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path


@contextlib.asynccontextmanager
async def two_receivers(root: Path) -> AsyncIterator[list[Client]]:
    """Two real receivers of one folder, and a client of each."""
    tokens = make_fleet(root)
    words = ("fieldpost-fleet", "serve", "--dir", root, "--listen", f"{HOST}:0")
    async with contextlib.AsyncExitStack() as stack:
        started = [stack.enter_context(start(*words, ready=False)) for _ in range(2)]
        clients = []
        for process in started:
            process.wait_ready()
            connecting = client(process.host_port("https"), tokens, root / "pki" / "ca.pem")
            clients.append(await stack.enter_async_context(connecting))
        yield clients


def files(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.name.endswith(".lock")
    }


@pytest.mark.long
@pytest.mark.parametrize("number", [11])
async def test_two_receivers_agree_on_what_landed(
    tmp_path: Path, scale: Callable[[int, int], int], number: int
) -> None:
    """Each segment is sent to both at once, with a contradicting one; some are cut before."""
    chance = random.Random(number)
    truth: dict[str, bytes] = {}
    async with two_receivers(tmp_path / "fleet") as clients:
        for first in range(1, scale(12, 200)):
            name = identity(first, first)
            texts = [chance.randbytes(chance.choice((10, 30_000))).hex() for _ in range(2)]
            ours, theirs = (segment(name, text) for text in texts)
            if chance.random() < 0.5:
                await cut(chance.choice(clients), name, ours, chance.randrange(1, len(ours)))
            sent = (go_on(each, name, ours) for each in clients)
            answers = await asyncio.gather(*sent, clients[first % 2].put(theirs, name))
            statuses = Counter(answer.status for answer in answers)
            assert statuses[201] <= 1
            won = theirs if answers[2].status == 201 else ours
            truth[f"{identity_path(name)}.seg"] = won
    folder = FleetFolder(tmp_path / "fleet")
    assert files(folder.landing) == truth
    assert not [name for name in files(folder.incoming) if name.startswith("serve/")]
