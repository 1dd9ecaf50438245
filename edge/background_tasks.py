"""Periodic tasks: heartbeats, queue depths and certificates."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from edge.config.limits import Limits
from edge.config.options import Gateway
from edge.engine.limits import flash_wear
from edge.engine.limits.flash_meter import WriteMeter
from edge.engine.log import event_counters, refusals
from edge.engine.rules.service_time import DAY_MS, Now, Run
from edge.engine.store import events, meta, space
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent
from edge.engine.store.group_commit import Store
from edge.engine.time import clock_store
from edge.errors import SetupError, StoreError
from edge.features.accounts.store import certificates, last_seen
from edge.features.queues.store import depth_events
from edge.ops.certificates import pki
from edge.server.refusal_counters import RefusalCounters
from sync.common import sd_notify

STOP: Final = "stop"
"""The name of the closing event, which a clean stop writes."""

CERTIFICATE_INTERVAL: Final = 24 * 3600.0
"""Seconds between two checks of the certificates, which last for months."""

EXPIRY_WARNING_DAYS: Final = 30
"""Days before the expiry of a device's certificate in which an event is logged once a day."""

DEPTH_INTERVAL: Final = 300.0
"""Seconds between two events with a queue's depth. The centre reports a queue as stuck after half
an hour, which is six events."""

_LOGGED_KEY: Final = "certificates_told"
"""The key in `meta` of when expiring certificates were last logged, in ms since 1970 UTC."""

_OPTIONS: Final = {
    "connections": "unauthenticated",
    "authentication_limit": "authenticate_failures",
}
"""The option in `[limits]` of each refusal rule whose name differs from the option's."""


def _limit_of(limits: Limits, rule: str) -> int | None:
    name = refusals.without_details(rule)
    limit = getattr(limits, _OPTIONS.get(name, name), None)
    return None if limit is None else round(limit)


class HeartbeatSources(NamedTuple):
    """The sources of heartbeats and of the closing event.

    Attributes:
        counters: refusals that are counted in memory until a heartbeat logs them.
        run: this run, whose service seconds are saved.
        meter: measures the bytes written to the flash card.
    """

    store: Store
    counters: RefusalCounters
    run: Run
    limits: Limits
    meter: WriteMeter


async def write_heartbeat(beats: HeartbeatSources, event: NewEvent) -> None:
    """Write `event` (a heartbeat or the closing event). In the same transaction, write counted
    events, service seconds, flash wear and the times at which accounts were last connected.

    With a heartbeat, counted events that are due are logged, if the database has room; with the
    closing event, all counted events and refusals. Raises `StoreError`.
    """
    store, counters, run, limits, meter = beats
    counts, sources, written = counters.take(), counters.take_sources(), meter.measure()

    def unit(tx: Transaction) -> None:
        for (source, rule), times in sources.items():
            refusals.count(tx, limits, source, rule, _limit_of(limits, rule), times)
        stops = event.name == STOP
        if stops:
            refusals.close_all_windows(tx)
        if stops or space.exceeded_limit(tx, 0, limits) is None:
            event_counters.log_counts(tx, everything=stops)
        for rule, times in counts.items():
            refused = NewEvent("limit", name=rule, value=float(times), level="Warning")
            events.append(tx, events.SYSTEM, refused)
        events.append(tx, events.SYSTEM, event)
        clock_store.save_progress(tx, run, clean=stops)
        last_seen.save(tx)
        flash_wear.add(tx, written, limits.database_bytes)

    try:
        await store.run(unit)
    except BaseException:
        counters.put_back(counts, sources)
        raise
    meter.mark_logged(written)


async def heartbeats(beats: HeartbeatSources, interval: float) -> None:
    """Write a heartbeat every `interval` seconds."""
    event = NewEvent("system", name="heartbeat", value=interval, unit="s")
    while True:
        await asyncio.sleep(interval)
        with suppress(StoreError):  # a full disk: the next heartbeat may succeed
            await write_heartbeat(beats, event)


async def feed_watchdog(interval: float) -> None:
    """Report every `interval` seconds to systemd that the event loop runs."""
    while True:
        with suppress(OSError):  # systemd is being restarted
            sd_notify.notify("WATCHDOG=1")
        await asyncio.sleep(interval)


async def log_queue_depths(
    store: Store, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> None:
    """Log the depths of queues regularly; the depth of an empty queue is logged once."""
    while True:
        await sleep(DEPTH_INTERVAL)
        with suppress(StoreError):  # a full disk or a slow read: logged the next time
            found = await store.read(depth_events.depths)
            if found:
                await store.run(partial(depth_events.write_events, rows=found))


async def maintain_certificates(
    folder: Path,
    gateway: Gateway,
    clock: Callable[[], Now],
    store: Store,
    counters: RefusalCounters,
) -> None:
    """Run `check_certificates` once a day; the start of the gateway does it before."""
    while True:
        await asyncio.sleep(CERTIFICATE_INTERVAL)
        await check_certificates(folder, gateway, clock().wall, store, counters)


async def check_certificates(
    folder: Path, gateway: Gateway, now: int, store: Store, counters: RefusalCounters
) -> None:
    """Renew the server's certificate if it is due, and log expiring certificates of devices.

    A new certificate takes effect with the next handshake. A failure is counted as
    `server_certificate` and tried again with the next check. `now` is in ms since 1970 UTC.
    """
    try:
        await asyncio.to_thread(pki.renew_server, folder, gateway.domain, now, gateway.names)
    except (SetupError, OSError):
        counters.add("server_certificate")
    with suppress(StoreError):  # a full disk: logged with the next check
        await store.run(log_expiring_certificates)


def log_expiring_certificates(tx: Transaction) -> None:
    """Log an event for each device whose certificate expires soon, at most once a day."""
    now = tx.now.wall
    if 0 <= now - meta.read_number(tx, _LOGGED_KEY) < DAY_MS:
        return
    meta.write(tx, _LOGGED_KEY, now)
    for name, not_after in certificates.find_expiring(tx, now, EXPIRY_WARNING_DAYS):
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
