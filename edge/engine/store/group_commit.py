"""Group commit: units of work share transactions, and are answered after the commit.

A unit is a synchronous function of a transaction. It has no other side effects, and it may run
again. Units run in the order of submission. The transaction of a group begins, and its units run,
on the event loop. On a fast disk, the loop commits it, too: to hand the COMMIT to a thread, and to
share the interpreter's lock with it, takes longer than the disk. On a slow disk (`SLOW_COMMIT`),
COMMIT runs on the database's thread. Meanwhile the loop reads from connections and runs units of
the next group in memory, as long as they need only images of rows (`Transaction`), which include
the changes of the committing group. The first unit that needs a statement is undone; it and all
units after it wait until the commit is done.

A unit that may wait for the disk, because it reads many rows or rows that were not used recently,
is submitted as `heavy`. A group with such a unit runs on the database's thread as a whole, and
nothing runs in memory meanwhile. The same applies while another process holds the database's lock.

If a unit raises, or a commit fails, the transaction is rolled back, the images are dropped, and
each unit of the group runs again in its own transaction; if the database is busy or broken, none
runs again. Units of the next group that ran in memory run again, too, because they have read
changes that were rolled back. After the commit, the answers are called on the event loop, in the
order of submission; the messages that a unit sends follow its answer, because a subscriber must
learn of its subscription before it receives the first item.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from edge.engine.rules.commit_window import CommitWindow
from edge.engine.rules.service_time import Now
from edge.engine.store import database, events, message_counts, space
from edge.engine.store.database import Send, Transaction, estimate_size
from edge.engine.store.database_thread import DatabaseThread
from edge.engine.store.events import NewEvent
from edge.engine.store.message_counts import MessageCounts
from edge.engine.store.space import SpaceGuard
from edge.errors import StoreBroken, StoreBusy, StoreError, UnitFault

T = TypeVar("T")

RECLAIM_INTERVAL: Final = 5.0
"""Seconds between two calls of `SpaceGuard.reclaim`, which frees disk space."""

READ_TIME: Final = 5.0
"""Seconds after which a query is interrupted, because the WAL can grow while it runs."""

READ_STEPS: Final = 10_000
"""SQLite instructions between two checks of the time that a query has taken."""

NOTHING: Final[Sequence[Send]] = ()

CLOSED: Final = "the database is closed"

_LOADED: Final = "images are loaded"
"""The key in `Transaction.cache` while the images (copies of tables in memory) are loaded."""


class UnitLimits(NamedTuple):
    """A number of waiting units and a number of bytes, as a limit or as a usage."""

    units: int
    bytes: int


class GroupLimits(NamedTuple):
    """The limits at which no further unit joins a group.

    Attributes:
        units: number of units; larger groups gain nothing and delay the answers.
        bytes: bytes of the units, because a few large messages take as long as many small ones.
        send_bytes: estimated bytes of the messages to send (`database.estimate_size`). One presence
            of an account with many contacts becomes hundreds, in memory until they are sent.
    """

    units: int = 512
    bytes: int = 256 * 1024
    send_bytes: int = 1024 * 1024


SHORT_GROUPS: Final = GroupLimits(units=96)
"""The limits while front processes write the answers of one group, and read requests, as the next
group runs. Devices that wait for answers otherwise run in step with the commits, and core and
fronts wait for each other; but each commit takes 0.3 ms of processor time on a PC."""


class Unit(ABC):
    """A unit of work; after it has run, also its outcome and the messages that it sends.

    Args:
        size: the memory that it takes while it waits, in bytes.
        heavy: whether it may wait for the disk.
    """

    __slots__ = ("heavy", "outcome", "sends", "size")

    def __init__(self, size: int, heavy: bool) -> None:
        self.size = size
        self.heavy = heavy
        self.outcome: Any = None
        self.sends: Sequence[Send] = NOTHING

    @abstractmethod
    def run(self, tx: Transaction) -> Any:
        """Do the work in a transaction, and return the outcome."""

    @abstractmethod
    def answer(self, outcome: Any) -> None:
        """Take the outcome after the commit, or the `StoreError` because of which there is none."""

    def turn(self) -> str:
        """Return the account of which a group has at most one such unit, because it takes long;
        empty if a group may have any number."""
        return ""

    def fail(self, error: StoreError) -> None:
        """Set an error as the outcome."""
        self.outcome = error
        self.sends = NOTHING


class _FunctionUnit(Unit):
    """A unit of functions."""

    __slots__ = ("_answer", "_turn", "_work")

    def __init__(
        self,
        work: Callable[[Transaction], Any],
        answer: Callable[[Any], None],
        size: int,
        heavy: bool,
        turn: Callable[[], str],
    ) -> None:
        super().__init__(size, heavy)
        self._work = work
        self._answer = answer
        self._turn = turn

    def run(self, tx: Transaction) -> Any:
        return self._work(tx)

    def turn(self) -> str:
        return self._turn()

    def answer(self, outcome: Any) -> None:
        self._answer(outcome)


class _Group:
    """The units of one transaction; the first `done` of them have run.

    Attributes:
        limits: the limits at which the group is full.
        left: units that were taken out of this group, for a later group.
        size: memory that the units take, in bytes.
        sent: estimated bytes of the messages that they send.
    """

    __slots__ = ("done", "left", "limits", "sent", "size", "tx", "units")

    def __init__(self, tx: Transaction, limits: GroupLimits) -> None:
        self.tx = tx
        self.limits = limits
        self.units: list[Unit] = []
        self.left: list[Unit] = []
        self.done = 0
        self.size = 0
        self.sent = 0

    def is_full(self) -> bool:
        units, size, send_bytes = self.limits
        return len(self.units) >= units or self.size >= size or self.sent >= send_bytes

    @property
    def is_heavy(self) -> bool:
        """Return whether any unit that has not run yet is heavy: it may wait for the disk."""
        return any(unit.heavy for unit in self.units[self.done :])

    def add(self, unit: Unit) -> None:
        self.units.append(unit)
        self.size += unit.size

    def run_in_memory(self, unit: Unit) -> bool:
        """Run a unit in memory and add it to the group; return whether that was possible.

        A unit that fails or needs an SQL statement is undone. It runs again in a transaction,
        where its error is handled.
        """
        try:
            self._run(unit)
        except Exception:
            self.tx.undo()
            return False
        self.add(unit)
        return True

    def run(self) -> None:
        """Run the units that have not run; leave the rest to a later group when `send_bytes` is
        reached."""
        for unit in self.units[self.done :]:
            if self.sent >= self.limits.send_bytes:
                break
            self._run(unit)
        self.leave_from(self.done)

    def leave_from(self, done: int) -> None:
        self.left[:0] = self.units[done:]
        del self.units[done:]

    def _run(self, unit: Unit) -> None:
        unit.outcome = unit.run(self.tx)
        unit.sends = sends = self.tx.take_sends()
        self.done += 1
        if sends:
            self.sent += _bytes(sends)

    def restart(self, tx: Transaction) -> None:
        """Prepare to run all units again, in the transaction `tx`."""
        self.tx = tx
        self.done = 0
        self.sent = 0


class Store:
    """The database of a running gateway: one writer and one reader.

    Attributes:
        commits: transactions since the start.
        writes: transactions since the start that changed rows.
        full: whether too many units wait; then no more should be submitted before `on_room`.
        group_limits: the limits of groups that begin from now on.
        reclaim_interval: seconds between two calls of `SpaceGuard.reclaim`.
        on_room: functions called when more units may be submitted again after `full`.
        on_answered: functions called after the answers of each group, to write the output of
            connections and to wake tasks that wait for new events.
        on_changed: functions called when another process has changed the database.
        on_due: called with the service second that a group sets the timer to.
        on_sends: called with the messages that a committed unit sends.
        on_logged: called with the gateway's own events after their commit.
        on_counted: called with numbers of messages after their commit (`message_counts`).
        on_broken: called when the database can no longer be trusted.
        before_commit: runs in each transaction after its units.
        load_images: reads tables into memory, on the database's thread, if they are not loaded.
    """

    def __init__(
        self,
        writer: DatabaseThread,
        reader: DatabaseThread,
        clock: Callable[[], Now],
        bounds: UnitLimits,
        guard: SpaceGuard,
    ) -> None:
        self._guard = guard
        self._reclaimed_at = time.monotonic()
        self._writer = writer
        self._reader = reader
        self._clock = clock
        self._bounds = bounds
        self._waiting: deque[Unit] = deque()
        self._behind: _Group | None = None  # runs in memory while another group is committed
        self._committing = False
        self._size = 0
        self._wake = asyncio.Event()
        self._closing = False
        self._cache: dict[str, Any] = {}
        self._version = -1
        self._changed = False
        self._logged: list[NewEvent] = []
        self._counts: list[MessageCounts] = []
        self.commit_window = CommitWindow(self._is_full, lambda: self.waiting.units)
        self.commits = 0
        self.writes = 0
        self.full = False
        self.group_limits = GroupLimits()
        self.reclaim_interval = RECLAIM_INTERVAL
        self.on_room: list[Callable[[], None]] = []
        self.on_answered: list[Callable[[], None]] = []
        self.on_changed: list[Callable[[], None]] = []
        self.on_due: Callable[[float], None] = lambda _due: None
        self.on_sends: Callable[[Sequence[Send]], None] = lambda _sends: None
        self.on_logged: Callable[[Sequence[NewEvent]], None] = lambda _events: None
        self.on_counted: Callable[[MessageCounts], None] = lambda _counts: None
        self.on_broken: Callable[[StoreBroken], None] = lambda _error: None
        self.before_commit: Callable[[Transaction], None] = lambda _tx: None
        self.load_images: Callable[[Transaction], None] = lambda _tx: None
        self._task = asyncio.get_running_loop().create_task(self._run(), name="store")
        self._task.add_done_callback(self._on_end)

    @classmethod
    async def open(
        cls,
        path: Path,
        clock: Callable[[], Now],
        bounds: UnitLimits,
        max_bytes: int | None = None,
    ) -> Store:
        """Open the database at `path`; raises what `database.connect` raises.

        `bounds` limits the waiting units, `max_bytes` the database and its WAL together.
        """
        guard = SpaceGuard(path, max_bytes)
        writer = await DatabaseThread.start(guard.connect)
        try:
            reader = await DatabaseThread.start(lambda: database.connect_reader(path))
        except BaseException:
            await writer.close()
            raise
        return cls(writer, reader, clock, bounds, guard)

    def set_limits(self, bounds: UnitLimits, max_bytes: int) -> None:
        """Change the limits that were given to `open`.

        A unit of work must have passed the same `max_bytes` to `space.set_max_bytes` before.
        """
        self._bounds = bounds
        self._guard.set_max_bytes(max_bytes)

    def service_time(self) -> float:
        """Return the present service second (`Now.service`)."""
        return self._clock().service

    @property
    def waiting(self) -> UnitLimits:
        """The number of units whose transaction has not begun, and the bytes of unanswered ones."""
        behind = 0 if self._behind is None else len(self._behind.units)
        return UnitLimits(len(self._waiting) + behind, self._size)

    def _is_at_limit(self) -> bool:
        size, bounds, behind = self._size, self._bounds, self._behind
        units = len(self._waiting) if behind is None else len(self._waiting) + len(behind.units)
        return size >= bounds.bytes or units >= bounds.units

    def submit(
        self,
        work: Callable[[Transaction], T],
        answer: Callable[[T | StoreError], None],
        size: int = 0,
        *,
        heavy: bool = False,
        turn: Callable[[], str] = str,
    ) -> None:
        """Run a unit in the next group, and call `answer` with its result or its error.

        `size` is the memory that the unit takes while it waits, in bytes. A unit that may wait for
        the disk is `heavy`. `turn` is `Unit.turn`; by default it returns an empty text.
        """
        self.enqueue(_FunctionUnit(work, answer, size, heavy, turn))

    def enqueue(self, unit: Unit) -> None:
        """Run a unit in the next group, and call its `answer`."""
        if self._task.done():
            asyncio.get_running_loop().call_soon(self._call, unit.answer, StoreError(CLOSED))
            return
        if unit.heavy or self._waiting or not self._committing or not self._run_in_memory(unit):
            self._waiting.append(unit)
            self._wake.set()
        self._size += unit.size
        self.full = self.full or self._is_at_limit()
        if self.commit_window.waits:
            self.commit_window.wake_if_complete()

    def _run_in_memory(self, unit: Unit) -> bool:
        behind = self._behind
        return behind is not None and not behind.is_full() and behind.run_in_memory(unit)

    async def run(self, work: Callable[[Transaction], T]) -> T:
        """Run a heavy unit and return its result; raises `StoreError`.

        Cancelling the caller does not cancel the unit.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def answer(outcome: T | StoreError) -> None:
            if future.done():
                return
            if isinstance(outcome, StoreError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        self.submit(work, answer, heavy=True)
        return await future

    async def read(self, query: Callable[[Transaction], T]) -> T:
        """Run a query on one snapshot, beside the writer; raises `StoreError`.

        The query must be short, because the WAL cannot be shortened while it reads. It is
        interrupted after `READ_TIME`.
        """
        if self._task.done():
            raise StoreError(CLOSED)
        return await self._reader.call(self._query, query)

    async def close(self) -> None:
        """Commit the waiting units, then close both connections."""
        self._closing = True
        self.commit_window.wake()
        self._wake.set()
        await asyncio.wait({self._task})  # `_on_end` reports its error
        await self._reader.close()
        await self._writer.close()

    async def _run(self) -> None:
        while not (self._closing and not self.waiting.units):
            await self._wake.wait()
            self._wake.clear()
            while self.waiting.units:
                await self.commit_window.wait()
                await self._commit_group()
                await self._reclaim()
                if self.waiting.units and not self.commit_window.lets_others_run:
                    await asyncio.sleep(0.0)  # `commit_window.wait` does not let the loop run

    def _on_end(self, task: asyncio.Task[None]) -> None:
        """Report a bug that has ended the store; nothing is committed any more."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._call(self.on_broken, StoreBroken(f"the task that commits has failed: {error!r}"))

    async def _reclaim(self) -> None:
        now = time.monotonic()
        if now - self._reclaimed_at >= self.reclaim_interval:
            self._reclaimed_at = now
            await self._writer.call(self._guard.reclaim, self._writer.raw)

    def _is_full(self) -> bool:
        (waiting, size), limits = self.waiting, self.group_limits
        return self._closing or self.full or waiting >= limits.units or size >= limits.bytes

    async def _commit_group(self) -> None:
        group = self._next_group()
        try:
            if self._begin_here(group):
                due = await self._run_here(group)
            else:
                due = await self._writer.call(self._run_and_commit, group)
        except Exception as error:  # a bug outside the units: nothing was committed
            _report(error)
            self._cache.clear()
            for unit in group.units:
                unit.fail(StoreBroken(f"a commit failed: {error!r}"))
            due = None
        self._return_left(group)
        if self._changed:
            self._changed = False
            self._call_all(self.on_changed)
        for unit in group.units:
            self._answer(unit)
        self._report_committed()
        self._call_all(self.on_answered)
        if due is not None:
            self._call(self.on_due, due)
        if self.full and not self._is_at_limit():
            self.full = False
            self._call_all(self.on_room)

    def _report_committed(self) -> None:
        if self._logged:
            logged, self._logged = self._logged, []
            self._call(self.on_logged, logged)
        if self._counts:
            counted, self._counts = self._counts, []
            for counts in counted:
                self._call(self.on_counted, counts)

    def _return_left(self, group: _Group) -> None:
        self._waiting.extendleft(reversed(group.left))
        group.left.clear()

    def _answer(self, unit: Unit) -> None:
        outcome = unit.outcome
        self._size -= unit.size
        if isinstance(outcome, StoreError):
            self._report_failure(outcome)
        try:
            unit.answer(outcome)
        except Exception as error:
            _report(error)
        if unit.sends:
            self._call(self.on_sends, unit.sends)

    def _report_failure(self, error: StoreError) -> None:
        if isinstance(error, StoreBroken):
            self._call(self.on_broken, error)
        elif isinstance(error, UnitFault):
            _report(error)

    def _next_group(self) -> _Group:
        """Return the next group: the units that have run in memory, then waiting units, except
        those whose account has had its turn."""
        group, self._behind = self._behind, None
        if group is None:
            group = self._new_group()
        turns: set[str] = set()
        left: list[Unit] = []
        while self._waiting and not group.is_full():
            unit = self._waiting.popleft()
            if turn := unit.turn():
                if turn in turns:
                    left.append(unit)
                    continue
                turns.add(turn)
            group.add(unit)
        self._waiting.extendleft(reversed(left))
        return group

    def _new_group(self) -> _Group:
        return _Group(self._transaction(), self.group_limits)

    def _transaction(self) -> Transaction:
        return Transaction(None, self._clock(), self._cache)

    async def _run_here(self, group: _Group) -> float | None:
        """Run a group whose transaction has begun, and commit it; on a slow disk, on the thread.

        Return the service second that the timer is set to, if any.
        """
        connection = self._writer.raw
        changes = connection.total_changes
        try:
            group.run()
            self._finish_units(group)
            wrote = connection.total_changes > changes
            if not (wrote and self.commit_window.is_slow):
                self._commit(group, wrote=wrote)
                return group.tx.due
            space.measure_room(group.tx)
        except Exception as error:
            return await self._writer.call(self._recover, group, error)
        self._return_left(group)
        self._behind = behind = self._new_group()
        self._committing = True
        try:
            await self._writer.call_first(self._commit, group, wrote=True)
        except Exception as error:
            self._behind = None
            self._waiting.extendleft(reversed(behind.units))
            return await self._writer.call(self._recover, group, error)
        finally:
            self._committing = False
        if not behind.units:
            self._behind = None
        return group.tx.due

    def _begin_here(self, group: _Group) -> bool:
        """Begin the transaction of a group; return False if the group has to run on the thread.

        It has to if a unit is heavy, if beginning would wait for the disk or another process, or if
        the images were dropped, because reading them again takes long.
        """
        if group.is_heavy or not self._guard.begin_now(self._writer.raw):
            return False
        self._connect(group)
        return _LOADED in self._cache

    def _connect(self, group: _Group) -> None:
        """Connect a group to the transaction that has begun.

        Units that have run in memory run again if another process has changed the database.
        """
        connection = self._writer.raw
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._version = version
            self._changed = True
            self._cache.clear()
            if group.done:
                group.restart(self._transaction())
        group.tx.connect(connection, self._clock())
        group.tx.before_commit(self.before_commit)

    def _finish_units(self, group: _Group) -> None:
        group.tx.run_before_commit()
        space.check_file(group.tx)
        sends = group.tx.take_sends()
        if sends:
            last = group.units[-1]
            last.sends = [*last.sends, *sends]

    def _commit(self, group: _Group, *, wrote: bool) -> None:
        before = time.perf_counter()
        self._writer.raw.execute("COMMIT")
        self.commit_window.observe(time.perf_counter() - before, len(group.units), wrote=wrote)
        self.commits += 1
        self.writes += wrote
        self._logged += (event for _number, event in events.take_logged(group.tx))
        if counts := message_counts.take(group.tx):
            self._counts.append(counts)
        self._guard.end()

    def _call(self, function: Callable[..., None], *args: Any) -> None:
        """Call a function after a commit; its exception must not block the answers of others."""
        try:
            function(*args)
        except Exception as error:
            _report(error)

    def _call_all(self, functions: Sequence[Callable[[], None]]) -> None:
        for function in functions:
            self._call(function)

    # On the database threads from here on.

    def _query(self, query: Callable[[Transaction], T]) -> T:
        end = time.monotonic() + READ_TIME
        self._reader.raw.set_progress_handler(lambda: time.monotonic() > end, READ_STEPS)
        with database.transaction(self._reader.raw, self._clock(), "BEGIN") as tx:
            return query(tx)

    def _run_and_commit(self, group: _Group) -> float | None:
        """Run a group in a transaction and commit it; if that fails, run its units one by one.

        Return the service second that the timer is set to, if any.
        """
        try:
            return self._run_in_transaction(group)
        except Exception as error:
            return self._recover(group, error)

    def _run_in_transaction(self, group: _Group) -> float | None:
        connection = self._writer.raw
        changes = connection.total_changes
        if not connection.in_transaction:
            self._guard.begin(connection)
            self._connect(group)
        if _LOADED not in self._cache:
            self.load_images(group.tx)
            self._cache[_LOADED] = True
        group.run()
        self._finish_units(group)
        self._commit(group, wrote=connection.total_changes > changes)
        return group.tx.due

    def _recover(self, group: _Group, error: Exception) -> float | None:
        """Roll back a transaction that failed, and run each of its units in a separate one.

        Return the service second that the timer is set to, if any.
        """
        fault = self._roll_back(error)
        units = group.units
        if len(units) == 1:
            units[0].fail(fault)
            return None
        dues: list[float] = []
        sent = done = 0
        for unit in units:
            done += 1
            if isinstance(fault, StoreBusy | StoreBroken):  # the next unit would wait or fail, too
                unit.fail(fault)
                continue
            alone = self._new_group()
            alone.add(unit)
            try:
                due = self._run_in_transaction(alone)
            except Exception as fresh:
                fault = self._roll_back(fresh)
                unit.fail(fault)
            else:
                dues += [] if due is None else [due]
                sent += alone.sent
            if sent >= group.limits.send_bytes:
                break
        group.leave_from(done)
        return min(dues, default=None)

    def _roll_back(self, error: Exception) -> StoreError:
        """Roll back the transaction, drop the images, and return the error for its units."""
        connection = self._writer.raw
        self._cache.clear()
        try:
            if connection.in_transaction:  # a full disk rolls back by itself
                connection.execute("ROLLBACK")
            full = self._guard.explain_failure(connection, error)
        finally:
            self._guard.end()
        return full or _as_store_error(error)


def _bytes(sends: Sequence[Send]) -> int:
    known: dict[int, int] = {}
    return sum(estimate_size(send.message, known) for send in sends)


def _report(error: Exception) -> None:
    """Report a bug with its traceback, through the event loop's exception handler."""
    asyncio.get_running_loop().call_exception_handler({"message": str(error), "exception": error})


def _as_store_error(error: Exception) -> StoreError:
    if isinstance(error, StoreError):
        return error
    if isinstance(error, sqlite3.Error):
        return database.translate(error)
    fault = UnitFault(f"a unit of work failed: {error!r}")
    fault.__cause__ = error
    return fault
