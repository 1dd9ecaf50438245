from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from edge.engine.rules import commit_window
from edge.engine.store import meta
from edge.engine.store.database import MESSAGE_OVERHEAD, MessageBytes, Transaction
from edge.engine.store.group_commit import GroupLimits, Store, UnitLimits
from edge.errors import StoreBroken, StoreBusy, StoreError, StoreFull
from tests.helpers.store import Clock, opened

Unit = Callable[[Transaction], Any]


@pytest.fixture(autouse=True)
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_window, "SLOW_COMMIT", -1.0)


@pytest.fixture
def names() -> Names:
    return Names()


@pytest.fixture
def answers(path: Path) -> Answers:
    return Answers(path)


def stored(path: Path) -> list[str]:
    """Return the committed names, read by another connection."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT key FROM meta WHERE length(key) = 1 ORDER BY key")
        return [key for (key,) in rows]


class Names:
    """Makes units that add names to cached rows; `runs` records which of them ran in memory."""

    def __init__(self) -> None:
        self.runs: list[tuple[str, bool]] = []

    def add(self, name: str, action: Unit = lambda _tx: None) -> Unit:
        """Return a unit that adds a name, does something else, and returns all names."""

        def unit(tx: Transaction) -> str:
            self.runs.append((name, tx._connection is None))
            image: list[str] | None = tx.cache.get("names")
            if image is None:
                rows = tx.rows("SELECT key FROM meta WHERE length(key) = 1 ORDER BY key")
                image = tx.cache["names"] = [key for (key,) in rows]
            unwritten: list[str] = tx.memo.setdefault("names", [])
            for names in (image, unwritten):
                names.append(name)
                tx.on_undo(names.pop)
            tx.write_later(self._write)
            action(tx)
            return "".join(image)

        return unit

    @staticmethod
    def _write(tx: Transaction) -> None:
        for name in tx.memo.pop("names"):
            tx.run("INSERT INTO meta VALUES (?, 1)", (name,))


class Answers:
    """Records outcomes in order, and the rows that were committed at each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.outcomes: list[Any] = []
        self.committed: list[str] = []

    def __call__(self, outcome: Any) -> None:
        self.outcomes.append(outcome)
        self.committed.append("".join(stored(self._path)))


class Gate:
    """Stops a store before each COMMIT of rows on its thread, and lets some of them fail."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self._reached, self._open = threading.Semaphore(0), threading.Semaphore(0)
        self._errors: list[Exception | None] = []
        self._always_open = False
        for name in ("call", "call_first"):
            monkeypatch.setattr(store._writer, name, self._wrap(getattr(store._writer, name)))

    def _wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def intercept(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if function.__name__ == "_commit":
                return call(self._stop, function, *args, **kwargs)
            return call(function, *args, **kwargs)

        return intercept

    def _stop(self, commit: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        if not self._always_open:
            self._reached.release()
            assert self._open.acquire(timeout=30)
            error = self._errors.pop(0)
            if error is not None:
                raise error
        commit(*args, **kwargs)

    async def reached(self) -> None:
        """Wait until a group has run and is to be committed."""
        assert await asyncio.to_thread(self._reached.acquire, timeout=30)

    def let_one_pass(self, error: Exception | None = None) -> None:
        """Commit the group, or let its COMMIT fail."""
        self._errors.append(error)
        self._open.release()

    def open(self, error: Exception | None = None) -> None:
        """Commit the group, or let its COMMIT fail, and stop no more."""
        self._always_open = True
        self.let_one_pass(error)


def send(generation: int, stanza: bytes, tx: Transaction) -> None:
    tx.send(generation, MessageBytes(stanza))


def sqlite_error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("on purpose")
    error.sqlite_errorcode = code
    return error


async def wait_until_answered(store: Store) -> None:
    """Wait until all units that were submitted are answered."""
    await asyncio.wait_for(store.run(lambda _tx: None), 30)


@pytest.fixture
async def gate(store: Store, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """A gate for a store that has loaded its images already."""
    await wait_until_answered(store)
    return Gate(store, monkeypatch)


async def test_a_unit_runs_while_a_group_is_committed_and_is_answered_after_its_own_commit(
    names: Names, answers: Answers, store: Store, gate: Gate
) -> None:
    store.submit(names.add("a"), answers)
    await gate.reached()
    for name in "bc":
        store.submit(names.add(name), answers)
    assert names.runs == [("a", False), ("b", True), ("c", True)], "before the first commit"
    assert answers.outcomes == []
    gate.let_one_pass()
    await gate.reached()
    assert (answers.outcomes, answers.committed) == (["a"], ["a"])
    gate.open()
    await wait_until_answered(store)
    assert answers.outcomes == ["a", "ab", "abc"]
    assert answers.committed == ["a", "abc", "abc"]
    assert len(names.runs) == 3, "each unit has run once"


async def test_a_unit_that_needs_a_statement_is_undone_and_runs_after_the_commit(
    names: Names, answers: Answers, store: Store, gate: Gate
) -> None:
    def statement(tx: Transaction) -> None:
        tx.send(7, MessageBytes(b"<sent/>"))
        tx.row("SELECT 1")

    sent: list[bytes] = []
    store.on_sends = lambda sends: sent.extend(send.message[0] for send in sends)
    store.submit(names.add("a"), answers)
    await gate.reached()
    store.submit(names.add("b"), answers)
    store.submit(names.add("c", statement), answers)
    store.submit(names.add("d"), answers)
    gate.open()
    await wait_until_answered(store)
    assert answers.outcomes == ["a", "ab", "abc", "abcd"]
    assert answers.committed == ["a", "abcd", "abcd", "abcd"]
    assert names.runs == [("a", False), ("b", True), ("c", True), ("c", False), ("d", False)]
    assert sent == [b"<sent/>"], "once"


async def test_withdrawn_stanzas_come_back_when_a_unit_is_undone(
    names: Names, store: Store, gate: Gate
) -> None:
    withdrawn: list[list[bytes]] = []

    def withdraw(tx: Transaction) -> None:
        withdrawn.append([send.message[0] for send in tx.withdraw_sends(7)])
        tx.row("SELECT 1")

    sent: list[bytes] = []
    store.on_sends = lambda sends: sent.extend(send.message[0] for send in sends)
    store.submit(names.add("a"), lambda _outcome: None)
    await gate.reached()
    for generation in (6, 7):
        stanza = b"<to-%d/>" % generation
        unit = names.add(str(generation), partial(send, generation, stanza))
        store.submit(unit, lambda _outcome: None)
    store.submit(withdraw, lambda _outcome: None)
    gate.open()
    await wait_until_answered(store)
    assert withdrawn == [[b"<to-7/>"], [b"<to-7/>"]]
    assert sent == [b"<to-6/>"]


async def test_a_unit_that_fails_in_memory_fails_alone(
    path: Path, names: Names, answers: Answers, store: Store, gate: Gate
) -> None:
    def fail(_tx: Transaction) -> None:
        raise ZeroDivisionError

    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    store.submit(names.add("a"), answers)
    await gate.reached()
    for name, action in (("b", lambda _tx: None), ("c", fail), ("d", lambda _tx: None)):
        store.submit(names.add(name, action), answers)
    gate.open()
    await wait_until_answered(store)
    first, second, error, last = answers.outcomes
    assert (first, second, last) == ("a", "ab", "abd")
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert stored(path) == ["a", "b", "d"]


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        (sqlite3.SQLITE_FULL, None),
        (sqlite3.SQLITE_BUSY, StoreBusy),
        (sqlite3.SQLITE_IOERR, StoreBroken),
    ],
)
async def test_a_failed_commit_undoes_the_next_group_too(
    path: Path,
    names: Names,
    answers: Answers,
    code: int,
    failure: type[Exception] | None,
    store: Store,
    gate: Gate,
) -> None:
    for name in "ab":
        store.submit(names.add(name), answers)
    await gate.reached()
    for name in "cd":
        store.submit(names.add(name), answers)
    assert names.runs[2:] == [("c", True), ("d", True)]
    gate.open(sqlite_error(code))
    await wait_until_answered(store)
    if failure is None:  # the units fit if each is committed alone
        assert answers.outcomes == ["a", "ab", "abc", "abcd"]
        assert stored(path) == ["a", "b", "c", "d"]
        assert names.runs[4:] == [(name, False) for name in "abcd"]
    else:
        assert [type(outcome) for outcome in answers.outcomes[:2]] == [failure] * 2
        assert answers.outcomes[2:] == ["c", "cd"]
        assert stored(path) == ["c", "d"]
        assert names.runs[4:] == [(name, False) for name in "cd"]


async def test_a_failed_commit_of_the_next_group_undoes_only_that_group(
    path: Path, names: Names, answers: Answers, store: Store, gate: Gate
) -> None:
    store.submit(names.add("a"), answers)
    await gate.reached()
    store.submit(names.add("b"), answers)
    gate.let_one_pass()
    await gate.reached()
    store.submit(names.add("c"), answers)
    gate.open(sqlite_error(sqlite3.SQLITE_FULL))
    await wait_until_answered(store)
    first, error, last = answers.outcomes
    assert (first, type(error), last) == ("a", StoreFull, "ac")
    assert stored(path) == ["a", "c"]


async def test_a_change_by_another_process_makes_units_run_again(
    path: Path, names: Names, answers: Answers, store: Store, gate: Gate
) -> None:
    def change(_outcome: object) -> None:
        with closing(sqlite3.connect(path)) as other:
            other.execute("INSERT INTO meta VALUES ('A', 1)")
            other.commit()

    changes: list[str] = []
    store.on_changed.append(lambda: changes.append("changed"))
    store.submit(names.add("a"), change)
    await gate.reached()
    store.submit(names.add("b"), answers)
    gate.open()
    await wait_until_answered(store)
    assert names.runs == [("a", False), ("b", True), ("b", False)]
    assert answers.outcomes == ["Aab"]
    assert stored(path) == ["A", "a", "b"]
    assert changes == ["changed"]


async def test_images_are_read_on_the_thread_after_they_were_dropped(
    path: Path, store: Store, names: Names, answers: Answers
) -> None:
    threads: list[threading.Thread] = []
    store.load_images = lambda _tx: threads.append(threading.current_thread())
    await store.run(lambda _tx: None)
    assert len(threads) == 1
    with closing(sqlite3.connect(path)) as other:
        other.execute("INSERT INTO meta VALUES ('A', 1)")
        other.commit()
    for unit in (lambda _tx: None, names.add("a"), lambda tx: tx.cache.clear(), names.add("b")):
        store.submit(unit, answers)
        await wait_until_answered(store)
    assert len(threads) == 3, "at the start, and after both drops"
    assert threading.main_thread() not in threads


async def test_a_bug_that_ends_the_store_is_reported(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: asyncio.Future[StoreBroken] = asyncio.get_running_loop().create_future()
    store.reclaim_interval = 0.0
    store.on_broken = broken.set_result
    monkeypatch.setattr(store._guard, "reclaim", lambda _connection: 1 / 0)
    await store.run(lambda _tx: None)
    assert "ZeroDivisionError" in str(await asyncio.wait_for(broken, 30))
    with pytest.raises(StoreError):
        await store.run(lambda _tx: None)


async def test_nothing_runs_in_memory_during_or_after_a_heavy_unit(
    names: Names, answers: Answers, store: Store, gate: Gate
) -> None:
    running, go_on = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def heavy(_tx: Transaction) -> None:
        threads.append(threading.current_thread())
        running.set()
        assert go_on.wait(30)

    store.submit(names.add("a"), answers)
    await gate.reached()
    store.submit(names.add("b"), answers)
    store.submit(names.add("c", heavy), answers, heavy=True)
    store.submit(names.add("d"), answers)
    assert names.runs == [("a", False), ("b", True)]
    gate.open()
    assert await asyncio.to_thread(running.wait, 30)
    store.submit(names.add("e"), answers)
    assert names.runs == [("a", False), ("b", True), ("c", False)]
    go_on.set()
    await wait_until_answered(store)
    assert threads != [threading.main_thread()]
    assert answers.outcomes == ["a", "ab", "abc", "abcd", "abcde"]


async def test_closing_commits_the_next_group(
    path: Path, names: Names, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await Store.open(path, Clock(), UnitLimits(10, 1000))
    await wait_until_answered(store)
    gate = Gate(store, monkeypatch)
    store.submit(names.add("a"), answers)
    await gate.reached()
    store.submit(names.add("b"), answers)
    closing_task = asyncio.ensure_future(store.close())
    await asyncio.sleep(0)
    assert store.waiting.units == 1
    gate.open()
    await asyncio.wait_for(closing_task, 30)
    assert answers.outcomes == ["a", "ab"]
    assert stored(path) == ["a", "b"]


async def test_the_next_group_ends_when_it_has_much_to_send(
    path: Path, names: Names, answers: Answers, store: Store, gate: Gate
) -> None:
    store.group_limits = GroupLimits(send_bytes=2 * (10 + MESSAGE_OVERHEAD))
    sent: list[tuple[int, str]] = []
    store.on_sends = lambda sends: sent.extend(
        (send.generation, "".join(stored(path))) for send in sends
    )
    store.submit(names.add("a"), answers)
    await gate.reached()
    for number, name in enumerate("bcd"):
        store.submit(names.add(name, partial(send, number, bytes(10))), answers)
    assert names.runs == [("a", False), ("b", True), ("c", True)]
    assert sent == []
    gate.open()
    await wait_until_answered(store)
    assert answers.committed == ["a", "abc", "abc", "abcd"]
    assert sent == [(0, "abc"), (1, "abc"), (2, "abcd")], "after their commits"


async def test_units_that_ran_in_memory_count_until_their_commit(
    path: Path, names: Names, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path, bounds=UnitLimits(100, 1000)) as store:
        notifications: list[str] = []
        store.on_room.append(lambda: notifications.append("".join(stored(path))))
        await wait_until_answered(store)
        gate = Gate(store, monkeypatch)
        store.submit(names.add("a"), answers, size=500)
        await gate.reached()
        assert not store.full
        store.submit(names.add("b"), answers, size=1000)
        assert (store.full, store.waiting) == (True, UnitLimits(1, 1500))
        gate.let_one_pass()
        await gate.reached()
        assert (store.full, notifications) == (True, [])
        gate.open()
        await wait_until_answered(store)
        assert (store.full, notifications) == (False, ["ab"])


async def test_a_group_that_writes_nothing_is_answered_without_the_thread(
    names: Names, store: Store, gate: Gate
) -> None:
    outcome: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    store.submit(lambda tx: meta.read_number(tx, "none"), outcome.set_result)
    assert await asyncio.wait_for(outcome, 30) == 0.0
    assert (store.commits, store.writes) == (2, 0)
    gate.open()
