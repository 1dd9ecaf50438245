from __future__ import annotations

import asyncio
import math
import resource
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from edge.engine.rules import commit_window
from edge.engine.rules.space_rules import WAL_SHARE
from edge.engine.sessions import sessions
from edge.engine.store import database, database_thread, events, meta
from edge.engine.store.database import MESSAGE_OVERHEAD, MessageBytes, Transaction
from edge.engine.store.database_thread import DatabaseThread
from edge.engine.store.events import NewEvent
from edge.engine.store.group_commit import GroupLimits, Store, UnitLimits
from edge.errors import SetupError, StoreBroken, StoreBusy, StoreError, StoreFull
from edge.features.accounts.store import accounts
from tests.helpers.store import Clock, opened

Unit = Callable[[Transaction], Any]


def write(key: str, value: str | bytes | float = 1.0) -> Callable[[Transaction], str]:
    """Return a unit that writes a key and returns it."""

    def unit(tx: Transaction) -> str:
        meta.write(tx, key, value)
        return key

    return unit


def write_and_send(number: int) -> Unit:
    """Return a unit that writes and sends a number, and returns it."""

    def unit(tx: Transaction) -> int:
        meta.write(tx, str(number), 1.0)
        tx.send(number, MessageBytes(bytes(10)))
        return number

    return unit


def fail(_tx: Transaction) -> None:
    raise ZeroDivisionError("on purpose")


def keys(path: Path) -> set[str]:
    """Return the committed keys, read by another connection."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT key FROM meta").fetchall()
    return {key for (key,) in rows} - {meta.EPOCH, meta.DECOY}


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Lock the database as another process would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


class Answers:
    """Records outcomes in order, and the keys that were committed at each."""

    def __init__(self, path: Path, expected: int) -> None:
        self._path = path
        self._expected = expected
        self.outcomes: list[Any] = []
        self.committed: list[set[str]] = []
        self.all = asyncio.Event()

    def __call__(self, outcome: Any) -> None:
        self.outcomes.append(outcome)
        self.committed.append(keys(self._path))
        if len(self.outcomes) == self._expected:
            self.all.set()


async def submit(store: Store, path: Path, units: list[Unit]) -> Answers:
    answers = Answers(path, len(units))
    for unit in units:
        store.submit(unit, answers)
    await asyncio.wait_for(answers.all.wait(), 30)
    return answers


# A group.


async def test_waiting_units_share_a_commit_and_are_answered_after_it_in_order(
    path: Path, store: Store
) -> None:
    names = [f"k{number}" for number in range(100)]
    before = store.commits
    answers = await submit(store, path, [write(name) for name in names])
    assert store.commits == before + 1
    assert answers.outcomes == names
    assert answers.committed == [set(names)] * 100


async def test_a_group_has_one_unit_of_each_account_whose_units_take_turns(
    path: Path, store: Store
) -> None:
    answers: list[Any] = []
    units = ("a1", "a"), ("x", ""), ("a2", "a"), ("b1", "b"), ("y", ""), ("a3", "a")
    commits, done = store.commits, asyncio.Event()
    for name, account in units:
        store.submit(write(name), answers.append, turn=partial(str, account))
    store.on_answered.append(lambda: done.set() if len(answers) == len(units) else None)
    await asyncio.wait_for(done.wait(), 30)
    assert answers == ["a1", "x", "b1", "y", "a2", "a3"]
    assert store.commits - commits == 3
    assert keys(path) == {name for name, _account in units}


async def test_a_group_has_a_maximum_size(path: Path, store: Store) -> None:
    store.group_limits = GroupLimits(units=10)
    answers = await submit(store, path, [write(f"k{number}") for number in range(25)])
    assert store.commits == 3
    assert [len(committed) for committed in answers.committed] == [10] * 10 + [20] * 10 + [25] * 5


@pytest.mark.parametrize("failing", [False, True])
async def test_a_group_ends_when_it_has_much_to_send(
    path: Path, store: Store, failing: bool
) -> None:
    sent: list[int] = []
    store.group_limits = GroupLimits(send_bytes=2 * (10 + MESSAGE_OVERHEAD))
    store.on_sends = lambda sends: sent.extend(send.generation for send in sends)
    before = store.commits
    units = [fail if failing else write_and_send(5), *map(write_and_send, range(5))]
    answers = await submit(store, path, units)
    assert answers.outcomes[1:] == list(range(5))
    if failing:  # the units of the first group run again, one by one
        assert isinstance(answers.outcomes[0], StoreError)
        assert sent == [0, 1, 2, 3, 4]
        assert [len(keys_) for keys_ in answers.committed] == [2, 2, 2, 4, 4, 5]
    else:
        assert sent == [5, 0, 1, 2, 3, 4]
        assert [len(keys_) for keys_ in answers.committed] == [2, 2, 4, 4, 6, 6]
        assert store.commits == before + 3


async def test_a_unit_is_answered_before_its_stanzas_are_sent(path: Path, store: Store) -> None:
    order: list[str] = []
    answers = Answers(path, 2)

    def send_item(tx: Transaction) -> None:
        tx.send(1, MessageBytes(b"item"))

    def answer(outcome: Any) -> None:
        order.append("answer")
        answers(outcome)

    store.on_sends = lambda sends: order.extend(send.message[0].decode() for send in sends)
    store.submit(send_item, answer)
    store.submit(send_item, answer)
    await answers.all.wait()
    assert order == ["answer", "item"] * 2


@pytest.mark.parametrize("heavy", [False, True])
async def test_units_that_do_not_fit_into_a_failing_group_run_later(
    path: Path, store: Store, heavy: bool
) -> None:
    answers = Answers(path, 5)
    faults = [ZeroDivisionError("on purpose")]

    def fail_once(_tx: Transaction) -> None:
        if faults:
            raise faults.pop()

    store.group_limits = GroupLimits(send_bytes=2 * (10 + MESSAGE_OVERHEAD))
    store.before_commit = fail_once
    for number in range(5):
        store.submit(write_and_send(number), answers, 100, heavy=heavy)
    await asyncio.wait_for(answers.all.wait(), 30)
    assert answers.outcomes == list(range(5))
    assert store.waiting == UnitLimits(0, 0)


async def test_a_group_that_is_run_again_waits_once_for_another_process(
    path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    begins = 0

    def begin(_connection: sqlite3.Connection) -> None:
        nonlocal begins
        begins += 1
        error = sqlite3.OperationalError("on purpose")
        error.sqlite_errorcode = sqlite3.SQLITE_BUSY
        raise error

    def fail_once(_tx: Transaction) -> None:
        monkeypatch.setattr(store._guard, "begin", begin)
        raise ZeroDivisionError("on purpose")

    answers = await submit(store, path, [fail_once, write("a"), write("b")])
    monkeypatch.undo()
    assert [type(outcome) for outcome in answers.outcomes] == [StoreBusy] * 3
    assert begins == 1


@pytest.mark.parametrize("unit", [meta.epoch, write("key")])
async def test_the_event_loop_runs_between_groups_of_one_unit(store: Store, unit: Unit) -> None:
    """Each unit is submitted by the answer of the one before."""
    loop, finished = asyncio.get_running_loop(), asyncio.Event()
    outcomes: list[Any] = []
    iterations = 0

    def count() -> None:
        nonlocal iterations
        iterations += 1
        if not finished.is_set():
            loop.call_soon(count)

    def answer(outcome: Any) -> None:
        outcomes.append(outcome)
        if len(outcomes) < 100:
            store.submit(unit, answer)
        else:
            finished.set()

    await store.run(unit)
    count()
    store.submit(unit, answer)
    await asyncio.wait_for(finished.wait(), 30)
    assert iterations >= len(outcomes)


async def test_units_of_a_group_share_one_moment_and_the_earliest_timer(path: Path) -> None:
    clock = Clock(service=50.0)
    timers: list[float] = []

    def wake(due: float) -> Unit:
        def unit(tx: Transaction) -> float:
            tx.wake_at(due)
            return tx.now.service

        return unit

    async with opened(path, clock) as store:
        store.on_due = timers.append
        moments = await asyncio.gather(*(store.run(wake(due)) for due in (90.0, 70.0, 80.0)))
        assert moments == [50.0] * 3
        assert timers == [70.0]
        await store.run(lambda _tx: None)
        assert timers == [70.0]


async def test_on_answered_is_called_after_each_commit(store: Store) -> None:
    flushed: list[int] = []
    store.on_answered.append(lambda: flushed.append(store.commits))
    await store.run(write("a"))
    await store.run(write("b"))
    assert flushed == [1, 2]


@pytest.mark.parametrize("slow", [False, True])
async def test_commits_run_on_the_event_loop_unless_the_disk_is_slow(
    store: Store, monkeypatch: pytest.MonkeyPatch, *, slow: bool
) -> None:
    monkeypatch.setattr(commit_window, "SLOW_COMMIT", -1.0 if slow else math.inf)
    threads: list[int] = []

    def trace(statement: str) -> None:
        if statement == "COMMIT":
            threads.append(threading.get_ident())

    await store.run(write("first"))  # reads the images
    store._writer.raw.set_trace_callback(trace)
    reply = asyncio.get_running_loop().create_future()
    store.submit(write("a"), reply.set_result)
    assert await reply == "a"
    assert [thread == threading.get_ident() for thread in threads] == [not slow]


async def test_peers_of_two_groups_share_one_group_later_on_a_slow_disk(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_window, "SLOW_COMMIT", 0.0)
    monkeypatch.setattr(commit_window, "SINGLE", 0.0)
    monkeypatch.setattr(commit_window, "WAIT_SHARE", 50.0)  # longer than the peers need
    running, go_on = threading.Event(), threading.Event()

    def block(_tx: Transaction) -> None:
        running.set()
        go_on.wait()

    async def repeat(unit: Callable[[Transaction], object]) -> None:
        for _ in range(4):
            await store.run(unit)
            for _ in range(3):  # a peer that is answered needs some time for its next request
                await asyncio.sleep(0)

    await store.run(write("begin"))
    before = store.commits
    peers = [asyncio.ensure_future(repeat(unit)) for unit in (block, write("a"))]
    await asyncio.to_thread(running.wait)
    peers += [asyncio.ensure_future(repeat(write(name))) for name in "bc"]
    await asyncio.sleep(0)  # these two wait for the next group
    go_on.set()
    await asyncio.gather(*peers)
    assert store.commits == before + 5  # instead of 8: only the first group is not shared


async def test_the_wait_ends_when_a_unit_of_each_peer_waits(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_window, "SLOW_COMMIT", 0.0)
    monkeypatch.setattr(commit_window, "SINGLE", 0.0)
    monkeypatch.setattr(commit_window, "WAIT_SHARE", 1e9)
    await asyncio.gather(*(store.run(write(name)) for name in "ab"))
    before = store.commits
    first = asyncio.ensure_future(store.run(write("a")))
    for _ in range(5):
        await asyncio.sleep(0)  # the first group waits now
    assert not first.done()
    second = asyncio.ensure_future(store.run(write("b")))
    assert [*await asyncio.wait_for(asyncio.gather(first, second), 30)] == ["a", "b"]
    assert store.commits == before + 1


# The interval between commits.

NEVER = 3600.0


async def test_the_minimum_interval_separates_commits_but_not_the_first(store: Store) -> None:
    begins: list[float] = []

    def unit(_tx: Transaction) -> None:
        begins.append(store.commit_window._last_begin)

    store.commit_window.min_interval = 0.05
    for _ in range(3):
        await store.run(unit)
    assert all(after - before > 0.049 for before, after in pairwise(begins))


async def test_units_within_the_interval_share_a_commit(store: Store) -> None:
    store.commit_window.min_interval = NEVER
    await store.run(write("first"))
    before = store.commits
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(store.run(write("a")))
        for _ in range(5):
            await asyncio.sleep(0)
        tasks.create_task(store.run(write("b")))
        for _ in range(5):
            await asyncio.sleep(0)
        assert store.commits == before
        store.commit_window.wake()
    assert store.commits == before + 1


@pytest.mark.parametrize(
    ("limits", "waiting"),
    [(GroupLimits(units=5), 512), (GroupLimits(bytes=50), 512), (GroupLimits(), 5)],
)
async def test_a_full_group_is_committed_at_once(
    path: Path, limits: GroupLimits, waiting: int
) -> None:
    async with opened(path, bounds=UnitLimits(waiting, 2**20)) as store:
        store.group_limits = limits
        await store.run(write("first"))
        store.commit_window.min_interval = NEVER
        await store.run(write("second"))
        answers = Answers(path, 5)
        for number in range(5):
            assert answers.outcomes == []
            store.submit(write(f"k{number}"), answers, 10)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await asyncio.wait_for(answers.all.wait(), 30)


async def test_closing_does_not_wait_for_the_interval(path: Path) -> None:
    async with opened(path) as store:
        store.commit_window.min_interval = NEVER
        await store.run(write("first"))
        last = asyncio.ensure_future(store.run(write("last")))
        await asyncio.sleep(0)
    assert await last == "last"


# Failing units.


@pytest.mark.parametrize("place", [0, 3, 6])
async def test_only_the_failing_unit_gets_the_error(path: Path, store: Store, place: int) -> None:
    names = [f"k{number}" for number in range(6)]
    units: list[Unit] = [*map(write, names)]
    units.insert(place, fail)
    answers = await submit(store, path, units)
    assert store.commits == 6, "the other units are committed one by one"
    error = answers.outcomes.pop(place)
    assert isinstance(error, StoreError)
    assert "on purpose" in str(error)
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert answers.outcomes == names
    assert keys(path) == set(names)


async def test_a_failing_units_writes_and_timer_are_undone(path: Path, store: Store) -> None:
    def writes_then_fails(tx: Transaction) -> None:
        meta.write(tx, "half", 1.0)
        tx.wake_at(1.0)
        raise ZeroDivisionError

    timers: list[float] = []
    store.on_due = timers.append
    with pytest.raises(StoreError, match="ZeroDivisionError"):
        await store.run(writes_then_fails)
    await store.run(write("whole"))
    assert (keys(path), timers) == ({"whole"}, [])
    await submit(store, path, [lambda tx: tx.wake_at(9.0), fail, lambda tx: tx.wake_at(5.0)])
    assert timers == [5.0], "of the units that do not fail"


async def test_logged_events_are_reported_once_and_after_their_commit(
    path: Path, store: Store
) -> None:
    def log(name: str) -> Unit:
        def unit(tx: Transaction) -> None:
            events.append(tx, events.READINGS, NewEvent("log", name="of a device"))
            events.append(tx, events.SYSTEM, NewEvent("store", name=name))

        return unit

    def fail_after_logging(tx: Transaction) -> None:
        log("undone")(tx)
        fail(tx)

    reported: list[str | None] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    store.on_logged = lambda logged: reported.extend(event.name for event in logged)
    await submit(store, path, [log("a"), fail_after_logging, log("b"), write("k")])
    assert reported == ["a", "b"]
    await submit(store, path, [log("c")])
    assert reported == ["a", "b", "c"]


async def test_store_errors_pass_through_and_sqlite_errors_are_translated(
    path: Path, store: Store
) -> None:
    def raise_store_error(_tx: Transaction) -> None:
        raise StoreFull("on purpose")

    def violate_constraint(tx: Transaction) -> None:
        tx.run("INSERT INTO meta VALUES ('epoch', 'again')")

    answers = await submit(store, path, [raise_store_error, violate_constraint, write("fine")])
    full, error, key = answers.outcomes
    assert type(full) is StoreFull
    assert type(error) is StoreError
    assert "UNIQUE constraint failed" in str(error)
    assert key == "fine"


async def test_a_failing_answer_does_not_block_others(store: Store) -> None:
    calls: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: calls.append(context))

    def fail_callback(_outcome: object) -> None:
        raise ZeroDivisionError

    store.on_answered.append(lambda: fail_callback(None))
    store.submit(write("a"), fail_callback)
    assert await store.run(write("b")) == "b"
    assert await store.run(write("c")) == "c"
    assert [type(context["exception"]) for context in calls] == [ZeroDivisionError] * 3


# Cancelling and closing.


async def test_cancelling_the_caller_does_not_undo_the_unit(path: Path, store: Store) -> None:
    task = asyncio.ensure_future(store.run(write("a")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(asyncio.CancelledError):
        await _cancel_failing_unit(store)
    await store.run(write("b"))
    assert keys(path) == {"a", "b"}


async def _cancel_failing_unit(store: Store) -> None:
    task = asyncio.ensure_future(store.run(fail))
    await asyncio.sleep(0)
    task.cancel()
    await task


async def test_closing_commits_waiting_units_and_those_of_their_answers(path: Path) -> None:
    store = await Store.open(path, Clock(), UnitLimits(10, 1000))
    outcomes: list[object] = []

    def submit_next(outcome: object) -> None:
        outcomes.append(outcome)
        store.submit(write("second"), outcomes.append)

    store.submit(write("first"), submit_next)
    await store.close()
    assert outcomes == ["first", "second"]
    assert keys(path) == {"first", "second"}


async def test_a_closed_store_refuses_units_and_ends_its_threads(path: Path) -> None:
    before = set(threading.enumerate())
    async with opened(path) as store:
        threads = set(threading.enumerate()) - before
        assert len(threads) == 2
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()
    with pytest.raises(StoreError, match="is closed"):
        await asyncio.wait_for(store.run(write("late")), 5)
    with pytest.raises(StoreError, match="closed"):
        await store.read(lambda _tx: None)


async def test_a_failed_open_leaves_no_thread(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(threading.enumerate())

    def no_reader(_path: Path) -> sqlite3.Connection:
        raise SetupError("no reader")

    monkeypatch.setattr(database, "connect_reader", no_reader)
    with pytest.raises(SetupError, match="does not exist"):
        await Store.open(tmp_path / "missing.db", Clock(), UnitLimits(10, 1000))
    with pytest.raises(SetupError, match="no reader"):
        await Store.open(path, Clock(), UnitLimits(10, 1000))
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
    assert set(threading.enumerate()) <= before


# Limits.


@pytest.mark.parametrize(("bounds", "fitting"), [((4, 10_000), 3), ((100, 300), 2)])
async def test_full_is_reported_and_on_room_is_called_once(
    path: Path, bounds: tuple[int, int], fitting: int
) -> None:
    async with opened(path, bounds=UnitLimits(*bounds)) as store:
        calls: list[bool] = []
        store.on_room.append(lambda: calls.append(store.full))
        answers = Answers(path, fitting + 3)
        for number in range(fitting + 3):
            assert store.full is (number > fitting)
            store.submit(write(f"k{number}"), answers, size=100)
        assert calls == []
        await asyncio.wait_for(answers.all.wait(), 30)
        await store.run(write("last"))
        assert calls == [False]
        assert store.full is False


async def test_bytes_of_a_unit_count_until_its_commit(path: Path) -> None:
    running, go_on = threading.Event(), threading.Event()

    def slow(_tx: Transaction) -> None:
        running.set()
        assert go_on.wait(30)

    async with opened(path, bounds=UnitLimits(100, 1000)) as store:
        calls = asyncio.Event()
        store.on_room.append(calls.set)
        store.submit(slow, lambda _outcome: None, size=1000)
        assert await asyncio.to_thread(running.wait, 30)
        assert store.full, "the unit is not committed yet"
        go_on.set()
        await asyncio.wait_for(calls.wait(), 30)
        assert not store.full


# Queries.


async def test_a_query_sees_one_committed_snapshot(store: Store) -> None:
    await store.run(write("a", 1.0))
    first, go_on = threading.Event(), threading.Event()

    def read_twice(tx: Transaction) -> list[float]:
        values = [meta.read_number(tx, "a")]
        first.set()
        assert go_on.wait(30)
        return [*values, meta.read_number(tx, "a")]

    query = asyncio.ensure_future(store.read(read_twice))
    assert await asyncio.to_thread(first.wait, 30)
    await store.run(write("a", 2.0))  # the writer does not wait for a reader
    go_on.set()
    assert await query == [1.0, 1.0]
    assert await store.read(lambda tx: meta.read_number(tx, "a")) == 2.0


# A full disk.

BLOB = b"x" * 100_000


async def fill(store: Store) -> int:
    """Write until the database is full; return the number of writes."""
    for number in range(10_000):
        try:
            await store.run(write(f"fill{number}", BLOB))
        except StoreFull:
            return number
    raise AssertionError("it is never full")


async def test_a_full_disk_refuses_only_units_that_do_not_fit(path: Path) -> None:
    async with opened(path, max_bytes=WAL_SHARE + 2 * 1024 * 1024) as store:
        fitted = await fill(store)
        assert fitted > 5
        assert await store.read(keys_in) == fitted, "reading continues"
        await store.run(lambda tx: tx.run("DELETE FROM meta WHERE key = 'fill0'"))
        before = keys(path)
        answers = await submit(
            store,
            path,
            [write("small1"), write("large", BLOB * 3), lambda tx: keys_in(tx), write("small2")],
        )
        small1, large, key_count, small2 = answers.outcomes
        assert (small1, small2) == ("small1", "small2")
        assert type(large) is StoreFull
        assert key_count == len(before) + 1, "the large value is rolled back"
        assert keys(path) == before | {"small1", "small2"}


def keys_in(tx: Transaction) -> int:
    return int(tx.row("SELECT count(*) - 2 FROM meta")[0])


OS_LIMIT = 1024 * 1024

WRITE_TO_OS_LIMIT = """
import asyncio, resource, signal, sys
from pathlib import Path
from edge.errors import StoreBroken, StoreFull
from edge.engine.store import meta
from tests.helpers.store import opened

async def main(path: Path, limit: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    async with opened(path) as store:
        broken = []
        store.on_broken = broken.append
        await store.run(lambda tx: meta.write(tx, "before", b"x" * 1000))
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        number = 0
        try:
            while True:
                key = f"k{number}"
                await store.run(lambda tx: meta.write(tx, key, b"x" * 100_000))
                print(key, flush=True)
                number += 1
        except (StoreBroken, StoreFull) as error:
            print(type(error).__name__, len(broken), flush=True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)

asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
"""


def test_a_failed_write_loses_no_acknowledged_write(path: Path) -> None:
    """The system refuses to let the file grow, which SQLite reports as an I/O error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert (soft, hard) == (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    root = Path(__file__).parents[4]
    process = subprocess.run(
        [sys.executable, "-c", WRITE_TO_OS_LIMIT, path, str(OS_LIMIT)],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    *written_keys, error_line = process.stdout.split("\n")[:-1]
    assert error_line == "StoreBroken 1"
    assert len(written_keys) > 3
    assert keys(path) >= {"before", *written_keys}
    with closing(database.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


# Locked and broken databases.


async def test_a_locked_database_is_busy_for_the_whole_group_at_once(
    path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT", 0.05)
    runs: list[str] = []
    with lock(path):
        units = [lambda _tx: runs.append("run") for _ in range(100)]
        answers = await asyncio.wait_for(submit(store, path, list(units)), 3)
        assert {type(outcome) for outcome in answers.outcomes} == {StoreBusy}
        assert runs == [], "no transaction was begun, so no unit runs"
        assert await store.read(keys_in) == 0, "reading continues"
    assert await store.run(write("after")) == "after"


async def test_a_writer_waits_for_another_process(path: Path, store: Store) -> None:
    with lock(path):
        task = asyncio.ensure_future(store.run(write("a")))
        await asyncio.sleep(0)
        assert not task.done()
    assert await asyncio.wait_for(task, 30) == "a"


async def test_a_broken_database_is_reported_before_it_is_answered(store: Store) -> None:
    calls: list[object] = []

    def broken(_tx: Transaction) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise error

    store.on_broken = lambda error: calls.append(type(error))
    store.submit(broken, lambda outcome: calls.append(type(outcome).__name__))
    with pytest.raises(StoreBroken, match="disk I/O error"):
        await store.run(broken)
    assert calls == [StoreBroken, "StoreBroken", StoreBroken]


async def test_a_failure_outside_the_units_is_reported_and_answers_all(store: Store) -> None:
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: faults.append(context["exception"])
    )
    broken: list[StoreBroken] = []
    store.on_broken = broken.append
    await store._writer.close()  # the only way to fail a commit outside the units
    outcomes = await asyncio.gather(
        *(store.run(lambda _tx: None) for _ in range(3)), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [StoreBroken] * 3
    assert len(broken) == 3
    assert len(faults) == 1


# The thread.


async def test_a_function_runs_on_the_database_thread_in_one_hop(path: Path) -> None:
    thread = await DatabaseThread.start(lambda: database.connect(path))
    hops: list[str] = []

    def whole_transaction(amount: int, *, name: str) -> tuple[str, int]:
        hops.append(threading.current_thread().name)
        cursor = thread.raw.execute("SELECT ? + ?", (amount, amount))
        return name, cursor.fetchone()[0]

    assert await thread.call(whole_transaction, 21, name="answer") == ("answer", 42)
    assert await thread.call(threading.current_thread) is not threading.current_thread()
    assert len(hops) == 1
    with pytest.raises(ZeroDivisionError):
        await thread.call(lambda: 1 / 0)
    await thread.close()


async def test_a_cancelled_call_still_runs_to_its_end(path: Path) -> None:
    thread = await DatabaseThread.start(lambda: database.connect(path))
    started, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def slow() -> None:
        started.set()
        assert go_on.wait(30)
        ended.set()

    task = asyncio.ensure_future(thread.call(slow))
    assert await asyncio.to_thread(started.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    assert await asyncio.to_thread(ended.wait, 30)
    await thread.close()


async def test_the_loop_continues_when_its_first_call_has_begun(path: Path) -> None:
    thread = await DatabaseThread.start(lambda: database.connect(path))
    go_on = threading.Event()

    class ReleasingEvent(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            go_on.set()
            return super().wait(30)

    thread._begun = ReleasingEvent()
    before = asyncio.ensure_future(thread.call(go_on.wait, 30))
    call = asyncio.ensure_future(thread.call_first(lambda amount: amount + 1, 41))
    for _ in range(3):
        await asyncio.sleep(0.0)
    assert thread._begun.is_set()
    assert tuple(await asyncio.wait_for(asyncio.gather(before, call), 30)) == (True, 42)
    await thread.close()


async def test_the_loop_continues_although_the_thread_is_busy(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_thread, "BEGIN_TIMEOUT", 0.0)
    thread = await DatabaseThread.start(lambda: database.connect(path))
    go_on = threading.Event()
    before = asyncio.ensure_future(thread.call(go_on.wait, 30))
    call = asyncio.ensure_future(thread.call_first(lambda: 42))
    for _ in range(3):
        await asyncio.sleep(0.0)
    assert not call.done()
    go_on.set()
    assert tuple(await asyncio.wait_for(asyncio.gather(before, call), 30)) == (True, 42)
    await thread.close()


# Caches that last across transactions.


async def test_a_change_by_another_process_invalidates_cached_senders(
    path: Path, store: Store
) -> None:
    def trusted(tx: Transaction) -> bool:
        sender = sessions.sender(tx, 7)
        assert sender is not None
        return sender.trusted

    await store.run(lambda tx: accounts.add(tx, "pump1", (), trusted=True))
    await store.run(lambda tx: sessions.bind(tx, 7, "pump1", "pump1@gw", "pump1@gw/fw"))
    assert await store.run(trusted)
    with closing(sqlite3.connect(path)) as other:
        other.execute("UPDATE accounts SET trusted = 0")
        other.commit()
    assert not await store.run(trusted)


@pytest.mark.parametrize("rolled_back", [False, True], ids=["by us", "by SQLite"])
async def test_a_failed_unit_leaves_nothing_in_the_caches(store: Store, rolled_back: bool) -> None:
    def bind_and_fail(tx: Transaction) -> None:
        sessions.bind(tx, 7, "pump1", "pump1@gw", "pump1@gw/fw")
        assert sessions.sender(tx, 7) is not None
        if rolled_back:  # SQLite does this when the disk is full
            tx.run("ROLLBACK")
        raise ZeroDivisionError

    with pytest.raises(StoreError):
        await store.run(bind_and_fail)
    assert await store.run(lambda tx: sessions.sender(tx, 7)) is None
