"""Group commit against one transaction a message, on a real disk, with synchronous=FULL.

The units of work are those that the gateway's handlers make of an assured exchange. Senders are
tasks in this process that each wait for their answer; there are no sockets. One transaction a
message is the same store, where the next unit comes when the one before it is committed.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.report import Goal, Settings, Topic, number, table
from benchmarks.server import prepare
from benchmarks.subject import LIMITS, MESSAGES, Exchange, Subject
from edge.engine import database
from edge.engine.clock import Clock
from edge.engine.group_commit import Store, UnitLimits

SENDERS: Final = (1, 50, 500)

ROUNDS: Final = 3
"""Measurements of each, the two ways in turn."""

AIM: Final = 5.0
"""Times that group commit is to be faster with `AIM_SENDERS`."""

AIM_SENDERS: Final = 50


class Run(NamedTuple):
    """Exchanges a second, and units of work in one transaction."""

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
    """Measure both ways, in turn."""
    folder = settings.folder / "commits"
    prepare(folder, max(SENDERS))
    pairs = [asyncio.run(_both(folder, senders, settings)) for senders in SENDERS]
    blocks = (
        "Exchanges a second in one process: the real units of work of an assured exchange (hold;"
        " release and event), each committed before its answer, closed loop. The median of"
        f" {ROUNDS} rounds, the two ways in turn; in brackets the least and the greatest ratio.",
        table(
            ("senders", "group commit", "units a commit", "one a transaction", "ratio"),
            [_row(pair) for pair in pairs],
        ),
    )
    ratio = next(statistics.median(p.ratios) for p in pairs if p.senders == AIM_SENDERS)
    goal = Goal(
        f"group commit is {ratio:.1f} times one transaction a message with {AIM_SENDERS} senders"
        f" (to reach: {AIM:g})",
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
    bounds = UnitLimits(LIMITS.waiting_units, LIMITS.waiting_bytes)
    store = await Store.open(folder / database.FILE_NAME, Clock(0.0), bounds)
    subjects = [Subject(number) for number in range(count)]
    for subject in subjects:
        await store.run(subject.appear)
    senders = [[subject.units() for _ in range(MESSAGES)] for subject in subjects]
    pair = _Pair(count, [], [])
    for _ in range(ROUNDS):
        pair.group.append(await _run(store, senders, nullcontext(), settings))
        pair.single.append(await _run(store, senders, asyncio.Lock(), settings))
    await store.close()
    return pair


async def _run(
    store: Store,
    senders: list[list[Exchange]],
    turn: AbstractAsyncContextManager[None],
    settings: Settings,
) -> Run:
    """Let all senders exchange for a time; `turn` is what a sender holds while a unit runs."""
    began, commits = time.perf_counter(), store.commits
    end = began + settings.choose(2.0, 0.2)

    async def send(messages: list[Exchange]) -> int:
        done = 0
        while not done or time.perf_counter() < end:  # one at least, if the machine stands still
            for unit in messages[done % MESSAGES]:
                async with turn:
                    answer = await store.run(unit)
                if b"type='result'" not in answer:
                    raise RuntimeError(f"an exchange failed: {answer!r}")
            done += 1
        return done

    exchanges = sum(await asyncio.gather(*(send(messages) for messages in senders)))
    rate = exchanges / (time.perf_counter() - began)
    return Run(rate, 2 * exchanges / (store.commits - commits))
