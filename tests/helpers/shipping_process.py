"""A gateway's uplink as a process that tests kill."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from pathlib import Path

from edge.config import annotated_file, load
from edge.engine.store import events
from edge.engine.store.database import Transaction
from edge.engine.store.events import READINGS, NewEvent
from edge.engine.store.group_commit import Store
from edge.uplink.backlog import StoreBacklog
from sync.common.enrolment import read_enrolment
from sync.uplink.batcher import BatchLimits
from sync.uplink.http_client import HttpsLimits
from sync.uplink.https_transport import HttpsTransport
from sync.uplink.sealer import Sealer
from sync.uplink.uploader import Uploader
from sync.uplink.wakeup import Wakeup
from tests.helpers.backlog import FixedState
from tests.helpers.store import DOMAIN, opened

LIMITS = HttpsLimits(bandwidth=65_536)
"""A bandwidth limit, so that each piece of a body is a step; the clock does not advance."""


def event_text(seq: int) -> str:
    """Return the text of an event: sometimes long and incompressible."""
    return random.Random(seq).randbytes(4_000 if seq % 3 else 10).hex()


async def report(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def short_pause(_seconds: float) -> None:
    """Print that a piece of a body is sent, instead of waiting for its time."""
    await report("piece")
    await asyncio.sleep(0)


async def log(store: Store, count: int) -> None:
    """Log readings in one transaction; print the last number when it is durable."""

    def unit(tx: Transaction) -> int:
        _sealed, last = events.last_numbers(tx, READINGS)
        for seq in range(last + 1, last + 1 + count):
            events.append(tx, READINGS, NewEvent("reading", text=event_text(seq)))
        return last + count

    await report("logged", await store.run(unit))


async def run_uplink(store: Store, enrolment: Path, chance: random.Random, finish: bool) -> None:
    """Log, seal and ship forever, or ship what waits and exit."""
    settings = load.parse(annotated_file.render(DOMAIN).encode())
    backlog = StoreBacklog(store, settings, FixedState())
    read = read_enrolment(enrolment)
    transport = HttpsTransport(read, LIMITS, clock=lambda: 0.0, sleep=short_pause)
    wakeup = Wakeup(lambda seconds: asyncio.sleep(min(seconds, 0.02)))
    uploader = Uploader(DOMAIN, backlog, transport, send_notice=backlog.log_notice, wakeup=wakeup)
    sealer = Sealer(
        DOMAIN,
        backlog,
        backlog.facts,
        BatchLimits(events=64),
        clock=lambda: 0.0,
        on_sealed=uploader.wake,
        send_notice=backlog.log_notice,
    )
    task = asyncio.create_task(uploader.run())
    while not finish:
        await log(store, chance.randrange(1, 120))
        await report("sealed", await sealer.flush())
        if chance.random() < 0.7:
            await backlog.empty()
            await report("shipped")
    await sealer.flush()
    await backlog.empty()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await transport.close()


async def main() -> None:
    path, enrolment, seed, *finish = sys.argv[1:]
    async with opened(Path(path)) as store:
        await report("open")
        await run_uplink(store, Path(enrolment), random.Random(seed), bool(finish))


if __name__ == "__main__":
    asyncio.run(main())
