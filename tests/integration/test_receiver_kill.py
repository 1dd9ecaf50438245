"""The receiver killed at random moments keeps what it acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest

from sync.common.fleet_folder import FleetFolder
from sync.receiver.landing import verify
from sync.segment import Identity, decode, digest_of, read_header
from sync.storage.local import LocalStorage
from sync.storage.locations import open_storage
from sync.storage.storage import Storage
from tests.helpers.fleet import (
    GATEWAY,
    HOST,
    OTHER,
    Client,
    client,
    identity,
    landed,
    make_fleet,
    segment,
)
from tests.helpers.object_store import BUCKET, FaultyProxy, environment
from tests.helpers.processes import Process, start
from tests.helpers.resuming import pieces, resume, send_interrupted
from tests.helpers.stored import stored
from tests.helpers.stored_rows import ingest_by_command

SENDERS = 2
AHEAD = 8


@dataclass
class Upload:
    """The uploads of gateways and their acknowledgements, over all kills of a run."""

    seed: int
    acknowledged: dict[Identity, bytes] = field(default_factory=dict)
    unsure: dict[Identity, bytes] = field(default_factory=dict)
    sent: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self._chains: dict[str, list[bytes]] = {GATEWAY: [bytes(32)], OTHER: [bytes(32)]}
        self._waiting: dict[str, list[tuple[Identity, bytes]]] = {GATEWAY: [], OTHER: []}

    def new_segment(self, gateway: str) -> tuple[Identity, bytes]:
        """Return a new incompressible segment of 1 to some 300 KiB, in random order of numbers."""
        waiting = self._waiting[gateway]
        while len(waiting) < AHEAD:
            waiting.append(self._next(gateway))
        return waiting.pop(self.random.randrange(AHEAD))

    def unsent_segments(self) -> list[tuple[Identity, bytes]]:
        """Return the segments that were never sent."""
        return [each for waiting in self._waiting.values() for each in waiting]

    def _next(self, gateway: str) -> tuple[Identity, bytes]:
        """Seal the next segment of a gateway's chain."""
        chain = self._chains[gateway]
        size = self.random.choice((500, 20_000, 300_000))
        name = identity(len(chain), len(chain), gateway)
        data = segment(name, self.random.randbytes(size).hex(), chain[-1])
        chain.append(digest_of(data))
        return name, data

    def next(self, gateway: str) -> tuple[Identity, bytes]:
        """Return the next upload: usually an unacknowledged segment, sometimes a landed one."""
        unacknowledged = [name for name in self.unsure if name.gateway == gateway]
        landed = [name for name in self.acknowledged if name.gateway == gateway]
        if unacknowledged and self.random.random() < 0.7:
            name = self.random.choice(unacknowledged)
            return name, self.unsure[name]
        if landed and self.random.random() < 0.15:
            name = self.random.choice(landed)
            return name, self.acknowledged[name]
        return self.new_segment(gateway)

    def record(self, name: Identity, data: bytes, status: int) -> None:
        """Record an acknowledgement."""
        assert status in {200, 201}, (status, name, self.seed)
        self.acknowledged[name] = data
        self.unsure.pop(name, None)


@dataclass
class KilledReceiver:
    """A receiver that is killed after `kill_at` bytes were sent; None for never."""

    upload: Upload
    process: Process
    kill_at: int | None = None

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield the body in pieces; the receiver is killed between two of them."""
        for piece in pieces(data):
            self.upload.sent += len(piece)
            if self.kill_at is not None and self.upload.sent >= self.kill_at:
                self.process.kill9()
                self.kill_at = None
            yield piece


async def send(victim: KilledReceiver, connected: Client, gateway: str) -> None:
    """Send segments until the receiver is dead; interrupt some, lose acknowledgements."""
    upload = victim.upload
    while victim.process.returncode is None:
        name, data = upload.next(gateway)
        if name not in upload.acknowledged:
            upload.unsure[name] = data
        draw = upload.random.random()
        if draw < 0.2:
            await send_interrupted(connected, name, data, upload.random.randrange(len(data)))
            continue
        with contextlib.suppress(aiohttp.ClientError, OSError):
            answer = await resume(connected, name, data, victim.pieces)
            if draw > 0.35:
                upload.record(name, data, answer.status)


class Place(NamedTuple):
    """Where segments land, the options that say so, and a proxy that fails before it, if any."""

    storage: Storage
    words: tuple[str, ...] = ()
    proxy: FaultyProxy | None = None


@pytest.fixture(params=["disk", "bucket", "faulty bucket"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    if request.param == "disk":
        yield Place(LocalStorage(tmp_path / "fleet"))
        return
    url, root = request.getfixturevalue("s3"), f"s3://{BUCKET}/fleet"
    storage, words = open_storage(root), ("--landing", f"{root}/landing")
    if request.param == "bucket":
        yield Place(storage, words)
        return
    with FaultyProxy(url, random.Random(1)).running() as proxy:
        proxy.kinds, proxy.share = ("500", "503", "lost", "503 after"), 0.2
        for name, value in environment(proxy.url).items():
            monkeypatch.setenv(name, value)
        yield Place(storage, (*words, "--spool", "1000000000"), proxy)


def spooled(folder: FleetFolder) -> dict[Identity, bytes]:
    """Return the segments in the spool."""
    found = stored(LocalStorage(folder.incoming / "spool")).items()
    return {verify(data).identity: data for path, data in found if path.endswith(".seg")}


def check(upload: Upload, folder: FleetFolder, place: Place) -> None:
    """Check that everything acknowledged has landed, and that everything landed was sent."""
    found = spooled(folder) | landed(place.storage)
    sent = {**upload.unsure, **upload.acknowledged}
    missing = upload.acknowledged.keys() - found.keys()
    assert not missing, f"acknowledged and missing: {missing}, seed {upload.seed}"
    for name, data in found.items():
        assert read_header(data).identity == name, "a file under a name that is not its own"
        assert data == sent[name], f"{name} is not what was sent, seed {upload.seed}"
    assert not stored(place.storage, "aside")


def check_tables(upload: Upload, folder: FleetFolder) -> None:
    """Check that the tables have each acknowledged event once, and nothing else."""
    events, segments = ingest_by_command(folder)
    sent = Counter(
        (*name[:3], event.seq, event.text)
        for name, data in upload.acknowledged.items()
        for event in decode(data).events
    )
    lane = ("gateway", "epoch", "lane", "seq", "text")
    assert Counter(tuple(row[name] for name in lane) for row in events) == sent
    digests = Counter(data[-32:].hex() for data in upload.acknowledged.values())
    assert Counter(row["digest"] for row in segments) == digests
    assert {row["fate"] for row in segments} == {"accepted"}
    assert list(folder.landing.rglob("*.seg")) == []


@contextlib.asynccontextmanager
async def receiver(
    folder: FleetFolder, tokens: dict[str, str], place: Place
) -> AsyncIterator[tuple[Process, Client]]:
    words = ("fieldpost-fleet", "serve", "--dir", folder.root, "--listen", f"{HOST}:0")
    with start(*words, *place.words) as it:
        ca = folder.pki / "ca.pem"
        async with client(it.host_port("https"), tokens, ca) as connected:
            yield it, connected


@pytest.mark.parametrize("seed", [7])
async def test_acknowledged_segments_survive_kills(
    tmp_path: Path, scale: Callable[[int, int], int], place: Place, seed: int
) -> None:
    tokens = make_fleet(tmp_path / "fleet")
    folder = FleetFolder(tmp_path / "fleet")
    upload = Upload(seed)
    for _ in range(scale(3, 50)):
        async with receiver(folder, tokens, place) as (process, connected):
            kill_at = upload.sent + upload.random.randrange(1, 2_000_000)
            victim = KilledReceiver(upload, process, kill_at)
            senders = [
                send(victim, connected, gateway)
                for gateway in (GATEWAY, OTHER)
                for _ in range(SENDERS)
            ]
            async with asyncio.timeout(60):
                await asyncio.gather(*senders)
        check(upload, folder, place)
    if place.proxy is not None:
        assert place.proxy.faults
        place.proxy.share = 0.0
    async with receiver(folder, tokens, place) as (process, connected):
        name, upload.unsure[name] = upload.new_segment(GATEWAY)
        await send_interrupted(connected, name, upload.unsure[name], len(upload.unsure[name]) // 2)
        for name, data in [*upload.unsure.items(), *upload.unsent_segments()]:
            answer = await resume(connected, name, data)
            upload.record(name, data, answer.status)
        assert process.terminate() == 0
    assert landed(place.storage) == upload.acknowledged
    assert spooled(folder) == {}
    if scale(0, 1) and not place.words:
        check_tables(upload, folder)
