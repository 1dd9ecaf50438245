"""Benchmark: segments per second that the receiver acknowledges over TLS, durable on disk.

Two `fieldpost-fleet serve` processes run: one with its folder on disk, one with it in memory, where
fsync costs nothing. Each gateway is a kept connection that sends its next segment when the last one
is acknowledged.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks import fleet_data, usage
from benchmarks.report import Settings, Topic, milliseconds, number, table
from firmware_sim.fleet.plan import Plan, make_plans
from sync.common.enrolment import new_token
from sync.common.fleet_folder import FleetFolder
from sync.receiver.gateways import GatewayRegistry
from sync.receiver.pki import Authority
from sync.segment import Event, digest_of, encode, identity_path

GATEWAYS: Final = (1, 8, 32)
"""Numbers of gateways that send at once."""

EVENTS: Final = 500
"""Events of each segment."""

SENT: Final = 1_500
"""Segments of a run, of all gateways together."""

ROUNDS: Final = 5

FRESH: Final = 300
"""Connections that are opened and closed to measure the cost of one."""

MEMORY: Final = Path("/dev/shm")  # noqa: S108
"""A folder in memory on Linux."""

READY_S: Final = 60.0
"""Seconds to the `ready` line, and to a clean stop."""


class Run(NamedTuple):
    """The result of a run: rate, seconds to each answer, and the receiver's processor seconds."""

    rate: float
    waits: Sequence[float]
    loop: float
    threads: float
    seconds: float


class Receiver(NamedTuple):
    """A running receiver and the tokens of its gateways."""

    pid: int
    port: int
    context: ssl.SSLContext
    tokens: dict[str, str]


@dataclass
class Sender:
    """A simulated gateway, which prepares its segments in sequence, each as a whole request."""

    plan: Plan
    events: Sequence[Event]
    first: int = 1
    previous: bytes = bytes(32)
    bodies: list[tuple[str, bytes]] = field(default_factory=list)

    def make(self, count: int) -> None:
        """Prepare the next `count` segments."""
        self.bodies = []
        for _ in range(count):
            last = self.first + len(self.events) - 1
            head = fleet_data.header(self.plan, "readings", self.first, last, self.previous)
            numbered = [
                event._replace(seq=seq) for seq, event in enumerate(self.events, self.first)
            ]
            data = encode(head, numbered)
            self.bodies.append((identity_path(head.identity), data))
            self.first, self.previous = last + 1, digest_of(data)


def measure(settings: Settings) -> Topic:
    """Measure both receivers, alternating."""
    many = max(GATEWAYS)
    fleet = fleet_data.fleet(many, 1)
    events = fleet_data.events_of(fleet, "readings", EVENTS)
    senders = [Sender(plan, events) for plan in make_plans(fleet)]
    runs: dict[tuple[int, bool], list[Run]] = {}
    with ExitStack() as stack:
        memory = stack.enter_context(tempfile.TemporaryDirectory(dir=MEMORY))
        roots = (settings.folder / "landing", Path(memory))
        names = [sender.plan.name for sender in senders]
        both = [stack.enter_context(receiver(root, names)) for root in roots]
        for _ in range(round(settings.choose(ROUNDS, 1))):
            for gateways in GATEWAYS:
                some = senders[:gateways]
                for sender in some:
                    sender.make(round(settings.choose(SENT, 64)) // gateways)
                for at, each in enumerate(both):
                    runs.setdefault((gateways, bool(at)), []).append(run(each, some))
        handshake = asyncio.run(_fresh(both[0], round(settings.choose(FRESH, 20))))
    return Topic("landing", "The receiver", _blocks(runs, len(encode_one(senders[0])), handshake))


def encode_one(sender: Sender) -> bytes:
    """Return the segment that was sent last, to measure its size."""
    return sender.bodies[-1][1]


@contextmanager
def receiver(root: Path, gateways: Sequence[str]) -> Iterator[Receiver]:
    """Enrol gateways in a new folder and run `fieldpost-fleet serve` on it."""
    folder = FleetFolder(root / "fleet")
    folder.create()
    now = datetime.now(UTC)
    Authority(folder.pki).ensure(["127.0.0.1"], now)
    tokens = {name: new_token() for name in gateways}
    for name, token in tokens.items():
        GatewayRegistry(folder).enrol(
            name, "https://127.0.0.1:1", token, int(now.timestamp() * 1000), renew=False
        )
    words = ["serve", "--dir", str(folder.root), "--listen", "127.0.0.1:0", "--reserve", "0"]
    with (root / "receiver.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "sync.cli", *words],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ready https="):
            raise RuntimeError((root / "receiver.log").read_text()[-2000:])
        context = ssl.create_default_context(cafile=str(Authority(folder.pki).ca))
        yield Receiver(process.pid, int(line.rpartition(":")[2]), context, tokens)
        process.terminate()
        process.wait(READY_S)
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def run(to: Receiver, senders: Sequence[Sender]) -> Run:
    """Send all prepared segments, each sender over a connection of its own."""
    return asyncio.run(_run(to, senders))


async def _run(to: Receiver, senders: Sequence[Sender]) -> Run:
    opened = [await asyncio.open_connection("127.0.0.1", to.port, ssl=to.context) for _ in senders]
    requests = [[_request(to, sender, *body) for body in sender.bodies] for sender in senders]
    before, began = usage.processor(to.pid), time.perf_counter()
    waits = await asyncio.gather(
        *(_send(*pair, some) for pair, some in zip(opened, requests, strict=True))
    )
    seconds = time.perf_counter() - began
    used = usage.processor(to.pid).since(before)
    for _, writer in opened:
        writer.close()
        await writer.wait_closed()
    flat = [wait for each in waits for wait in each]
    return Run(len(flat) / seconds, flat, used.main, used.others, seconds)


async def _fresh(to: Receiver, count: int) -> float:
    """Return the receiver's processor seconds for opening and closing a connection."""
    before = usage.processor(to.pid)
    for _ in range(count):
        _, writer = await asyncio.open_connection("127.0.0.1", to.port, ssl=to.context)
        writer.close()
        await writer.wait_closed()
    return sum(usage.processor(to.pid).since(before)) / count


def _request(to: Receiver, sender: Sender, path: str, data: bytes) -> bytes:
    head = (
        f"PUT /v1/segments/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {to.tokens[sender.plan.name]}\r\n"
        f"X-Fieldpost-SHA256: {hashlib.sha256(data).hexdigest()}\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


async def _send(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, requests: Sequence[bytes]
) -> list[float]:
    waits = []
    for request in requests:
        began = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        body = await reader.readexactly(int(length or 0))
        waits.append(time.perf_counter() - began)
        if not head.startswith(b"HTTP/1.1 201"):
            raise RuntimeError(f"the receiver did not accept a segment: {head!r} {body!r}")
    return waits


def _blocks(
    runs: dict[tuple[int, bool], list[Run]], size: int, handshake: float
) -> tuple[str, ...]:
    ratios = [
        (f"{gateways} gateway{'' if gateways == 1 else 's'}", *_spread(_ratios(runs, gateways)))
        for gateways in sorted({gateways for gateways, _ in runs})
    ]
    return (
        f"Segments of {EVENTS} events, about {size:,} bytes each, are sent over TLS with a token"
        " on kept connections, each when the one before is acknowledged. A run has"
        f" {sum(len(r.waits) for r in runs[1, False]) // len(runs[1, False]):,} segments;"
        f" medians of {len(runs[1, False])} alternating runs of each. The sender runs on the same"
        " machine. On disk, a segment is acknowledged after its file and folder are synced; in"
        " memory, the same calls cost nothing. Processor time is the receiver's, in ms per"
        " segment.",
        table(
            ("gateways, folder", "segments/s", "50 %, ms", "99 %, ms", "event loop", "threads"),
            [_row(key, some) for key, some in sorted(runs.items())],
        ),
        "Ratio of the rate on disk to the rate in memory:",
        table(("", "median", "minimum", "maximum"), ratios),
        f"A new connection and its handshake take {handshake * 1e3:.2f} ms of the receiver's"
        " processor time.",
    )


def _ratios(runs: dict[tuple[int, bool], list[Run]], gateways: int) -> list[float]:
    pairs = zip(runs[gateways, False], runs[gateways, True], strict=True)
    return [disk.rate / memory.rate for disk, memory in pairs]


def _spread(ratios: list[float]) -> tuple[str, ...]:
    return tuple(f"{f:.2f}" for f in (statistics.median(ratios), min(ratios), max(ratios)))


def _row(key: tuple[int, bool], runs: list[Run]) -> tuple[object, ...]:
    gateways, memory = key
    waits = [wait for run in runs for wait in run.waits]
    cuts = statistics.quantiles(waits, n=100)
    sent = [len(run.waits) for run in runs]
    return (
        f"{gateways}, {'memory' if memory else 'disk'}",
        number(statistics.median(run.rate for run in runs)),
        milliseconds(cuts[49]),
        milliseconds(cuts[98]),
        milliseconds(sum(run.loop for run in runs) / sum(sent)),
        milliseconds(sum(run.threads for run in runs) / sum(sent)),
    )
