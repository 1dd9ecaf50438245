"""What a running gateway does from time to time: heartbeats, queues, changes, certificates.

Each is a task that lasts until it is cancelled. When to start them is `app`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from edge.config.limits import Limits
from edge.engine import (
    clock_store,
    event_counters,
    events,
    flash_wear,
    meta,
    refusals,
    space,
    status_events,
)
from edge.engine.database import Transaction
from edge.engine.events import NewEvent
from edge.engine.flash_meter import WriteMeter
from edge.engine.group_commit import Store
from edge.engine.service_time import DAY_MS, Now, Run
from edge.errors import SetupError, StoreError
from edge.features.accounts.store import certificates
from edge.features.queues.store import depth_events
from edge.ops import pki
from edge.server.refusal_counters import RefusalCounters

CHANGES: Final = 5.0
"""Seconds after which an idle gateway sees what another process has changed: a device that was
revoked is gone by then. A transaction that writes nothing costs no fsync."""

STOP: Final = "stop"
"""The name of the closing event: a run that wrote it ended cleanly."""

CERTIFICATES: Final = 24 * 3600.0
"""Seconds between two looks at the certificates: they last for months."""

RUNS_OUT: Final = 30
"""Days before a device's certificate runs out: then each day has an event, for who renews it."""

DEPTHS: Final = 300.0
"""Seconds between two looks at how full queues are: the centre takes a queue for stuck after half
an hour, and so has six words of it by then."""

_TOLD: Final = "certificates_told"
"""When certificates that run out were told of last, in ms since 1970 UTC."""


_OPTIONS: Final = {
    "connections": "unauthenticated",
    "authentication_limit": "authenticate_failures",
}
"""Rules that have a limit under another name than their own."""


def _figure(limits: Limits, rule: str) -> int | None:
    """Return the limit that a rule stands for, if it does."""
    figure = getattr(limits, _OPTIONS.get(rule, rule), None)
    return None if figure is None else round(figure)


class HeartbeatSources(NamedTuple):
    """What heartbeats and the closing event tell of: the refusals that nobody else tells, the
    service seconds of this run, and what was written to the card."""

    store: Store
    tally: RefusalCounters
    run: Run
    limits: Limits
    meter: WriteMeter


async def write_heartbeat(beats: HeartbeatSources, event: NewEvent) -> None:
    """Write a heartbeat or the closing event, and with it what has no unit of its own.

    With the closing event, also what is still counted of refusals and of what happens often is
    told; with a heartbeat, the latter where the database has room. Raises `StoreError`.
    """
    store, tally, run, limits, meter = beats
    counts, sources, written = tally.take(), tally.take_sources(), meter.measure()
    window, most = limits.refusal_window, limits.refusal_sources

    def unit(tx: Transaction) -> None:
        for (source, rule), times in sources.items():
            refusals.count(tx, source, rule, _figure(limits, rule), window, most, times)
        stops = event.name == STOP
        if stops:
            refusals.close_all_windows(tx)
        status_events.log_fullness(tx, limits)
        if stops or space.exceeded_limit(tx, 0, limits) is None:
            event_counters.log_counts(tx, everything=stops)
        for rule, times in counts.items():
            refused = NewEvent("limit", name=rule, value=float(times), level="Warning")
            events.append(tx, events.SYSTEM, refused)
        events.append(tx, events.SYSTEM, event)
        clock_store.save_progress(tx, run, clean=stops)
        flash_wear.add(tx, written, limits.database_bytes)

    try:
        await store.run(unit)
    except BaseException:
        tally.put_back(counts, sources)
        raise
    meter.mark_logged(written)


async def heartbeats(beats: HeartbeatSources, interval: float) -> None:
    """Write a heartbeat every `interval` seconds."""
    event = NewEvent("system", name="heartbeat", value=interval, unit="s")
    while True:
        await asyncio.sleep(interval)
        with suppress(StoreError):  # a full disk: the next one may be written
            await write_heartbeat(beats, event)


async def poll_external_changes(store: Store) -> None:
    """See what another process has changed (`Store.on_changed`), also when all is idle."""
    while True:
        await asyncio.sleep(CHANGES)
        with suppress(StoreError):  # busy: it is seen the next time
            await store.run(lambda _tx: None)


async def log_queue_depths(
    store: Store, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> None:
    """Tell the centre how full queues are, every `DEPTHS` seconds; of empty ones once."""
    while True:
        await sleep(DEPTHS)
        with suppress(StoreError):  # a full disk, or a long read: told the next time
            found = await store.read(depth_events.depths)
            if found:
                await store.run(partial(depth_events.write_events, rows=found))


async def maintain_certificates(
    folder: Path, domain: str, clock: Callable[[], Now], store: Store, tally: RefusalCounters
) -> None:
    """Look at the certificates once a day, and at the start."""
    while True:
        await check_certificates(folder, domain, clock().wall, store, tally)
        await asyncio.sleep(CERTIFICATES)


async def check_certificates(
    folder: Path, domain: str, now: int, store: Store, tally: RefusalCounters
) -> None:
    """Renew the server's certificate in time, and tell of devices' that run out.

    A new one takes effect with the next handshake (`net.tls`). What cannot be renewed is counted as
    `server_certificate`, and tried again with the next look. `now` is in ms since 1970 UTC.
    """
    try:
        await asyncio.to_thread(pki.renew_server, folder, domain, now)
    except (SetupError, OSError):
        tally.add("server_certificate")
    with suppress(StoreError):  # a full disk: told with the next look
        await store.run(log_expiring_certificates)


def log_expiring_certificates(tx: Transaction) -> None:
    """Write an event for each device whose certificate runs out soon, once a day."""
    now = tx.now.wall
    if 0 <= now - meta.read_number(tx, _TOLD) < DAY_MS:
        return
    meta.write(tx, _TOLD, now)
    for name, not_after in certificates.find_expiring(tx, now, RUNS_OUT):
        left = float((not_after - now) // DAY_MS)
        event = NewEvent(
            "system",
            source=name,
            name="certificate_expires",
            value=left,
            unit="d",
            level="Warning",
        )
        events.append(tx, events.SYSTEM, event)
