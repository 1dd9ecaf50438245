"""Tests of a gateway whose disk fails or is full."""

from __future__ import annotations

import copy
import random
from collections import deque
from pathlib import Path

import pytest

from tests.helpers import power_cut
from tests.helpers.gateway import Gateway, bind_session
from tests.helpers.power_cut import Disk, Recorder
from tests.helpers.processes import Process, start
from tests.helpers.write_faults import SYNCS, WRITES
from tests.helpers.xmpp import log_message

LATER = 10
"""Number of syncs or writes after those of the start, in the middle of some exchanges."""

MESSAGES = 25

CUTS = 5


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    if power_cut.compiler() is None:
        pytest.skip("no C compiler: gcc makes the library that fails writes")
    return Gateway(tmp_path / "gateway", "pump", require_tls=False)


def failing(gateway: Gateway, recorder: Recorder, fault: str, kinds: str, length: int) -> str:
    """Return the fault with which calls of some kinds fail some time after the start."""
    with start(
        "fieldpost", "run", "--dir", gateway.folder, env=recorder.environment(gateway.folder)
    ):
        first = LATER + sum(record.kind in kinds for record in recorder.records())
    return f"{fault} {first} {first + length - 1}"


@pytest.mark.parametrize(("fault", "kinds"), [("broken", SYNCS), ("bad", WRITES)])
async def test_a_gateway_exits_with_an_error_if_the_disk_fails(
    gateway: Gateway, tmp_path: Path, fault: str, kinds: str, seed: int
) -> None:
    """The next run saves again what is only in the system's memory, so that what it acknowledges
    survives a power cut."""
    disk, recorder = Disk(gateway.folder), Recorder(tmp_path)
    env, requests = recorder.environment(gateway.folder), all_requests()
    fails = failing(gateway, recorder, fault, kinds, 1_000_000)
    faulty = {**env, "WRITE_FAULT": fails}
    with start("fieldpost", "run", "--dir", gateway.folder, env=faulty) as process:
        assert await send(process, requests) == "internal-server-error"
        assert process.wait() == 1
        text = "Error: the database: disk I/O error; see the kernel's log (`dmesg`)"
        assert process.stderr.startswith(text)
    with start("fieldpost", "run", "--dir", gateway.folder, env=env) as process:
        assert await send(process, requests) is None
        process.kill9()
    check_gateway_log(gateway)
    for record in recorder.records():
        disk.replay(record)
    chance = random.Random(seed)
    for number in range(CUTS):
        after = copy.copy(gateway)
        after.folder = tmp_path / str(number)
        disk.cut(gateway.folder, after.folder, chance)
        check_gateway_log(after)


async def test_a_gateway_refuses_requests_while_the_disk_is_full(
    gateway: Gateway, tmp_path: Path
) -> None:
    requests = all_requests()
    recorder = Recorder(tmp_path)
    fails = failing(gateway, recorder, "full", WRITES, 30)
    env = {**recorder.environment(gateway.folder), "WRITE_FAULT": fails}
    with start("fieldpost", "run", "--dir", gateway.folder, env=env) as process:
        answers = [await send(process, requests)]
        while answers[-1] is not None:
            answers.append(await send(process, requests))
        assert set(answers) == {"resource-constraint", None}
        assert process.terminate() == 0
    check_gateway_log(gateway)


def check_gateway_log(gateway: Gateway) -> None:
    logged = [event["tags"]["n"] for event in gateway.events("logs")]
    assert logged == [str(number) for number in range(MESSAGES)]


def all_requests() -> deque[tuple[int, bool]]:
    """Return all requests: the number of the message, and whether it is `deliver` or an offer."""
    return deque((number, delivers) for number in range(MESSAGES) for delivers in (False, True))


async def send(process: Process, requests: deque[tuple[int, bool]]) -> str | None:
    """Send requests until an error, and return its condition; remove those that are answered."""
    async with await bind_session(process, "pump") as client:
        while requests:
            number, delivers = requests[0]
            if delivers:
                answer = await client.deliver(str(number))
            else:
                answer = await client.assured(str(number), log_message(number))
            if answer != ("delivered" if delivers else "received"):
                return answer
            requests.popleft()
    return None
