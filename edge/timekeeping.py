"""Keeping the time of a run: where it goes on from, saving it, and watching the wall clock.

What the readings mean is `rules.clock`'s, and what is saved is `store.service`'s.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Final

from edge import __version__
from edge.engine import clock_store, database, events, meta
from edge.engine.clock import Clock
from edge.engine.database import Transaction
from edge.engine.events import NewEvent
from edge.engine.group_commit import Store
from edge.engine.service_time import (
    ClockReading,
    Now,
    Run,
    Start,
    TimeOffSource,
    clock_step,
    start_run,
)
from edge.errors import StoreError

LOOK: Final = 5.0
"""Seconds between two looks at the wall clock: two readings and no transaction."""

AGAIN: Final = 60.0
"""Seconds after which a time off that could not be counted is tried again."""

FIRST_SAVE: Final = 1.0
"""Seconds after a start until its time is saved; then doubling, until heartbeats do it. So a
gateway that is switched off again and again counts a third of the time that it was on, at least."""


def resume_time(path: Path, at: ClockReading) -> Start:
    """Say where the service seconds of the database at `path` go on from.

    Brings its schema up to date too; raises as `database.connect` does.
    """
    with (
        closing(database.connect(path)) as connection,
        database.transaction(connection, Now(0.0, at.wall, at.synchronised)) as tx,
    ):
        return start_run(clock_store.load(tx), meta.last_service_second(tx), at)


def start_event(start: Start, heartbeat: float) -> NewEvent:
    """Say what starts, how the run before ended, and what is known of the time in between.

    `heartbeat` is the seconds between two heartbeats, by which the centre sees outages.
    """
    tags = {
        "version": __version__,
        "boot": start.saved.boot,
        "python": platform.python_version(),
        "previous": start.previous,
        "off_known": start.known,
    }
    if start.known in (TimeOffSource.UPTIME, TimeOffSource.WALL, TimeOffSource.IMPLAUSIBLE):
        tags["off"] = f"{start.off:.3f}"
    level = "Warning" if start.known is TimeOffSource.IMPLAUSIBLE else None
    return NewEvent("system", name="start", value=heartbeat, unit="s", level=level, tags=tags)


def tasks(
    store: Store, clock: Clock, start: Start, heartbeat: float
) -> list[tuple[str, Coroutine[None, None, None]]]:
    """Return what is to be done meanwhile, beside heartbeats, with names for the tasks."""
    found = [
        ("first saves", save_often_at_start(store, clock.run, heartbeat)),
        ("clock", watch_wall_clock(store, clock, clock())),
    ]
    if start.saved.before is not None:
        found.append(("time off", settle_time_off(store, clock)))
    return found


async def save_often_at_start(
    store: Store,
    run: Run,
    until: float,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Save the service seconds often after a start, and less and less until heartbeats do.

    `until` is the seconds between two of those.
    """
    wait = FIRST_SAVE
    while wait < until:
        await sleep(wait)
        wait *= 2
        with suppress(StoreError):  # a full disk: the next one may be written
            await store.run(lambda tx: clock_store.save_progress(tx, run))


async def watch_wall_clock(
    store: Store,
    clock: Clock,
    last: Now,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Log when the wall clock is set, becomes synchronised, or is not any more.

    `last` is the moment at which it was looked at before.
    """
    while True:
        await sleep(LOOK)
        now = clock()
        found = wall_clock_events(last, now)
        if found:
            with suppress(StoreError):  # a full disk: it is noticed again
                await store.run(partial(_tell, found=found, run=clock.run))
                last = now


async def settle_time_off(
    store: Store, clock: Clock, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> None:
    """Count a time off that was not known at the start, at the first trusted moment."""
    while True:
        wait = LOOK
        if clock().synchronised:
            try:
                if await store.run(partial(clock_store.settle_time_off, run=clock.run)):
                    return
            except StoreError:  # a full disk: to try writes as much as there is room for
                wait = AGAIN
        await sleep(wait)


def wall_clock_events(last: Now, now: Now) -> list[NewEvent]:
    """Return the events for what happened to the wall clock between two moments."""
    found = []
    if moved := clock_step(last, now):
        found.append(
            NewEvent(
                "system", name="clock_stepped", value=round(moved, 3), unit="s", level="Notice"
            )
        )
    if now.synchronised and not last.synchronised:
        found.append(NewEvent("system", name="clock_synchronised", level="Informational"))
    elif last.synchronised and not now.synchronised:
        found.append(NewEvent("system", name="clock_lost", level="Warning"))
    return found


def _tell(tx: Transaction, found: list[NewEvent], run: Run) -> None:
    for one in found:
        events.append(tx, events.SYSTEM, one)
    clock_store.save_progress(tx, run)
