"""Tests of power cuts amid a receiver's spool: every acknowledged segment gets into the bucket.

A receiver is recorded while its bucket is away, comes back and is away again. For many points in
the log of its writes, its folder is made as a disk might show it after a cut there
(`helpers.power_cut`), and the bucket as it was then. A receiver starts upon both.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from sync.common.fleet_folder import FleetFolder, segment_path
from sync.receiver.limits import ReceiverLimits
from sync.receiver.remote_landing import SPOOL_FOLDER
from sync.receiver.server import ListenAddress, running_receiver
from sync.receiver.tls import ensure_own_certificate
from sync.segment import SUFFIX
from sync.storage.local import LEASE
from sync.storage.object_store import ObjectStorage
from tests.helpers import power_cut
from tests.helpers.fleet import HOST, Client, client, identity, make_fleet, segment
from tests.helpers.object_store import BUCKET, LIMIT_S, FaultyProxy, environment
from tests.helpers.power_cut import Disk, Record, Recorder
from tests.helpers.processes import start
from tests.helpers.stored import stored

CAPACITY: Final = 40_000
"""Bytes of the spool: too few for all segments that are sent while the bucket is away."""

SENDERS: Final = 4
GATEWAYS: Final = ("first.example", "second.example", "third.example")

SERVE: Final = """
from sync.storage import object_store
object_store.RETRIES = 0
from sync.cli.__main__ import main
main()
"""
"""The program of a receiver that does not wait for a bucket that is away."""

WITHOUT_SYNC: Final = f"import os\nos.fsync = lambda descriptor: None\n{SERVE}"
"""The program of a receiver that syncs nothing."""


class RecordedSpool(NamedTuple):
    """A recorded run.

    Attributes:
        fleet: the fleet folder.
        disk: its content before the run.
        records: the receiver's writes.
        sent: the segments by their paths in the bucket.
        puts: the paths of what the bucket got, each with the length of the log at that moment.
        acknowledged: the paths of the acknowledged segments, likewise.
    """

    fleet: Path
    disk: Disk
    records: list[Record]
    sent: dict[str, bytes]
    puts: list[tuple[str, int]]
    acknowledged: list[tuple[str, int]]


class Bucket(FaultyProxy):
    """A proxy before a bucket, which notes what the bucket gets."""

    def __init__(self, url: str, recorder: Recorder) -> None:
        super().__init__(url, random.Random(0))
        self._recorder = recorder
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.kinds = ("503",)
        self.puts: list[tuple[str, int]] = []

    def choose(self, request: str) -> str:
        """Note a put before the bucket does it: it may do so after the receiver's power is cut."""
        fault, start = super().choose(request), f"PUT /{BUCKET}/"
        if not fault and request.startswith(start):
            self.puts.append((request.removeprefix(start), self._recorder.size()))
            self._loop.call_soon_threadsafe(self._changed.set)
        return fault

    async def received(self, paths: set[str]) -> None:
        """Wait until the bucket got these, or anything if there are none."""
        async with asyncio.timeout(LIMIT_S):
            while not self.puts or not paths <= {path for path, _ in self.puts}:
                await self._changed.wait()
                self._changed.clear()


class Uploads:
    """The gateways and the acknowledgements that they get."""

    def __init__(self, recorder: Recorder, seed: int) -> None:
        self._recorder = recorder
        self._chance = random.Random(seed)
        self.sent: dict[str, bytes] = {}
        self.acknowledged: list[tuple[str, int]] = []

    async def send(self, to: Client, gateway: str, each: int) -> None:
        """Send so many segments by each of some senders; repeat some that are acknowledged."""
        await asyncio.gather(*(self._send(to, gateway, each) for _ in range(SENDERS)))

    async def _send(self, to: Client, gateway: str, count: int) -> None:
        for _ in range(count):
            number = len(self.sent) + 1
            name = identity(number, number, gateway)
            text = self._chance.randbytes(self._chance.choice((300, 3_000))).hex()
            path = f"landing/{segment_path(name)}"
            data = self.sent[path] = segment(name, text)
            for _ in range(self._chance.choice((1, 1, 2))):
                answer = await to.put(data, name)
                assert answer.status in (200, 201, 503), answer
                if answer.status < 300:
                    self.acknowledged.append((path, self._recorder.size()))

    def paths(self) -> set[str]:
        return {path for path, _ in self.acknowledged}


async def record(folder: Path, url: str, seed: int, program: str = SERVE) -> RecordedSpool:
    """Send segments while the bucket is away, before and after a kill, while it is back, and while
    it is away again; kill the receiver. An earlier one was killed when it had made the spool's
    folder and not synced it."""
    fleet = FleetFolder(folder / "fleet")
    tokens = make_fleet(fleet.root, GATEWAYS)
    recorder = Recorder(folder)
    disk, uploads = Disk(fleet.root), Uploads(recorder, seed)
    first, second, third = GATEWAYS
    bucket = Bucket(url, recorder)
    with bucket.running():
        env = recorder.environment(fleet.root) | environment(bucket.url)
        serve = ("python", "-c", program, "serve", "--dir", fleet.root, "--listen", f"{HOST}:0")
        options = ("--landing", f"s3://{BUCKET}/landing", "--spool", str(CAPACITY))
        created = f"import os; os.mkdir({str(fleet.incoming / SPOOL_FOLDER)!r})"
        with start("python", "-c", created, ready=False, env=env) as killed:
            assert killed.wait() == 0
        for gateway in (first, second):
            bucket.share = 1.0
            with start(*serve, *options, env=env) as receiver:
                address = receiver.host_port("https")
                async with client(address, tokens, fleet.pki / "ca.pem") as to:
                    await uploads.send(to, gateway, 4)
                    if gateway == second:
                        bucket.share = 0.0
                        await bucket.received(set())
                        await uploads.send(to, first, 4)
                        await bucket.received(uploads.paths())
                        bucket.share = 1.0
                        await uploads.send(to, third, 12)
                receiver.kill9()
    records = recorder.records()
    return RecordedSpool(fleet.root, disk, records, uploads.sent, bucket.puts, uploads.acknowledged)


def cuts(
    recorded: RecordedSpool, folder: Path, count: int, chance: random.Random
) -> Iterator[list[str]]:
    """Cut the power at so many moments; yield the faults after each."""
    disk = recorded.disk.copy()
    moments = set(chance.sample(range(len(recorded.records)), count))
    for number, change in enumerate(recorded.records):
        disk.replay(change)
        if number in moments:
            after = folder / str(number)
            disk.cut(recorded.fleet, after, chance)
            yield asyncio.run(faults(FleetFolder(after), recorded, change.end))
            shutil.rmtree(after)


async def faults(fleet: FleetFolder, recorded: RecordedSpool, end: int) -> list[str]:
    """Start a receiver upon its folder and the bucket, and list what is wrong then.

    `end` is the length of the log at the cut.
    """
    bucket = ObjectStorage("memory:///")
    for path, at in recorded.puts:
        if at <= end:
            bucket.create(path, recorded.sent[path])
    spool = fleet.incoming / SPOOL_FOLDER
    size = sum(path.stat().st_size for path in spool.rglob(f"*{SUFFIX}"))
    wrong = [f"the spool has {size} bytes"] if size > CAPACITY else []
    limits = ReceiverLimits(spool_bytes=CAPACITY)
    certificate = ensure_own_certificate(fleet)
    listen = ListenAddress(HOST, 0)
    async with running_receiver(fleet, listen, certificate, limits, remote=bucket):
        found = stored(bucket)
    acknowledged = {path for path, at in recorded.acknowledged if at <= end}
    wrong += [f"{path} was acknowledged, and is missing" for path in acknowledged - found.keys()]
    for path, data in found.items():
        if data != recorded.sent.get(path):
            wrong.append(f"{path} is not what was sent")
    left = [path for path in spool.rglob("*") if path.is_file() and path.name != LEASE]
    return wrong + [f"{path.name} remains in the spool" for path in left]


@pytest.fixture(scope="module", autouse=True)
def compiler() -> None:
    if power_cut.compiler() is None:
        pytest.skip("no C compiler: gcc makes the recorder of writes")


def test_a_power_cut_loses_no_spooled_segment(
    tmp_path: Path, s3: str, scale: Callable[[int, int], int], seed: int
) -> None:
    recorded = asyncio.run(record(tmp_path, s3, seed))
    names = {(each.kind, each.data.decode()) for each in recorded.records if each.kind in "LU"}
    spooled, landed = ({name for kind, name in names if kind == each} for each in "LU")
    assert len(spooled & landed) > 10
    assert len(spooled - landed) > 10
    acknowledged = {path for path, _ in recorded.acknowledged}
    assert acknowledged < recorded.sent.keys(), "some are refused, because the spool is full"
    for wrong in cuts(recorded, tmp_path, scale(20, 100), random.Random(seed)):
        assert wrong == []


@pytest.mark.long
def test_a_spool_without_syncs_is_detected(tmp_path: Path, s3: str, seed: int) -> None:
    recorded = asyncio.run(record(tmp_path, s3, seed, WITHOUT_SYNC))
    assert any(cuts(recorded, tmp_path, 100, random.Random(seed)))
