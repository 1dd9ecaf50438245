"""The real receiver, killed at random moments: what it acknowledged is there, nothing is half."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import aiohttp
import pytest

from sync.central.folders import FleetFolder, parse_segment_path
from sync.format import Identity, identity_path, read_header
from tests.helpers.fleet import GATEWAY, HOST, OTHER, Client, client, identity, make_fleet, segment
from tests.helpers.processes import Process, start

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

SENDERS = 3
PIECE = 16 * 1024


@dataclass
class Upload:
    """What gateways send and what they were told, over all kills of a run."""

    seed: int
    acknowledged: dict[Identity, bytes] = field(default_factory=dict)
    unsure: dict[tuple[str, int], tuple[Identity, bytes]] = field(default_factory=dict)
    statuses: Counter[int] = field(default_factory=Counter)
    sent: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self._numbers = itertools.count(1)

    def fresh(self, gateway: str) -> tuple[Identity, bytes]:
        """A new segment of 1 to some 300 KiB that does not compress."""
        number = next(self._numbers)
        size = self.random.choice((500, 20_000, 300_000))
        name = identity(number, number, gateway)
        return name, segment(name, self.random.randbytes(size).hex())


def pieces_until(upload: Upload, data: bytes, kill_at: int, process: Process) -> Iterator[bytes]:
    """The body in pieces; kills the receiver when the bytes sent by all reach `kill_at`."""
    for start_at in range(0, len(data), PIECE):
        piece = data[start_at : start_at + PIECE]
        upload.sent += len(piece)
        if upload.sent >= kill_at and process.returncode is None:
            process.kill9()
        yield piece


async def send(
    upload: Upload, connected: Client, sender: tuple[str, int], kill_at: int, process: Process
) -> None:
    """Send segments until the receiver is dead; begin with the one that a kill left unsure."""
    gateway, _ = sender
    while process.returncode is None:
        name, data = upload.unsure.get(sender) or upload.fresh(gateway)
        upload.unsure[sender] = (name, data)

        async def body(data: bytes = data) -> AsyncIterator[bytes]:
            for piece in pieces_until(upload, data, kill_at, process):
                yield piece

        headers = {
            "Authorization": f"Bearer {connected.tokens[gateway]}",
            "X-Fieldpost-SHA256": hashlib.sha256(data).hexdigest(),
            "Content-Length": str(len(data)),
        }
        path = f"/v1/segments/{identity_path(name)}"
        try:
            answer = await connected.send("PUT", path, headers, body())
        except (aiohttp.ClientError, OSError):
            return
        upload.statuses[answer.status] += 1
        if answer.status in {200, 201}:
            upload.acknowledged[name] = hashlib.sha256(data).digest()
            del upload.unsure[sender]


def check(upload: Upload, folder: FleetFolder) -> None:
    landed = {
        parse_segment_path(PurePosixPath(path.relative_to(folder.landing))): path.read_bytes()
        for path in folder.landing.rglob("*")
        if path.is_file()
    }
    for name, data in landed.items():
        assert read_header(data).identity == name, "a file under a name that is not its own"
    missing = upload.acknowledged.keys() - landed.keys()
    assert not missing, f"acknowledged and gone: {missing}, seed {upload.seed}"
    for name, body_sum in upload.acknowledged.items():
        assert hashlib.sha256(landed[name]).digest() == body_sum
    assert not list(folder.aside.rglob("*.seg"))


@pytest.mark.parametrize("seed", [7])
async def test_what_was_acknowledged_survives_every_kill(
    tmp_path: Path, scale: Callable[[int, int], int], seed: int
) -> None:
    tokens = make_fleet(tmp_path / "fleet")
    folder = FleetFolder(tmp_path / "fleet")
    upload = Upload(seed)
    for _ in range(scale(3, 50)):
        with start("fieldpost-fleet", "serve", "--dir", folder.root, "--listen", f"{HOST}:0") as it:
            assert not list((folder.incoming / "serve").glob("*.part")), "left by the kill before"
            kill_at = upload.sent + upload.random.randrange(1, 6_000_000)
            ca = folder.pki / "ca.pem"
            async with client(it.host_port("https"), tokens, ca) as connected:
                senders = [
                    send(upload, connected, (gateway, number), kill_at, it)
                    for gateway in (GATEWAY, OTHER)
                    for number in range(SENDERS)
                ]
                async with asyncio.timeout(60):
                    await asyncio.gather(*senders)
            check(upload, folder)
    assert upload.acknowledged
    assert upload.statuses.keys() <= {200, 201}
