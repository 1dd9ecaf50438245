"""Keep the service seconds of a run: resume them, save them, and watch the wall clock."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Final

from edge import __version__
from edge.engine.dispatch.hooks import TimeOffHook
from edge.engine.rules.service_time import (
    ClockReading,
    Now,
    Run,
    Start,
    TimeOffSource,
    clock_step,
    start_run,
)
from edge.engine.store import database, events, meta
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent
from edge.engine.store.group_commit import Store
from edge.engine.time import clock_store
from edge.engine.time.clock import Clock
from edge.errors import StoreError

CHECK_INTERVAL: Final = 5.0
"""Seconds between two checks of the wall clock; a check reads two clocks and writes nothing."""

RETRY_INTERVAL: Final = 60.0
"""Seconds after a failure of the store until `settle_time_off` tries again."""

FIRST_SAVE: Final = 1.0
"""Seconds from a start to the first save of the service seconds. Each further interval is twice as
long, so that a run that is cut off loses at most two thirds of its time, until heartbeats save the
service seconds."""


def resume_time(path: Path, at: ClockReading) -> Start:
    """Return the start of a run: the service seconds from which it continues, and the time for
    which the gateway was off. `at` is read at the start.

    This also migrates the database; raises as `database.connect` does.
    """
    with (
        closing(database.connect(path)) as connection,
        database.transaction(connection, Now(0.0, at.wall, at.synchronised)) as tx,
    ):
        return start_run(clock_store.load(tx), meta.last_service_second(tx), at)


def start_event(start: Start, heartbeat: float) -> NewEvent:
    """Return the start event: how the previous run ended, and how long the gateway was off.

    `heartbeat` is the seconds between two heartbeats, from which the centre detects outages.
    """
    tags = {
        "version": __version__,
        "boot": start.saved.boot,
        "python": sys.version.split()[0],
        "previous": start.previous,
        "off_known": start.known,
    }
    if start.known in (TimeOffSource.UPTIME, TimeOffSource.WALL, TimeOffSource.IMPLAUSIBLE):
        tags["off"] = f"{start.off:.3f}"
    level = "Warning" if start.known is TimeOffSource.IMPLAUSIBLE else None
    return NewEvent("system", name="start", value=heartbeat, unit="s", level=level, tags=tags)


def tasks(
    store: Store, clock: Clock, start: Start, heartbeat: float, hooks: Sequence[TimeOffHook]
) -> list[tuple[str, Coroutine[None, None, None]]]:
    """Return (name, coroutine) of each task that keeps time in addition to the heartbeats.

    `heartbeat` is the seconds between two heartbeats; `hooks` are for `settle_time_off`.
    """
    found = [
        ("first saves", save_often_at_start(store, clock.run, heartbeat)),
        ("clock", watch_wall_clock(store, clock, clock())),
    ]
    if start.saved.before is not None:
        found.append(("time off", settle_time_off(store, clock, hooks)))
    return found


async def save_often_at_start(
    store: Store,
    run: Run,
    until: float,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Save the service seconds after a start; stop when the doubling intervals reach `until` s."""
    wait = FIRST_SAVE
    while wait < until:
        await sleep(wait)
        wait *= 2
        with suppress(StoreError):  # a full disk: the next save may succeed
            await store.run(lambda tx: clock_store.save_progress(tx, run))


async def watch_wall_clock(
    store: Store,
    clock: Clock,
    last: Now,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Log when the wall clock is set, or gains or loses synchronisation.

    `last` is the moment of the previous check.
    """
    while True:
        await sleep(CHECK_INTERVAL)
        now = clock()
        found = wall_clock_events(last, now)
        if found:
            with suppress(StoreError):  # a full disk: it is found again
                await store.run(partial(_log, found=found, run=clock.run))
                last = now


async def settle_time_off(
    store: Store,
    clock: Clock,
    hooks: Sequence[TimeOffHook],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """If it was unknown at the start for how long the gateway was off, add this time to the age of
    stored rows as soon as the wall clock is synchronised."""
    while True:
        wait = CHECK_INTERVAL
        if clock().synchronised:
            try:
                if await store.run(
                    partial(clock_store.settle_time_off, run=clock.run, hooks=hooks)
                ):
                    return
            except StoreError:  # a full disk: each attempt writes much
                wait = RETRY_INTERVAL
        await sleep(wait)


def wall_clock_events(last: Now, now: Now) -> list[NewEvent]:
    """Return the events for changes of the wall clock between two moments."""
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


def _log(tx: Transaction, found: list[NewEvent], run: Run) -> None:
    for one in found:
        events.append(tx, events.SYSTEM, one)
    clock_store.save_progress(tx, run)
