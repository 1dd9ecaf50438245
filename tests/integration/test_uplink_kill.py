"""The uplink killed at random moments, with a real receiver."""

from __future__ import annotations

import asyncio
import random
import sys
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from sync.common.enrolment import Enrolment, write_enrolment
from sync.common.fleet_folder import FleetFolder
from sync.segment import decode
from tests.helpers.fleet import GATEWAY, Centre, running_centre
from tests.helpers.shipping_process import event_text
from tests.helpers.store import DOMAIN, EPOCH, new_database
from tests.helpers.stored_rows import ingest_by_command

assert GATEWAY == DOMAIN

STEPS = 60
"""Steps after which a process is killed at the latest: some rounds of logging and shipping."""


async def start(*words: object) -> Process:
    command = [sys.executable, "-m", "tests.helpers.shipping_process", *map(str, words)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"open\n"
    return process


async def killed_after(process: Process, steps: int) -> int:
    """Kill the process after `steps` steps; return the last durable number that it printed."""
    assert process.stdout is not None
    output = b"".join([await process.stdout.readline() for _ in range(steps)])
    process.kill()
    output += await process.stdout.read()
    await process.wait()
    logged = [line.split()[1] for line in output.split(b"\n")[:-1] if line.startswith(b"logged")]
    return int(logged[-1]) if logged else 0


def check(centre: Centre, logged: int) -> None:
    """Check that each event is in one segment, unchanged, and the chain has no gap or fork."""
    found = [decode((centre.folder.root / name).read_bytes()) for name in centre.files()]
    lane = [segment for segment in found if segment.header.lane == "readings"]
    lane.sort(key=lambda segment: segment.header.first_seq)
    texts = [(event.seq, event.text) for segment in lane for event in segment.events]
    assert [seq for seq, _ in texts] == list(range(1, len(texts) + 1))
    assert len(texts) >= logged
    assert all(text == event_text(seq) for seq, text in texts)
    assert {segment.header.epoch for segment in found} == {EPOCH}
    digests = [bytes(32), *(segment.digest for segment in lane)]
    assert [segment.header.previous for segment in lane] == digests[:-1]


def check_tables(folder: FleetFolder) -> None:
    """Check that the tables have each event once, unchanged, and the uplink's own events."""
    landed = [decode(path.read_bytes()) for path in sorted(folder.landing.rglob("*.seg"))]
    expected = Counter(
        (segment.header.lane, event.seq, event.kind, event.name)
        for segment in landed
        for event in segment.events
    )
    events, segments = ingest_by_command(folder)
    columns = ("lane", "seq", "kind", "name")
    assert Counter(tuple(row[name] for name in columns) for row in events) == expected
    texts = {row["seq"]: row["text"] for row in events if row["lane"] == "readings"}
    assert texts == {seq: event_text(seq) for seq in range(1, len(texts) + 1)}
    assert Counter(row["fate"] for row in segments) == {"accepted": len(landed)}
    assert list(folder.landing.rglob("*.seg")) == []


async def test_kills_lose_and_duplicate_nothing(
    tmp_path: Path, scale: Callable[[int, int], int], seed: int
) -> None:
    rng, logged = random.Random(seed), 0
    database, enrolment = new_database(tmp_path), tmp_path / "gw.json"
    async with running_centre(tmp_path / "fleet") as centre, asyncio.timeout(900):
        ca = (centre.folder.pki / "ca.pem").read_text()
        token = centre.client.tokens[GATEWAY]
        write_enrolment(enrolment, Enrolment(GATEWAY, centre.client.url(""), token, ca))
        for number in range(scale(2, 50)):
            process = await start(database, enrolment, seed + number)
            logged = max(logged, await killed_after(process, rng.randrange(STEPS)))
        process = await start(database, enrolment, seed, "finish")
        assert process.stdout is not None
        await process.stdout.read()
        assert await process.wait() == 0
        assert centre.files(landed=False) == []
        check(centre, logged)
    assert logged or not centre.files()
    if scale(0, 1):
        check_tables(centre.folder)
