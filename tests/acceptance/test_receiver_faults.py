"""Tests of a receiver whose disk fails: it acknowledges no segment that a power cut could lose.

The receiver runs under `write_log.c`, which makes some of its calls fail. A client repeats each
segment until it is acknowledged. Then the power is cut at the moment of each acknowledgement.
"""

from __future__ import annotations

import random
import shutil
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from sync.common.fleet_folder import FleetFolder
from sync.segment import Identity
from tests.helpers import power_cut
from tests.helpers.fleet import HOST, Client, client, identity, landed, make_fleet, segment
from tests.helpers.power_cut import Disk, Recorder
from tests.helpers.processes import Process, start

SEGMENTS = 8
LONGEST = 12
"""Maximum number of calls that fail one after the other; an upload makes about five."""

ATTEMPTS = 3 * LONGEST


class Fault(NamedTuple):
    """A fault (see `write_log.c`), the kinds of calls that fail, and the answer to uploads."""

    name: str
    kinds: str
    status: int
    reason: str


FAULTS = (
    Fault("broken", "SDF", 503, "storage"),
    Fault("bad", "W", 503, "storage"),
    Fault("full", "W", 507, "full"),
)


class Acknowledgement(NamedTuple):
    """An acknowledged segment, and the length of the log at that moment."""

    name: Identity
    data: bytes
    at: int


def serve(fleet: Path, recorder: Recorder, fault: str = "") -> Process:
    env = {**recorder.environment(fleet), "WRITE_FAULT": fault}
    return start("fieldpost-fleet", "serve", "--dir", fleet, "--listen", f"{HOST}:0", env=env)


async def upload(connected: Client, number: int, fault: Fault) -> tuple[bytes, int]:
    """Upload a segment until it is acknowledged; return it, and how often it was refused."""
    name = identity(number, number)
    data = segment(name, random.Random(number).randbytes(400 if number % 2 else 300_000).hex())
    for refused in range(ATTEMPTS):
        answer = await connected.put(data, name)
        if answer.status in {200, 201}:
            return data, refused
        assert (answer.status, answer.body["reason"]) == (fault.status, fault.reason)
    raise AssertionError(f"{name} was refused {ATTEMPTS} times")


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
async def test_what_a_failing_disk_acknowledges_survives_a_power_cut(
    fault: Fault, tmp_path: Path, scale: Callable[[int, int], int], seed: int
) -> None:
    if power_cut.compiler() is None:
        pytest.skip("no C compiler: gcc makes the library that fails writes")
    chance, refused = random.Random(seed), 0
    for number in range(scale(1, 20)):
        folder = tmp_path / str(number)
        folder.mkdir()
        refused += await fail_and_cut(folder, fault, chance)
        shutil.rmtree(folder)
    assert refused


async def fail_and_cut(folder: Path, fault: Fault, chance: random.Random) -> int:
    """Run a receiver some of whose calls fail, and cut the power after each acknowledgement.

    Return how many uploads were refused.
    """
    fleet = folder / "fleet"
    tokens = make_fleet(fleet)
    recorder = Recorder(folder)
    with serve(fleet, recorder):  # creates the folders and the certificate
        pass
    recorder.log.write_bytes(b"")
    disk, acknowledged, refusals = Disk(fleet), [], 0
    with serve(fleet, recorder):
        first = 1 + sum(record.kind in fault.kinds for record in recorder.records())
    first += chance.randrange(SEGMENTS)
    last = first + chance.randrange(LONGEST)
    with serve(fleet, recorder, f"{fault.name} {first} {last}") as receiver:
        async with client(receiver.host_port("https"), tokens, fleet / "pki" / "ca.pem") as to:
            for number in range(1, SEGMENTS + 1):
                data, refused = await upload(to, number, fault)
                refusals += refused
                name = identity(number, number)
                acknowledged.append(Acknowledgement(name, data, recorder.size()))
        assert receiver.terminate() == 0
        assert refusals == receiver.stderr.count('"event": "storage"')
    check_cuts(folder, fleet, disk, recorder, acknowledged, chance)
    return refusals


def check_cuts(
    folder: Path,
    fleet: Path,
    disk: Disk,
    recorder: Recorder,
    acknowledged: list[Acknowledgement],
    chance: random.Random,
) -> None:
    """Cut the power at the moment of each acknowledgement."""
    records = deque(recorder.records())
    for number, last in enumerate(acknowledged):
        while records and records[0].end <= last.at:
            disk.replay(records.popleft())
        cut = folder / f"cut{number}"
        disk.cut(fleet, cut, chance)
        found = landed(FleetFolder(cut))
        for name, data, _at in acknowledged[: number + 1]:
            assert found[name] == data, name
