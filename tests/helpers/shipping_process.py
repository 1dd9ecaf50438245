"""A gateway's uplink as a process that tests kill."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from pathlib import Path

from edge.config import annotated_file, load
from edge.engine import events
from edge.engine.database import Transaction
from edge.engine.events import READINGS, NewEvent
from edge.engine.group_commit import Store
from edge.uplink.backlog import StoreBacklog
from sync.common.enrolment import read_enrolment
from sync.uplink import (
    BatchLimits,
    HttpsLimits,
    HttpsTransport,
    Sealer,
    Uploader,
    Wakeup,
)
from tests.helpers.backlog import FixedFacts
from tests.helpers.store import DOMAIN, opened

PACED = HttpsLimits(bandwidth=65_536)
"""A cap, so that each piece of a body is a step: the clock stands still, and nobody waits."""

LAST = "SELECT last FROM lanes WHERE lane = 'readings'"


def text_of(seq: int) -> str:
    """What the event of a number says: at times much, that does not shrink."""
    return random.Random(seq).randbytes(4_000 if seq % 3 else 10).hex()


async def say(*words: object) -> None:
    """Tell a step."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def piece(_seconds: float) -> None:
    """Tell that a piece of a body is to go, in place of waiting for its time."""
    await say("piece")
    await asyncio.sleep(0)


async def log(store: Store, count: int) -> None:
    """Log so many readings in one transaction; say the last number when it is durable."""

    def unit(tx: Transaction) -> int:
        ((last,),) = tx.rows(LAST)
        for seq in range(last + 1, last + 1 + count):
            events.append(tx, READINGS, NewEvent("reading", text=text_of(seq)))
        return int(last) + count

    await say("logged", await store.run(unit))


async def work(store: Store, enrolment: Path, chance: random.Random, finish: bool) -> None:
    """Log, seal and ship for ever, or ship what waits and end."""
    settings = load.parse(annotated_file.render(DOMAIN).encode())
    backlog = StoreBacklog(store, settings, FixedFacts())
    transport = HttpsTransport(read_enrolment(enrolment), PACED, clock=lambda: 0.0, sleep=piece)
    bell = Wakeup(lambda seconds: asyncio.sleep(min(seconds, 0.02)))
    uploader = Uploader(DOMAIN, backlog, transport, send_notice=backlog.log_notice, wakeup=bell)
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
        await say("sealed", await sealer.flush())
        if chance.random() < 0.7:
            await backlog.empty()
            await say("shipped")
    await sealer.flush()
    await backlog.empty()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await transport.close()


async def main() -> None:
    """Open the store and work."""
    path, enrolment, seed, *finish = sys.argv[1:]
    async with opened(Path(path)) as store:
        await say("open")
        await work(store, Path(enrolment), random.Random(seed), bool(finish))


if __name__ == "__main__":
    asyncio.run(main())
