"""Benchmark: group commit against one transaction per message, on a real disk, synchronous=FULL.

The units of work are those of the gateway's handlers for an assured exchange. Senders are tasks in
this process that wait for each answer; there are no sockets. For one transaction per message, a
lock around the same store admits one unit at a time.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.exchange_steps import MESSAGES, Exchange, open_senders
from benchmarks.report import Goal, Settings, Topic, number, table
from benchmarks.server import prepare
from edge.engine.store.group_commit import Store

SENDERS: Final = (1, 50, 500)

ROUNDS: Final = 3
"""Measurements of each variant, alternating."""

AIM: Final = 5.0
"""Required ratio of group commit's rate to the other, with `AIM_SENDERS` senders."""

AIM_SENDERS: Final = 50


class Run(NamedTuple):
    """Exchanges per second, and units of work per transaction."""

    rate: float
    units: float


class _Pair(NamedTuple):
    senders: int
    group: list[Run]
    single: list[Run]

    @property
    def ratios(self) -> list[float]:
        return [a.rate / b.rate for a, b in zip(self.group, self.single, strict=True)]


def measure(settings: Settings) -> Topic:
    """Measure both variants, alternating."""
    folder = settings.folder / "commits"
    prepare(folder, max(SENDERS))
    pairs = [asyncio.run(_both(folder, senders, settings)) for senders in SENDERS]
    blocks = (
        "Exchanges per second in one process: the gateway's units of work for an assured exchange"
        " (hold; release and event), each committed before its answer, closed loop. Medians of"
        f" {ROUNDS} rounds in which both variants alternate; the smallest and largest ratio in"
        " brackets.",
        table(
            ("senders", "group commit", "units per commit", "one message per transaction", "ratio"),
            [_row(pair) for pair in pairs],
        ),
    )
    ratio = next(statistics.median(p.ratios) for p in pairs if p.senders == AIM_SENDERS)
    goal = Goal(
        f"with {AIM_SENDERS} senders, group commit is {ratio:.1f} times as fast as one transaction"
        f" per message (goal: {AIM:g})",
        ratio >= AIM,
    )
    return Topic("commit", "Group commit", blocks, [goal])


def _row(pair: _Pair) -> tuple[object, ...]:
    ratios = pair.ratios
    return (
        pair.senders,
        number(statistics.median(run.rate for run in pair.group)),
        number(statistics.median(run.units for run in pair.group)),
        number(statistics.median(run.rate for run in pair.single)),
        f"{statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})",
    )


async def _both(folder: Path, count: int, settings: Settings) -> _Pair:
    store, senders = await open_senders(folder, count)
    pair = _Pair(count, [], [])
    for _ in range(ROUNDS):
        pair.group.append(await _run(store, senders, nullcontext(), settings))
        pair.single.append(await _run(store, senders, asyncio.Lock(), settings))
    await store.close()
    return pair


async def _run(
    store: Store,
    senders: list[list[Exchange]],
    lock: AbstractAsyncContextManager[None],
    settings: Settings,
) -> Run:
    """Run exchanges from all senders for some seconds; each unit runs within `lock`."""
    began, commits = time.perf_counter(), store.commits
    end = began + settings.choose(2.0, 0.2)

    async def send(messages: list[Exchange]) -> int:
        done = 0
        while not done or time.perf_counter() < end:  # at least one, even if the machine stalls
            for unit in messages[done % MESSAGES]:
                async with lock:
                    answer = await store.run(unit)
                if b"type='result'" not in answer:
                    raise RuntimeError(f"an exchange failed: {answer!r}")
            done += 1
        return done

    exchanges = sum(await asyncio.gather(*(send(messages) for messages in senders)))
    rate = exchanges / (time.perf_counter() - began)
    return Run(rate, 2 * exchanges / (store.commits - commits))
