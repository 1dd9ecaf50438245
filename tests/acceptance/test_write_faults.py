"""Tests of a store that is killed at any write or sync, of a full disk, and of failing syncs.

While a group is committed, units of other senders run in memory. Afterwards the senders repeat
unanswered requests: no answered message is lost, and no message is stored twice. The images of rows
equal the rows, also if commands or the clock change the rows between groups.
"""

from __future__ import annotations

import copy
import random
import shutil
import signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from edge.engine.rules import commit_window
from edge.engine.store import database
from edge.engine.store.database import Transaction
from edge.features.accounts.store import accounts
from edge.features.custody import store as custody
from edge.features.queues.service import admin
from edge.features.queues.store import overview
from tests.helpers import power_cut
from tests.helpers.gateway import Gateway, bind_session
from tests.helpers.power_cut import Disk, Recorder
from tests.helpers.processes import Process, start
from tests.helpers.write_faults import (
    ALL,
    BROKEN_STATUS,
    SMALL,
    WORK,
    Exchange,
    FaultyProcess,
    Request,
    Run,
    check,
    check_complete,
    check_log,
    exchange,
)
from tests.helpers.xmpp import log_message

SPREAD = 5
CALLS, WRITES, SYNCS = "WTSDU", "W", "SD"  # as in `write_log.c`


@pytest.fixture(scope="module", params=["slow disk", "fast disk"])
def process(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FaultyProcess]:
    if power_cut.compiler() is None:
        pytest.skip("no C compiler: gcc makes the library that fails writes")
    slow = request.param == "slow disk"
    with FaultyProcess(tmp_path_factory.mktemp("faults"), slow=slow) as process:
        yield process


@pytest.fixture(scope="module")
def whole(process: FaultyProcess) -> Run:
    """Run without a fault."""
    run = process.run()
    assert (run.status, run.figures.refused) == (0, 0)
    assert set(run.done) >= ALL
    assert (run.figures.behind > 6) is process.slow
    check_complete(process.path, run.done)
    return run


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_window, "SLOW_COMMIT", -1.0)
    for name, value in SMALL.items():
        monkeypatch.setattr(custody, name, value)


@pytest.fixture
def points(scale: Callable[[int, int], int], seed: int) -> Callable[[int], list[int]]:
    """Select calls by number: all of them, or some that are spread over the run."""

    def selected(count: int) -> list[int]:
        chance, parts = random.Random(seed), scale(SPREAD, count)
        edges = [1 + part * count // parts for part in range(parts + 1)]
        return [chance.randrange(first, end) for first, end in pairwise(edges)]

    return selected


def was_killed(run: Run, kinds: str, number: int) -> bool:
    """Return whether a run was killed at a call; one that made fewer calls ended before."""
    return run.status == -signal.SIGKILL or (run.status == 0 and run.count(kinds) < number)


async def recover(path: Path, done: list[Request]) -> None:
    """Check the database, let the senders continue, and check it again."""
    check(path, done)
    answered: list[Request] = []
    await exchange(path, done, answered.append)
    assert {*done, *answered} >= ALL
    check_complete(path, {*done, *answered})


async def recover_both(
    process: FaultyProcess, run: Run, folder: Path, chance: random.Random
) -> None:
    """Recover the process's database, and that which a power cut at this moment would leave."""
    await recover(process.path, run.done)
    cut = folder / "cut"
    run.disk.cut(run.folder, cut, chance)
    await recover(cut / database.FILE_NAME, run.done)
    shutil.rmtree(cut)


async def test_a_kill_before_any_call_loses_and_repeats_nothing(
    process: FaultyProcess,
    whole: Run,
    points: Callable[[int], list[int]],
    tmp_path: Path,
    seed: int,
) -> None:
    chance = random.Random(seed)
    for number in points(whole.count(CALLS)):
        run = process.run(f"kill {number}")
        assert was_killed(run, CALLS, number), number
        await recover_both(process, run, tmp_path, chance)


async def test_a_kill_in_the_middle_of_any_write_loses_and_repeats_nothing(
    process: FaultyProcess, whole: Run, points: Callable[[int], list[int]]
) -> None:
    for number in points(whole.count(WRITES)):
        run = process.run(f"torn {number}")
        assert was_killed(run, WRITES, number), number
        await recover(process.path, run.done)


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
