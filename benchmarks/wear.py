"""Benchmark: bytes written to the card per assured exchange, with and without delayed commits.

The units of work are those of the gateway's handlers; senders are tasks in this process that
exchange at a steady rate, out of phase. The bytes are those that the kernel counts for this
process, checkpoints included, read by `edge.engine.limits.flash_meter` as in the gateway. Both
variants alternate on one database.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.exchange_steps import MESSAGES, Exchange, open_senders
from benchmarks.report import Goal, Settings, Topic, milliseconds, number, table
from benchmarks.server import prepare
from edge.config.options import Flash
from edge.engine.limits import flash_meter
from edge.engine.store import database
from edge.engine.store.group_commit import Store

SENDERS: Final = 50

RATE: Final = 5.0
"""Exchanges per second of each sender."""

ROUNDS: Final = 3

WINDOW: Final = Flash().commit_wait

AIM: Final = 0.5
"""Largest share of the bytes that may remain with delayed commits."""


class Run(NamedTuple):
    """Per exchange: bytes written, database pages, commits, and the median of seconds."""

    written: float
    pages: float
    commits: float
    seconds: float


def measure(settings: Settings) -> Topic:
    """Measure both variants, alternating."""
    folder = settings.folder / "wear"
    prepare(folder, SENDERS)
    runs = asyncio.run(_both(folder, settings))
    ratios = [after.written / before.written for before, after in runs if before.written]
    ratio = statistics.median(ratios) if ratios else 1.0
    blocks = (
        f"{SENDERS} senders with {RATE:g} assured exchanges per second each, in one process: the"
        " gateway's units of work (hold; release and event), answered after their commit. The"
        " bytes are those that the kernel counts for the process; pages are the bytes that the"
        f" process wrote to files, divided by {database.PAGE_BYTES}. Medians of {ROUNDS} rounds"
        " in which both variants alternate.",
        table(
            ("delay of commits", "bytes per exchange", "pages", "commits", "ms per exchange"),
            [
                _row("none", [before for before, _ in runs]),
                _row(f"{WINDOW * 1000:g} ms", [after for _, after in runs]),
            ],
        ),
        "The additional writes of the card's controller are unknown. An exchange has two"
        " consecutive units of work, and each is delayed.",
    )
    goal = Goal(
        f"with the delay, {ratio:.2f} of the bytes are written (goal: at most {AIM:g})",
        ratio <= AIM,
    )
    return Topic("wear", "Flash wear", blocks, [goal])


def _row(name: str, runs: list[Run]) -> tuple[object, ...]:
    written, pages, commits, seconds = (statistics.median(each) for each in zip(*runs, strict=True))
    return name, number(written), number(pages), number(commits), milliseconds(seconds)


async def _both(folder: Path, settings: Settings) -> list[tuple[Run, Run]]:
    store, senders = await open_senders(folder, SENDERS)
    runs = []
    for _ in range(ROUNDS):
        pair = []
        for window in (0.0, WINDOW):
            store.commit_window.min_interval = window
            pair.append(await _run(store, senders, settings))
        runs.append((pair[0], pair[1]))
    await store.close()
    return runs


async def _run(store: Store, senders: list[list[Exchange]], settings: Settings) -> Run:
    count = round(settings.choose(30, 1) * RATE)
    before, commits = flash_meter.kernel_counters(), store.writes
    times: list[float] = []

    async def send(index: int, messages: list[Exchange]) -> None:
        begin = time.perf_counter() + index / SENDERS / RATE
        for done in range(count):
            due = begin + done / RATE
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            began = time.perf_counter()
            for unit in messages[done % MESSAGES]:
                if b"type='result'" not in await store.run(unit):
                    raise RuntimeError("an exchange failed")
            times.append(time.perf_counter() - began)

    await asyncio.gather(*(send(index, messages) for index, messages in enumerate(senders)))
    after, exchanges = flash_meter.kernel_counters(), count * len(senders)
    return Run(
        (after.written - before.written) / exchanges,
        (after.given - before.given) / database.PAGE_BYTES / exchanges,
        (store.writes - commits) / exchanges,
        statistics.median(times),
    )
