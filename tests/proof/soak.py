"""Prove that a gateway neither grows nor loses a message in an hour of work.

`python -m tests.proof.soak` runs a gateway and its centre. Devices by XMPP and MQTT come and go;
the configuration is reloaded, the certificates of devices, of the gateway and of its centre's
client are replaced, and segments are sealed and shipped. At first all of this happens at full
speed. Then memory, descriptors, threads, the write-ahead log and the database are sampled, and
after a warm-up, the slope of each must be 0 within its interval (`tests.proof.slopes`). Each
acknowledged message must be logged once. Exit status: 0 passed, 1 failed.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from benchmarks import machine
from benchmarks.report import table
from edge.engine.store import database
from firmware_sim.scenarios.verdict import Verdict
from tests.helpers.gateway import DOMAIN
from tests.helpers.pki import issue_server
from tests.helpers.processes import Process
from tests.proof.site import Load, Pace, Site
from tests.proof.slopes import Slope, slope

XMPP, MQTT = 10, 10
FULL_S: Final = 120.0
FULL_CHANGE_S: Final = 0.1
"""Seconds at full speed at first, with as many sessions and changes as in an hour, so that caches
and the heap reach their size; and seconds between two changes then."""

SESSION: Final = 20
"""Messages of a device's session, on the average."""

SHOWN: Final = 12
"""Samples that the page shows, or one more."""

SAMPLE_S: Final = 5.0
CHANGE_S: Final = 30.0
"""Seconds between two samples, and between two changes of the configuration and certificates."""

ENROL_EVERY: Final = 10
"""Changes of which one renews the enrolment."""
CERTIFY_EVERY: Final = 4
"""Changes of which one renews a device's certificate: the database keeps what is revoked."""

WARM_UP: Final = 0.25
"""The fraction of the samples that is not judged: all reach their limits."""

LIMITS: Final[dict[str, object]] = {
    "segment_age": 10.0,
    "recent_bytes": 65_536,
    "released_keys": 16,
    "heartbeat": 10.0,
}
"""Limits that are reached in the warm-up."""


class Sample(NamedTuple):
    """Resources that a gateway uses at a time in seconds; sizes are in bytes.

    Memory is resident memory without the pages of files, such as programs, which the kernel takes
    back and reads again. The database is the pages in use, without those of `revoked`: the
    certificates of devices, almost all of which are revoked. They grow as the operator revokes
    more.
    """

    at: float
    memory: float
    descriptors: float
    threads: float
    wal: float
    database: float
    revoked: float


MEASURES: Final = Sample._fields[1:]
MAY_GROW: Final = "revoked"

_PAGES: Final = "SELECT name GLOB 'certificates*', sum(pgsize) FROM dbstat GROUP BY 1 ORDER BY 1"


def sample(at: float, process: psutil.Process, folder: Path) -> Sample:
    file = folder / database.FILE_NAME
    wal = file.with_name(f"{file.name}-wal").stat().st_size
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        sizes = [size for _, size in connection.execute(_PAGES)]
    with process.oneshot():
        pages = process.memory_info()
        memory = pages.rss - pages.shared
        used = memory, process.num_fds(), process.num_threads()
    return Sample(at, *map(float, (*used, wal, *sizes)))


def slopes(samples: Sequence[Sample]) -> dict[str, Slope]:
    """Return the slope of each measure after the warm-up, per hour."""
    begin = samples[0].at + WARM_UP * (samples[-1].at - samples[0].at)
    judged = [one for one in samples if one.at >= begin]
    hours = [one.at / 3600 for one in judged]
    return {name: slope(hours, [getattr(one, name) for one in judged]) for name in MEASURES}


class Changes:
    """What an operator changes in a running gateway, and how often each was done."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.reloads = self.certificates = self.enrolments = 0

    async def run(self, interval: float, stop: asyncio.Event) -> None:
        """Change one thing after another until `stop`."""
        while True:
            try:
                await asyncio.wait_for(stop.wait(), interval)
                return
            except TimeoutError:
                await asyncio.to_thread(self._change)

    def _change(self) -> None:
        site, gateway = self._site, self._site.gateway
        if self.reloads % CERTIFY_EVERY == 0:
            name = site.xmpp[self.certificates % len(site.xmpp)]
            gateway.command("device", "certificate", name, "--revoke-old")
            self.certificates += 1
        issue_server(gateway.folder, DOMAIN, 25)
        gateway.configure(sessions_per_account=8 + self.reloads % 2)
        if self.reloads % ENROL_EVERY == 0:
            site.enrol("--renew")
            self.enrolments += 1
        site.reload()
        self.reloads += 1


class Result(NamedTuple):
    """The result of a run; `full` is the full speed, and `rate` that of the run, in messages per
    second."""

    full: float
    rate: float
    samples: list[Sample]
    verdict: Verdict
    load: Load
    changes: Changes
    segments: int


async def _watch(samples: list[Sample], pid: int, folder: Path) -> None:
    process, clock = psutil.Process(pid), asyncio.get_running_loop().time
    while True:
        samples.append(sample(clock(), process, folder))
        await asyncio.sleep(SAMPLE_S)


async def _send(
    load: Load, process: Process, changes: Changes, interval: float, change: float, seconds: float
) -> None:
    """Let devices send, and change something every `change` seconds, for some seconds."""
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, stop.set)
    async with asyncio.TaskGroup() as group:
        changing = group.create_task(changes.run(change, stop))
        await load.send(process, Pace(interval, SESSION), stop)
        await changing


async def _work(
    site: Site, load: Load, changes: Changes, process: Process, seconds: float, rate: float
) -> tuple[float, float, list[Sample]]:
    full_s = min(FULL_S, seconds / 4)
    await _send(load, process, changes, 0.0, FULL_CHANGE_S, full_s)
    full = load.count() / full_s
    rate = rate or full / 2
    samples: list[Sample] = []
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(_watch(samples, process.pid, site.gateway.folder))
        interval = len(load.devices) / rate
        await _send(load, process, changes, interval, CHANGE_S, seconds - full_s)
        watching.cancel()
    return full, rate, samples


def run(folder: Path, seconds: float, rate: float = 0.0) -> Result:
    """Run a gateway in a folder for some seconds, at `rate` messages per second in total; 0 is half
    of its full speed."""
    site = Site(folder, XMPP, MQTT, **LIMITS)
    load, changes = Load(site), Changes(site)
    with site.run_centre(), site.gateway.run() as process:
        try:
            full, rate, samples = asyncio.run(_work(site, load, changes, process, seconds, rate))
        except BaseException as error:
            error.add_note(f"lost: {sum((each.lost for each in load.devices), Counter())}")
            error.add_note(f"the gateway: {process.stderr}")
            raise
        assert process.terminate() == 0, process.stderr
    segments = len(list(site.fleet.landing.rglob("*.seg")))
    return Result(full, rate, samples, site.judge(load.devices), load, changes, segments)


def passed(result: Result) -> bool:
    """Return whether each measure but `MAY_GROW` is flat, and the verdict is exact."""
    found = slopes(result.samples)
    return result.verdict.exact and all(found[name].is_flat for name in found if name != MAY_GROW)


def page(result: Result, head: str) -> str:
    """Write the page of a result; `head` says when and where it ran."""
    load, changes = result.load, result.changes
    sessions = sum(device.connected for device in load.devices)
    first, last = result.samples[0], result.samples[-1]
    course = [
        (f"{(one.at - first.at) / 60:.0f}", *(f"{value:,.0f}" for value in one[1:]))
        for one in result.samples[:: max(len(result.samples) // SHOWN, 1)]
    ]
    rows = [
        (
            name,
            f"{max(getattr(one, name) for one in result.samples):,.0f}",
            f"{found.estimate:,.0f}",
            f"{found.low:,.0f} to {found.high:,.0f}",
            "yes" if found.is_flat else "grows with revocations" if name == MAY_GROW else "**no**",
        )
        for name, found in slopes(result.samples).items()
    ]
    parts = (
        "# An hour of work",
        "One gateway with TLS, and its centre. Devices by XMPP (assured messages) and MQTT (levels"
        " 0, 1 and 2) come and go. Certificates are issued, the older ones revoked, and the"
        " configuration is reloaded. The first minutes are at full speed; after a quarter of the"
        " rest, the slope of what the gateway uses must be 0 within its interval of 99 % (Theil and"
        " Sen, on medians of blocks).",
        head,
        f"{(last.at - first.at) / 60:.0f} minutes at {result.rate:.1f} messages per second,"
        f" after some at full speed ({result.full:.0f}): {sessions:,} sessions;"
        f" {changes.reloads} reloads, each with a new server certificate; {changes.certificates}"
        f" certificates of devices, {changes.enrolments} enrolments with new credentials;"
        f" {result.segments:,} segments.",
        table(("", "largest", "slope per hour", "interval", "0?"), rows),
        "Memory is resident bytes without the pages of files, such as programs, which the kernel"
        " takes back and reads again; the write-ahead log (`wal`) is the bytes of its file; the"
        " database is the bytes of its pages in use, and `revoked` those of its devices'"
        " certificates, which stay after they are revoked. Some of the samples:",
        table(("minute", *MEASURES), course),
        "Time from sending a message until it is acknowledged:",
        table(("level", "messages", "median, ms", "99 %, ms", "largest, ms"), load.latencies(0.0)),
        "Messages of levels 1 and 2, compared with the log of the gateway and its centre:",
        "```\n" + "\n".join(result.verdict.lines()) + "\n```",
    )
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.soak")
    parser.add_argument("--minutes", type=float, default=60.0, help="duration of the run")
    parser.add_argument(
        "--rate", type=float, default=0.0, help="messages per second; 0: half of the full speed"
    )
    parser.add_argument("--out", type=Path, help="file for the page")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = "  \n".join(
            (
                f"Command: `make soak MINUTES={arguments.minutes:g} RATE={arguments.rate:g}`.",
                f"Began {datetime.now(UTC):%Y-%m-%d %H:%M} UTC.",
                machine.environment(folder),
            )
        )
        result = run(folder, 60 * arguments.minutes, arguments.rate)
    text = page(result, words)
    if arguments.out:
        arguments.out.write_text(text, "utf-8")
    sys.stdout.write(text)
    sys.exit(not passed(result))


if __name__ == "__main__":
    main()
