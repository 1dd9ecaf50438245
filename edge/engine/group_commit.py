"""Group commit: run all waiting units of work in one transaction and one hop to the thread.

A unit is a synchronous function of a transaction. It touches nothing else, and it may run again: if
one unit of a group raises, the transaction is rolled back and each unit runs again in its own
transaction; if the database is busy or broken, none runs again. After the commit, the answers are
called on the event loop, in the order of submission.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from edge.engine import database
from edge.engine.commit_window import GROUP_BYTES, GROUP_UNITS, CommitWindow
from edge.engine.database import Send, Transaction
from edge.engine.database_thread import DatabaseThread
from edge.engine.service_time import Now
from edge.engine.space import SpaceGuard
from edge.errors import StoreBroken, StoreBusy, StoreError, UnitFault

T = TypeVar("T")

MAX_SEND_BYTES: Final = 1024 * 1024
"""Bytes of stanzas to send at which a group ends. One presence of an account with many contacts
becomes hundreds of stanzas, which are in memory until they are sent."""

SEND_COST: Final = 128
"""Bytes that a stanza to send takes beside its own."""

RECLAIM_INTERVAL: Final = 5.0
"""Seconds between two calls of `SpaceGuard.reclaim`."""

READ_TIME: Final = 5.0
"""Most seconds of a query; the WAL grows meanwhile."""

READ_STEPS: Final = 10_000
"""SQLite instructions between two checks of that time."""

NOTHING: Final[Sequence[Send]] = ()

CLOSED: Final = "the database is closed"


class UnitLimits(NamedTuple):
    """A number of waiting units, and their bytes."""

    units: int
    bytes: int


class _WaitingUnit(NamedTuple):
    unit: Callable[[Transaction], Any]
    answer: Callable[[Any], None]
    size: int


class Store:
    """The database of a running gateway: one writer and one reader.

    Attributes:
        commits: transactions since the start.
        writes: those that changed rows.
        on_room: called when more units may be submitted again after `full`.
        on_flush: called after each group.
        on_due: called with the service second that a group sets the timer to.
        on_sends: called with the stanzas that a committed unit sends.
        on_changed: called when another process has changed the database.
        on_broken: called when the database can no longer be trusted.
        before_commit: runs in each transaction after its units.
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
        self._waiting: deque[_WaitingUnit] = deque()
        self._size = 0
        self._wake = asyncio.Event()
        self._closing = False
        self._was_full = False
        self._cache: dict[str, Any] = {}
        self._version = -1
        self._changed = False
        self.commit_window = CommitWindow(self._is_full)
        self.commits = 0
        self.writes = 0
        self.on_room: Callable[[], None] = lambda: None
        self.on_flush: Callable[[], None] = lambda: None
        self.on_due: Callable[[float], None] = lambda _due: None
        self.on_sends: Callable[[Sequence[Send]], None] = lambda _sends: None
        self.on_changed: Callable[[], None] = lambda: None
        self.on_broken: Callable[[StoreBroken], None] = lambda _error: None
        self.before_commit: Callable[[Transaction], None] = lambda _tx: None
        self._task = asyncio.get_running_loop().create_task(self._run(), name="store")

    @classmethod
    async def open(
        cls,
        path: Path,
        clock: Callable[[], Now],
        bounds: UnitLimits,
        max_bytes: int | None = None,
    ) -> Store:
        """Open the database at `path`; raises `SetupError` as `database.connect` does."""
        writer = await DatabaseThread.start(lambda: database.connect(path, max_bytes))
        try:
            reader = await DatabaseThread.start(lambda: database.connect_reader(path))
        except BaseException:
            await writer.close()
            raise
        return cls(writer, reader, clock, bounds, SpaceGuard(path, max_bytes))

    @property
    def waiting(self) -> UnitLimits:
        """The waiting units and their bytes."""
        return UnitLimits(len(self._waiting), self._size)

    @property
    def full(self) -> bool:
        """Whether no more units should be submitted until `on_room` is called."""
        return len(self._waiting) >= self._bounds.units or self._size >= self._bounds.bytes

    def submit(
        self,
        unit: Callable[[Transaction], T],
        answer: Callable[[T | StoreError], None],
        size: int = 0,
    ) -> None:
        """Run a unit in the next group, and call `answer` with its result or its error.

        `size` is the memory that the unit takes while it waits, in bytes.
        """
        if self._task.done():
            asyncio.get_running_loop().call_soon(self._call, answer, StoreError(CLOSED))
            return
        self._waiting.append(_WaitingUnit(unit, answer, size))
        self._size += size
        self._was_full = self._was_full or self.full
        self._wake.set()
        if self.commit_window.min_interval and self._is_full():
            self.commit_window.wake()

    async def run(self, unit: Callable[[Transaction], T]) -> T:
        """Run a unit and return its result; raises `StoreError`.

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

        self.submit(unit, answer)
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
        """Commit the waiting units, then close the database."""
        self._closing = True
        self.commit_window.wake()
        self._wake.set()
        await self._task
        await self._reader.close()
        await self._writer.close()

    async def _run(self) -> None:
        while not (self._closing and not self._waiting):
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                await self.commit_window.wait()
                await self._commit_group()
                await self._reclaim()

    async def _reclaim(self) -> None:
        now = time.monotonic()
        if now - self._reclaimed_at >= RECLAIM_INTERVAL:
            self._reclaimed_at = now
            await self._writer.call(self._guard.reclaim, self._writer.raw)

    def _is_full(self) -> bool:
        waiting, size = self.waiting
        return self._closing or self.full or waiting >= GROUP_UNITS or size >= GROUP_BYTES

    async def _commit_group(self) -> None:
        waiting = self._waiting
        group, size = [waiting.popleft()], 0
        while waiting and len(group) < GROUP_UNITS and size < GROUP_BYTES:
            group.append(waiting.popleft())
            size += group[-1].size
        try:
            outcomes, due = await self._writer.call(self._commit, [w.unit for w in group])
        except Exception as error:  # a bug outside the units: nothing was committed
            _report(error)
            broken = StoreBroken(f"a commit failed: {error!r}")
            outcomes, due = [(broken, NOTHING)] * len(group), None
        if self._changed:
            self._changed = False
            self._call(self.on_changed)
        done = group[: len(outcomes)]
        waiting.extendleft(reversed(group[len(outcomes) :]))
        for entry, (outcome, sends) in zip(done, outcomes, strict=True):
            self._size -= entry.size
            if sends:
                self._call(self.on_sends, sends)
            if isinstance(outcome, StoreBroken):
                self._call(self.on_broken, outcome)
            elif isinstance(outcome, UnitFault):
                _report(outcome)
            self._call(entry.answer, outcome)
        self._call(self.on_flush)
        if due is not None:
            self._call(self.on_due, due)
        if self._was_full and not self.full:
            self._was_full = False
            self._call(self.on_room)

    def _call(self, function: Callable[..., None], *args: Any) -> None:
        """Call a function after a commit; its exception must not block the answers of others."""
        try:
            function(*args)
        except Exception as error:
            _report(error)

    # On the database threads from here on.

    def _query(self, query: Callable[[Transaction], T]) -> T:
        end = time.monotonic() + READ_TIME
        self._reader.raw.set_progress_handler(lambda: time.monotonic() > end, READ_STEPS)
        with database.transaction(self._reader.raw, self._clock(), "BEGIN") as tx:
            return query(tx)

    def _commit(self, units: list[Callable[[Transaction], Any]]) -> tuple[list[Any], float | None]:
        """Run units, or the first of them (`SENT_BYTES`); returns (outcome, sends) of each."""
        try:
            return self._run_in_transaction(units)
        except Exception as error:
            fault = _as_store_error(error)
        if len(units) == 1 or isinstance(fault, StoreBusy | StoreBroken):
            return [(fault, NOTHING)] * len(units), None
        outcomes: list[Any] = []
        dues: list[float] = []
        sent = 0
        for unit in units:
            try:
                (outcome,), due = self._run_in_transaction([unit])
            except Exception as error:
                outcome, due = (_as_store_error(error), NOTHING), None
            outcomes.append(outcome)
            if due is not None:
                dues.append(due)
            sent += _bytes(outcome[1])
            if sent >= MAX_SEND_BYTES:
                break
        return outcomes, min(dues, default=None)

    def _run_in_transaction(
        self, units: list[Callable[[Transaction], Any]]
    ) -> tuple[list[Any], float | None]:
        connection = self._writer.raw
        changes = connection.total_changes
        tx = Transaction(connection, self._clock(), self._cache)
        tx.before_commit(self.before_commit)
        try:
            self._guard.begin(connection)
            (version,) = connection.execute("PRAGMA data_version").fetchone()
            if version != self._version:  # another process has changed the database
                self._version = version
                self._changed = True
                self._cache.clear()
            outcomes = self._run_units(tx, units)
            tx.run_before_commit()
            if tx.sends:
                outcomes[-1] = (outcomes[-1][0], [*outcomes[-1][1], *tx.sends])
            before = time.perf_counter()
            connection.execute("COMMIT")
            wrote = connection.total_changes > changes
            self.commit_window.observe(time.perf_counter() - before, wrote=wrote)
            self.commits += 1
            self.writes += wrote
        except BaseException as error:
            self._cache.clear()
            if connection.in_transaction:  # a full disk rolls back by itself
                connection.execute("ROLLBACK")
            full = self._guard.explain_failure(connection, error)
            if full is not None:
                raise full from error
            raise
        finally:
            self._guard.end(connection)
        return outcomes, tx.due

    def _run_units(self, tx: Transaction, units: list[Callable[[Transaction], Any]]) -> list[Any]:
        """Run the first units, up to `MAX_SEND_BYTES` of stanzas to send."""
        outcomes: list[Any] = []
        sent = 0
        for unit in units:
            outcome = unit(tx)
            sends = tx.take_sends()
            outcomes.append((outcome, sends or NOTHING))
            if sends and (sent := sent + _bytes(sends)) >= MAX_SEND_BYTES:
                break
        return outcomes


def _bytes(sends: Sequence[Send]) -> int:
    return sum(len(send.stanza) + SEND_COST for send in sends)


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
