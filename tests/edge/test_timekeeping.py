from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from edge import background_tasks, timekeeping
from edge.config.limits import Limits
from edge.config.options import Flash
from edge.engine.limits.flash_meter import WriteMeter
from edge.engine.rules.service_time import SavedTime, Start, TimeOffSource, TrustedMoment, start_run
from edge.engine.store import database
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent
from edge.engine.store.group_commit import Store
from edge.engine.time import clock_store
from edge.engine.time.clock import Clock
from edge.server.refusal_counters import RefusalCounters
from tests.helpers.machine import EPOCH, SimulatedMachine
from tests.helpers.manual_time import ManualTime
from tests.helpers.store import BOUNDS, new_database, unsealed_events


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return new_database(tmp_path)


class Gateway:
    """A gateway's store and clock, on a `SimulatedMachine`, with manual time for tasks."""

    def __init__(self, path: Path, machine: SimulatedMachine, store: Store, clock: Clock) -> None:
        self.path, self.machine, self.store, self.clock = path, machine, store, clock
        self.time = ManualTime()

    async def pass_time(self, seconds: float) -> float:
        """End the task's next sleep so many seconds later; return its requested duration."""
        sleep = await self.time.next_sleep()
        self.machine.true_time += seconds
        sleep.end()
        return sleep.seconds

    def saved(self) -> SavedTime:
        with transaction(self.path, self.clock) as tx:
            return clock_store.load(tx)

    def events(self) -> list[tuple[Any, ...]]:
        with closing(database.connect_reader(self.path)) as db:
            rows = unsealed_events(db)
        return [(row.name, row.value, row.unit, row.level, row.clock) for row in rows]

    @contextmanager
    def refuse_rows(self, table: str) -> Iterator[None]:
        """Refuse rows of a table, as if the disk were full."""
        with closing(database.connect(self.path)) as db:
            db.execute(
                f"CREATE TRIGGER full BEFORE INSERT ON {table}"
                " BEGIN SELECT RAISE(ABORT, 'as if the disk were full'); END"
            )
            yield
            db.execute("DROP TRIGGER full")


@contextmanager
def transaction(path: Path, clock: Clock) -> Iterator[Transaction]:
    with closing(database.connect(path)) as db, database.transaction(db, clock()) as tx:
        yield tx


@asynccontextmanager
async def running_gateway(path: Path, machine: SimulatedMachine) -> AsyncIterator[Gateway]:
    clock = Clock(0.0, machine.clocks)
    store = await Store.open(path, clock, BOUNDS)
    try:
        yield Gateway(path, machine, store, clock)
    finally:
        await store.close()


async def test_time_is_saved_often_at_first_and_then_by_heartbeats(path: Path) -> None:
    async with running_gateway(path, SimulatedMachine()) as gw:
        task = asyncio.create_task(
            timekeeping.save_often_at_start(gw.store, gw.clock.run, 60.0, gw.time.sleep)
        )
        waits = []
        for _ in range(6):
            waits.append(await gw.pass_time(10.0))
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await task
        assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
        assert gw.saved() == SavedTime(60.0, "boot-1", 160.0)


async def test_heartbeats_save_the_time_and_the_stop_is_clean(path: Path) -> None:
    async with running_gateway(path, SimulatedMachine(synchronised=True)) as gw:
        gw.machine.true_time = 60.0
        meter = WriteMeter(gw.store, Flash())
        sources = background_tasks.HeartbeatSources(
            gw.store, RefusalCounters(), gw.clock.run, Limits(), meter
        )
        for name, clean in (("heartbeat", False), (background_tasks.STOP, True)):
            await background_tasks.write_heartbeat(sources, NewEvent("system", name=name))
            saved = gw.saved()
            assert (saved.clean, saved.service) == (clean, 60.0)
            assert saved.trusted is not None


async def test_only_changes_of_the_wall_clock_are_logged(path: Path) -> None:
    machine = SimulatedMachine()
    async with running_gateway(path, machine) as gw:
        work = timekeeping.watch_wall_clock(gw.store, gw.clock, gw.clock(), gw.time.sleep)
        task = asyncio.create_task(work)
        assert await gw.pass_time(5.0) == timekeeping.CHECK_INTERVAL
        for error, synchronised in (
            *((0.3, False), (-0.3, False), (0.6, False)),
            *((86_400.6, True), (86_400.6, True), (86_397.6, False)),
        ):
            machine.error, machine.synchronised = error, synchronised
            await gw.pass_time(5.0)
        await gw.time.next_sleep()
        task.cancel()
        assert gw.events() == [
            ("clock_stepped", 0.6, "s", "Notice", 0),
            ("clock_stepped", 86_400.0, "s", "Notice", 1),
            ("clock_synchronised", None, None, "Informational", 1),
            ("clock_stepped", -3.0, "s", "Notice", 0),
            ("clock_lost", None, None, "Warning", 0),
        ]
        assert gw.saved().trusted is not None, "saved at once"


async def test_a_change_that_could_not_be_logged_is_logged_later(path: Path) -> None:
    machine = SimulatedMachine()
    async with running_gateway(path, machine) as gw:
        work = timekeeping.watch_wall_clock(gw.store, gw.clock, gw.clock(), gw.time.sleep)
        task = asyncio.create_task(work)
        with gw.refuse_rows("event_batches"):
            machine.error = 7.0
            await gw.pass_time(5.0)
            await gw.pass_time(5.0)
            sleep = await gw.time.next_sleep()
        sleep.end()
        await gw.time.next_sleep()
        task.cancel()
        assert [row[:2] for row in gw.events()] == [("clock_stepped", 7.0)]


async def test_early_saves_continue_after_a_store_error(path: Path) -> None:
    async with running_gateway(path, SimulatedMachine()) as gw:
        with gw.refuse_rows("meta"):
            work = timekeeping.save_often_at_start(gw.store, gw.clock.run, 3.0, gw.time.sleep)
            task = asyncio.create_task(work)
            await gw.pass_time(5.0)
            sleep = await gw.time.next_sleep()
        sleep.end()
        async with asyncio.timeout(10):
            await task
        assert gw.saved().service == 5.0


def test_a_start_continues_the_saved_time(path: Path) -> None:
    machine = SimulatedMachine(synchronised=True)
    start = timekeeping.resume_time(path, machine.clocks.read())
    assert start.known is TimeOffSource.NOTHING
    with transaction(path, Clock(0.0)) as tx:
        clock_store.save(tx, start.saved)
    machine.true_time = 8.5
    start = timekeeping.resume_time(path, machine.clocks.read())
    assert (start.saved.service, start.off, start.known) == (8.5, 8.5, TimeOffSource.UPTIME)


async def test_a_time_off_is_counted_at_the_first_trusted_moment(path: Path) -> None:
    machine = SimulatedMachine()
    async with running_gateway(path, machine) as gw:
        before = SavedTime(0.0, "boot-0", 0.0, TrustedMoment(0.0, round(EPOCH * 1000)))
        with transaction(path, gw.clock) as tx:
            clock_store.save(tx, start_run(before, 0.0, machine.clocks.read()).saved)
        work = timekeeping.settle_time_off(gw.store, gw.clock, (), gw.time.sleep)
        task = asyncio.create_task(work)
        assert await gw.pass_time(5.0) == timekeeping.CHECK_INTERVAL
        assert gw.events() == []
        with gw.refuse_rows("event_batches"):
            machine.synchronised, machine.error = True, 3600.0
            await gw.pass_time(5.0)
            sleep = await gw.time.next_sleep()
            assert sleep.seconds == timekeeping.RETRY_INTERVAL
            assert gw.saved().before == 0.0
        sleep.end()
        async with asyncio.timeout(10):
            await task
        assert gw.events() == [("time_off", 3600.0, "s", "Informational", 1)]
        assert gw.saved().before is None


async def test_the_time_off_task_runs_only_if_a_time_off_is_unknown(path: Path) -> None:
    async with running_gateway(path, SimulatedMachine()) as gw:
        for state, names in (
            (SavedTime(), ["first saves", "clock"]),
            (SavedTime(before=1.0), ["first saves", "clock", "time off"]),
        ):
            start = Start(state, 0.0, TimeOffSource.UPTIME, "clean")
            tasks = timekeeping.tasks(gw.store, gw.clock, start, 60.0, ())
            assert [name for name, _ in tasks] == names
            for _, work in tasks:
                work.close()


@pytest.mark.parametrize(
    ("known", "off", "level"),
    [
        (TimeOffSource.UPTIME, "12.500", None), (TimeOffSource.WALL, "12.500", None),
        (TimeOffSource.IMPLAUSIBLE, "12.500", "Warning"), (TimeOffSource.LATER, None, None),
        (TimeOffSource.NOTHING, None, None),
    ],
)  # fmt: skip
def test_the_start_event_describes_the_previous_run(
    known: TimeOffSource, off: str | None, level: str | None
) -> None:
    event = timekeeping.start_event(Start(SavedTime(1.0, "boot-1"), 12.5, known, "clean"), 60.0)
    assert (event.name, event.value, event.unit, event.level) == ("start", 60.0, "s", level)
    assert event.tags is not None
    tags = {key: event.tags[key] for key in ("boot", "previous", "off_known")}
    assert tags == {"boot": "boot-1", "previous": "clean", "off_known": known}
    assert event.tags.get("off") == off
