"""Measure a gateway on a small machine, such as a Raspberry Pi Zero 2 W.

`python -m tests.proof.small_machine` runs a gateway, alone in a control group, with 512 MB of
memory, no swap and a quarter of a processor; each fsync takes 20 ms longer, as on a card. Devices
and the centre run outside. Phases: devices send a message a second each; the uplink is down until
100,000 events wait; it is up again until these have been shipped; hostile senders flood. No message
may be lost or repeated, and the gateway must never be killed. Exit status: 0 passed, 1 failed. It
needs root and a C compiler.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import machine, native, usage
from benchmarks.report import table
from edge.ops.devices import devices
from firmware_sim.attackers.__main__ import ALL, Order
from firmware_sim.attackers.accounts import AWAY, VICTIM
from firmware_sim.scenarios.verdict import Verdict
from tests.helpers.gateway import DOMAIN, PASSWORD
from tests.helpers.processes import Process, start
from tests.proof.group import Group, Version, limited, version
from tests.proof.site import Load, Pace, Site

MEMORY: Final = 512 * 2**20
PROCESSOR: Final = 0.25
FSYNC_US: Final = 20_000
XMPP, MQTT = 25, 25
INTERVAL_S: Final = 1.0

READY_S: Final = 300.0
BACKLOG_S: Final = 3600.0
"""Seconds until the backlog must exist."""
SHIPPED_S: Final = 1800.0
"""Seconds until it must be shipped."""
FLOOD_S: Final = 60.0
FLOOD_RATE: Final = 500.0
"""Stanzas per second of a hostile sender."""
LOOK_S: Final = 1.0
"""Seconds between two looks at the backlog."""


class Scale(NamedTuple):
    """Extent of a run: seconds of sending, events of the backlog, seconds of the flood."""

    seconds: float
    backlog: int
    flood: float


class Phase(NamedTuple):
    """A phase of the run: what happened in it, its begin and end, and the resident bytes then."""

    name: str
    begin: float
    end: float
    memory: int


class Result(NamedTuple):
    """The result of a run.

    Attributes:
        started: seconds from the start of the process until it is ready.
        idle: resident bytes then.
        peak: the largest number of resident bytes.
        group: the largest use of memory of the group, the cache of files included.
        kills: processes that were killed for lack of memory.
        waiting: events that waited when the uplink came back.
        hostile: stanzas that hostile senders have sent, and refusals that they have received.
    """

    started: float
    idle: int
    peak: int
    group: int
    kills: int
    waiting: int
    hostile: tuple[int, int]
    phases: list[Phase]
    load: Load
    verdict: Verdict

    @property
    def passed(self) -> bool:
        """Return whether nothing was lost or repeated and nothing was killed."""
        return self.verdict.exact and not self.kills


class Run:
    """A gateway in its group, its devices, and what happened so far."""

    def __init__(self, site: Site, process: Process) -> None:
        self.load = Load(site)
        self.phases: list[Phase] = []
        self._site = site
        self._process = process

    @asynccontextmanager
    async def phase(self, name: str, interval: float = INTERVAL_S) -> AsyncIterator[None]:
        """Let the devices send, a message in each interval, while the block runs."""
        clock, stop = asyncio.get_running_loop().time, asyncio.Event()
        begin = clock()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.load.send(self._process, Pace(interval), stop))
            try:
                yield
            finally:
                stop.set()
        self.phases.append(Phase(name, begin, clock(), usage.memory(self._process.pid).rss))

    async def wait_for_backlog(self, events: int) -> int:
        """Wait until so many events wait for the centre; return their number."""

        async def waiting() -> int:
            return await self._numbers("last") - await self._numbers("settled")

        async with asyncio.timeout(BACKLOG_S):
            while (found := await waiting()) < events:  # noqa: ASYNC110 - other processes write
                await asyncio.sleep(LOOK_S)
        return found

    async def wait_until_shipped(self) -> None:
        """Wait until the centre has all segments that exist now."""
        sealed = await self._numbers("sealed")
        async with asyncio.timeout(SHIPPED_S):
            while await self._numbers("settled") < sealed:  # noqa: ASYNC110 - another process ships
                await asyncio.sleep(LOOK_S)

    async def _numbers(self, name: str) -> int:
        assert self._process.returncode is None, self._process.stderr
        return await asyncio.to_thread(self._site.numbers, name)

    async def flood(self, seconds: float) -> tuple[int, int]:
        """Run all attacks for some seconds; return the numbers of stanzas and refusals."""
        place = (*self._process.host_port("xmpp"), DOMAIN, str(self._site.gateway.ca), PASSWORD)
        order = Order(*place, seconds, 0.0, FLOOD_RATE, (), False)
        pipe = asyncio.subprocess.PIPE
        argv = (sys.executable, "-m", "firmware_sim.attackers")
        attackers = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe)
        try:
            async with asyncio.timeout(seconds + READY_S):
                output, _ = await attackers.communicate(json.dumps(asdict(order)).encode())
        finally:
            if attackers.returncode is None:
                attackers.kill()
                await attackers.wait()
        counts = json.loads(output).values()
        return sum(one["sent"] for one in counts), sum(one["refused"] for one in counts)


async def _work(site: Site, process: Process, scale: Scale) -> tuple[Run, int, tuple[int, int]]:
    run = Run(site, process)
    centre = await asyncio.to_thread(site.run_centre)
    try:
        async with run.phase("a message a second"):
            await asyncio.sleep(scale.seconds)
        await asyncio.to_thread(centre.kill9)
        centre.close()
        async with run.phase("no uplink, as fast as possible", 0.0):
            waiting = await run.wait_for_backlog(scale.backlog)
        centre = await asyncio.to_thread(site.run_centre)
        async with run.phase("the backlog is shipped"):
            await run.wait_until_shipped()
        async with run.phase("flood"):
            hostile = await run.flood(scale.flood)
        async with run.phase("after the flood"):
            await asyncio.sleep(scale.seconds / 10)
    finally:
        centre.close()
    return run, waiting, hostile


def run(folder: Path, groups: Version, scale: Scale, xmpp: int = XMPP, mqtt: int = MQTT) -> Result:
    """Run a gateway in a folder, alone in a control group."""
    site = Site(folder, xmpp, mqtt)
    for name in (VICTIM, AWAY):
        devices.add(site.gateway.folder, name, PASSWORD, trusted=True)
    for attack in ALL:
        if attack.account:
            devices.add(site.gateway.folder, attack.account, PASSWORD, trusted=attack.trusted)
    library = native.build(*native.SLOW_FSYNC)
    slow = {"LD_PRELOAD": str(library), "FSYNC_DELAY_US": str(FSYNC_US)}
    with limited(groups, MEMORY, PROCESSOR) as group, _gateway(site, group, slow) as process:
        began = time.monotonic()
        process.wait_ready(READY_S)
        started, idle = time.monotonic() - began, usage.memory(process.pid).rss
        run, waiting, hostile = asyncio.run(_work(site, process, scale))
        peaks = usage.peak(process.pid), group.peak()
        assert process.terminate(READY_S) == 0, process.stderr
        kills = group.kills()
    verdict = site.judge(run.load.devices)
    return Result(started, idle, *peaks, kills, waiting, hostile, run.phases, run.load, verdict)


def _gateway(site: Site, group: Group, environment: dict[str, str]) -> Process:
    program = Path(sys.executable).with_name("fieldpost")
    argv = group.command(program, "run", "--dir", site.gateway.folder)
    return start(*argv, ready=False, env=environment)


def page(result: Result, head: str) -> str:
    """Write the page of a result; `head` says when and where it ran."""
    rows: list[tuple[Any, ...]] = []
    for phase in result.phases:
        begin, end = phase.begin, phase.end
        for level, count, *latency in result.load.latencies(begin, end):
            per_second = f"{int(count.replace(',', '')) / (end - begin):.1f}"
            rows.append((phase.name, f"{end - begin:.0f}", level, count, per_second, *latency))
    memory: list[tuple[Any, ...]] = [
        ("ready", f"{result.idle / 1e6:.0f}"),
        *((phase.name, f"{phase.memory / 1e6:.0f}") for phase in result.phases),
        ("largest", f"{result.peak / 1e6:.0f}"),
        ("largest of the group, with the cache of files", f"{result.group / 1e6:.0f}"),
    ]
    lost = sum(device.lost.total() for device in result.load.devices)
    parts = (
        "# A small machine",
        "A gateway alone in a control group with 512 MiB of memory, no swap and a quarter of a"
        " processor; each fsync takes 20 ms longer. Half of the devices send assured messages by"
        " XMPP, half at the levels 0, 1 and 2 by MQTT, all with TLS. Devices, the centre and the"
        " hostile senders run outside the group. A quarter of a processor is one of the machine"
        " below; the cores of a Raspberry Pi are slower.",
        head,
        f"Start: ready after {result.started:.1f} seconds. The uplink came back with"
        f" {result.waiting:,} events waiting. Hostile senders sent {result.hostile[0]:,} stanzas"
        f" and received {result.hostile[1]:,} refusals. Processes killed for lack of memory:"
        f" {result.kills}. Connections of the devices that were lost: {lost}.",
        "Time from sending a message until it is acknowledged:",
        table(
            ("phase", "seconds", "level", "messages", "per second", "median, ms", "99 %, ms",
             "largest, ms"), rows,
        ),
        "Resident memory at the end of each phase. The group's has no pages of libraries that"
        " other processes use, too.",
        table(("", "MB"), memory),
        "Messages of levels 1 and 2, compared with the log of the gateway and its centre:",
        "```\n" + "\n".join(result.verdict.lines()) + "\n```",
    )  # fmt: skip
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.small_machine")
    parser.add_argument("--minutes", type=float, default=10.0, help="minutes of sending")
    parser.add_argument("--backlog", type=int, default=100_000, help="events of the backlog")
    parser.add_argument("--out", type=Path, help="file for the page")
    arguments = parser.parse_args()
    groups = version()
    if groups is None:
        parser.error("this user cannot make control groups with memory and processor limits")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = "  \n".join(
            (
                f"Command: `python -m tests.proof.small_machine --minutes {arguments.minutes:g}"
                f" --backlog {arguments.backlog}`.",
                f"Began {datetime.now(UTC):%Y-%m-%d %H:%M} UTC.",
                machine.environment(folder),
            )
        )
        scale = Scale(60 * arguments.minutes, arguments.backlog, FLOOD_S)
        result = run(folder, groups, scale)
    text = page(result, words)
    if arguments.out:
        arguments.out.write_text(text, "utf-8")
    sys.stdout.write(text)
    sys.exit(not result.passed)


if __name__ == "__main__":
    main()
