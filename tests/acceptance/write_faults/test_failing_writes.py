"""Tests of a store on a full disk and with failing writes and syncs.

No answered message is lost, and no message is stored twice. The images of rows equal the rows, also
if commands or the clock change the rows between groups.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from edge.engine.store import database
from edge.engine.store.database import Transaction
from edge.features.accounts.store import accounts
from edge.features.queues.service import admin
from edge.features.queues.store import overview
from tests.helpers.write_faults import (
    ALL,
    BROKEN_STATUS,
    SYNCS,
    WORK,
    WRITES,
    Exchange,
    FaultyProcess,
    Run,
    check_complete,
    check_log,
    exchange,
    recover_both,
)


async def test_a_full_disk_refuses_requests_until_space_is_free(
    process: FaultyProcess, whole: Run, points: Callable[[int], list[int]], seed: int
) -> None:
    chance, refused = random.Random(seed), 0
    for number in points(whole.count(WRITES) - 1):
        run = process.run(f"full {number} {number + chance.randrange(12)}")
        assert run.status == 0, number
        assert set(run.done) >= ALL
        refused += run.figures.refused
        check_complete(process.path, run.done)
    assert refused


@pytest.mark.parametrize(("fault", "kinds"), [("broken", SYNCS), ("bad", WRITES)])
async def test_a_failing_disk_ends_the_process_and_loses_nothing(
    process: FaultyProcess,
    whole: Run,
    fault: str,
    kinds: str,
    points: Callable[[int], list[int]],
    tmp_path: Path,
    seed: int,
) -> None:
    chance = random.Random(seed)
    for number in points(whole.count(kinds)):
        last = chance.choice((number, 10_000))
        run = process.run(f"{fault} {number} {last}")
        assert run.status in (0, BROKEN_STATUS), number
        await recover_both(process, run, tmp_path, chance)


class Operator:
    """Changes the database between groups, as commands and the clock do.

    It does so most often while a group that ran in memory waits, which must then run again.
    """

    def __init__(self, path: Path, chance: random.Random) -> None:
        self._path = path
        self._chance = chance

    def __call__(self, exchange: Exchange) -> None:
        chance = self._chance.random()
        if chance < (0.5 if exchange.is_group_behind else 0.05):
            with (
                closing(database.connect(self._path)) as connection,
                database.transaction(connection, exchange.clock()) as tx,
            ):
                self._chance.choice((self._account, self._unlock, self._purge))(tx)
        elif chance < 0.1:
            age = partial(self._settle_time_off, exchange)
            exchange.run_timers(self._chance.choice((0.0, 1.0, 70.0)), age)

    def _account(self, tx: Transaction) -> None:
        """Remove a device that has messages, or add it again."""
        name = self._chance.choice(("absent", "b0", "s0", "w1"))
        if accounts.find(tx, name) is None:
            accounts.add(tx, name, (), trusted=True)
        else:
            accounts.remove(tx, name)

    def _unlock(self, tx: Transaction) -> None:
        row = tx.row("SELECT item FROM queue_items WHERE state = 'locked' ORDER BY id DESC")
        queue = overview.of_node(tx, WORK)
        if row is not None and queue is not None:
            admin.unlock(tx, queue, row[0])

    def _purge(self, tx: Transaction) -> None:
        queue = overview.of_node(tx, WORK)
        if queue is not None:
            admin.purge(tx, queue, 2)

    def _settle_time_off(self, exchange: Exchange, tx: Transaction) -> None:
        before = exchange.clock.service - self._chance.choice((0.0, 5.0))
        for hook in exchange.router.context.hooks.on_time_off:
            hook(tx, before, self._chance.choice((0.5, 100.0)))


async def test_commands_and_the_clock_may_change_rows_between_groups(
    process: FaultyProcess, tmp_path: Path, scale: Callable[[int, int], int], seed: int
) -> None:
    for number in range(scale(5, 200)):
        path = process.copy(tmp_path / str(number))
        operator = Operator(path, random.Random(seed + number))
        await exchange(path, (), lambda _request: None, operator)
        check_log(path)
