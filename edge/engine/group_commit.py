"""Group commit: all units of work that wait run in one transaction and one hop.

A unit is a synchronous function of a transaction. It touches nothing else, and it may run again: if
one of a group raises, all is rolled back and each runs once more in a transaction of its own; if
the database itself is busy or broken, none does. Its answer is called on the event loop after the
commit (law 1), in the order of submission. What units do is not known here.
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
"""Bytes of what units have for sessions, from which on the next ones wait for another group: one
presence of an account with many contacts becomes hundreds, and all are memory until they are
handed over."""

SEND_COST: Final = 128
"""Bytes that one of these costs beside its own."""

RECLAIM_INTERVAL: Final = 5.0
"""Seconds between two looks at what could be given back (`space`)."""

READ_TIME: Final = 5.0
"""Seconds that a query may take: the WAL grows meanwhile."""

READ_STEPS: Final = 10_000
"""Instructions of SQLite between two looks at that."""

NOTHING: Final[Sequence[Send]] = ()

CLOSED: Final = "the database is closed"


class UnitLimits(NamedTuple):
    """How many units, and how many bytes of theirs, may wait."""

    units: int
    bytes: int


class _Waiting(NamedTuple):
    unit: Callable[[Transaction], Any]
    answer: Callable[[Any], None]
    size: int


class Store:
    """The database of a running gateway: one writer, one reader.

    `commits` and `writes` count transactions since the start: all, and those that changed rows.
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
        self._tidied = time.monotonic()
        self._writer = writer
        self._reader = reader
        self._clock = clock
        self._bounds = bounds
        self._waiting: deque[_Waiting] = deque()
        self._size = 0
        self._wake = asyncio.Event()
        self._closing = False
        self._was_full = False
        self._known: dict[str, Any] = {}
        self._version = -1
        self._changed = False
        self.commit_window = CommitWindow(self._enough)
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
        """How many units wait, and how many bytes of theirs."""
        return UnitLimits(len(self._waiting), self._size)

    @property
    def full(self) -> bool:
        """Whether so much waits that nobody should bring more; `on_room` tells when it is over."""
        return len(self._waiting) >= self._bounds.units or self._size >= self._bounds.bytes

    def submit(
        self,
        unit: Callable[[Transaction], T],
        answer: Callable[[T | StoreError], None],
        size: int = 0,
    ) -> None:
        """Let `unit` run in the next group; `answer` gets what it returned, or why it failed.

        `size` is what the unit keeps in memory while it waits, in bytes.
        """
        if self._task.done():
            asyncio.get_running_loop().call_soon(self._call, answer, StoreError(CLOSED))
            return
        self._waiting.append(_Waiting(unit, answer, size))
        self._size += size
        self._was_full = self._was_full or self.full
        self._wake.set()
        if self.commit_window.min_interval and self._enough():
            self.commit_window.wake()

    async def run(self, unit: Callable[[Transaction], T]) -> T:
        """Run one unit and return what it returned; raises `StoreError`.

        A caller that is cancelled meanwhile does not undo the unit.
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

        It must be short: the WAL cannot be taken back while it reads. After `READ_TIME` it is
        interrupted.
        """
        if self._task.done():
            raise StoreError(CLOSED)
        return await self._reader.call(self._query, query)

    async def close(self) -> None:
        """Commit what waits, then close."""
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
                await self._tidy()

    async def _tidy(self) -> None:
        """Give back what the database does not need, from time to time."""
        now = time.monotonic()
        if now - self._tidied >= RECLAIM_INTERVAL:
            self._tidied = now
            await self._writer.call(self._guard.reclaim, self._writer.raw)

    def _enough(self) -> bool:
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
        except Exception as error:  # a fault of ours, in no unit: nothing is committed any more
            _tell(error)
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
                _tell(outcome)
            self._call(entry.answer, outcome)
        self._call(self.on_flush)
        if due is not None:
            self._call(self.on_due, due)
        if self._was_full and not self.full:
            self._was_full = False
            self._call(self.on_room)

    def _call(self, function: Callable[..., None], *args: Any) -> None:
        """Call what follows a commit; its fault must not keep the answers of others back."""
        try:
            function(*args)
        except Exception as error:
            _tell(error)

    # On the database threads from here on.

    def _query(self, query: Callable[[Transaction], T]) -> T:
        end = time.monotonic() + READ_TIME
        self._reader.raw.set_progress_handler(lambda: time.monotonic() > end, READ_STEPS)
        with database.transaction(self._reader.raw, self._clock(), "BEGIN") as tx:
            return query(tx)

    def _commit(self, units: list[Callable[[Transaction], Any]]) -> tuple[list[Any], float | None]:
        """Run units, or the first of them (`SENT_BYTES`); returns (outcome, sends) of each."""
        try:
            return self._together(units)
        except Exception as error:
            fault = _as_store_error(error)
        if len(units) == 1 or isinstance(fault, StoreBusy | StoreBroken):
            return [(fault, NOTHING)] * len(units), None
        outcomes: list[Any] = []
        dues: list[float] = []
        sent = 0
        for unit in units:
            try:
                (outcome,), due = self._together([unit])
            except Exception as error:
                outcome, due = (_as_store_error(error), NOTHING), None
            outcomes.append(outcome)
            if due is not None:
                dues.append(due)
            sent += _bytes(outcome[1])
            if sent >= MAX_SEND_BYTES:
                break
        return outcomes, min(dues, default=None)

    def _together(
        self, units: list[Callable[[Transaction], Any]]
    ) -> tuple[list[Any], float | None]:
        connection = self._writer.raw
        changes = connection.total_changes
        tx = Transaction(connection, self._clock(), self._known)
        tx.before_commit(self.before_commit)
        try:
            self._guard.begin(connection)
            (version,) = connection.execute("PRAGMA data_version").fetchone()
            if version != self._version:  # another process has changed something
                self._version = version
                self._changed = True
                self._known.clear()
            outcomes = self._each(tx, units)
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
            self._known.clear()
            if connection.in_transaction:  # a full disk has rolled back already
                connection.execute("ROLLBACK")
            full = self._guard.explain_failure(connection, error)
            if full is not None:
                raise full from error
            raise
        finally:
            self._guard.end(connection)
        return outcomes, tx.due

    def _each(self, tx: Transaction, units: list[Callable[[Transaction], Any]]) -> list[Any]:
        """Run the units, or the first of them: as many as have not too much to send."""
        outcomes: list[Any] = []
        sent = 0
        for unit in units:
            outcome = unit(tx)
            sends = tx.take_sends() if tx.sends else NOTHING
            outcomes.append((outcome, sends))
            if sends and (sent := sent + _bytes(sends)) >= MAX_SEND_BYTES:
                break
        return outcomes


def _bytes(sends: Sequence[Send]) -> int:
    return sum(len(send.stanza) + SEND_COST for send in sends)


def _tell(error: Exception) -> None:
    """Tell a fault of our own, with its trace, as the event loop tells those that it meets."""
    asyncio.get_running_loop().call_exception_handler({"message": str(error), "exception": error})


def _as_store_error(error: Exception) -> StoreError:
    if isinstance(error, StoreError):
        return error
    if isinstance(error, sqlite3.Error):
        return database.translate(error)
    fault = UnitFault(f"a unit of work failed: {error!r}")
    fault.__cause__ = error
    return fault
