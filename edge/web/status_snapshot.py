"""Collect the figures for the status page and the metrics.

Results from the database are cached for some seconds, so that frequent requests do not cause more
database reads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

from edge.config.load import Config
from edge.engine.limits.flash_meter import KernelCounters, WriteMeter
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent, logged
from edge.engine.store.group_commit import Store
from edge.errors import StoreError
from edge.event_counts import EventCounts
from edge.features.accounts.store import certificates
from edge.features.eventlog.rules import levels
from edge.features.queues.service import diagnosis
from edge.features.queues.service.diagnosis import MAX_MEMBERS, Report
from edge.features.queues.store import depth_events, overview
from edge.features.queues.store.depth_events import Depth
from edge.features.queues.store.overview import Attendance
from edge.ops.certificates import pki
from edge.ops.checks.health import Health
from edge.ops.devices import device_status
from edge.ops.devices.device_status import Device, DeviceStatus
from edge.ops.gateway import status as gateway_status
from edge.ops.gateway import uplink
from edge.ops.gateway.control import DeviceConnections, ProcessStatus
from edge.ops.gateway.status import Status, StoredStatus
from edge.ops.gateway.uplink import Route, UplinkStatus
from edge.web.process_usage import ProcessUsage, read_usage
from sync.common.metrics import Histogram

T = TypeVar("T")

CACHE_TIME: Final = 5.0
"""Seconds for which a result from the database is reused."""

MAX_EVENTS: Final = 20
"""Maximum number of recent events that are kept for the status page."""

MAX_QUEUES: Final = 20
"""Maximum number of queues that are shown: those with the most items."""

SHOWN_LEVELS: Final = frozenset(levels.at_least("Warning"))
"""Levels of the events that are kept for the status page."""

LAG_INTERVAL: Final = 0.5
"""Seconds between two measurements of the event-loop delay."""

LAG_SAMPLES: Final = 120
"""Number of measurements of the last minute, of which the largest is reported."""


class RecentEvent(NamedTuple):
    """An event for the status page; `wall` is in ms since 1970 UTC.

    The page must not show the `text` of an event about a message, which could quote the message.
    """

    wall: int
    event: NewEvent


class Snapshot(NamedTuple):
    """The figures that are read from the database.

    `segment_age` is the option in `[uplink]`, in seconds. `events` are the latest events of
    `SHOWN_LEVELS`; `observed` is the process's age in seconds.
    `certificate_ends` has the end of each certificate, in ms since 1970 UTC, by its name: `server`,
    `ca`, `uplink`, and `device` for the device certificate that ends first.
    """

    status: Status
    uplink: UplinkStatus
    route: Route
    segment_age: float
    queues: list[Depth]
    devices: list[DeviceStatus]
    events: Sequence[RecentEvent]
    observed: float
    certificate_ends: dict[str, int]


class ProcessFigures(NamedTuple):
    """The figures of the running process.

    `usage` is of the process and its front processes, `requests` the number of stanzas and packets
    that each protocol has received, `commit_delay` the minimum seconds between commits,
    `write_rate` the bytes per second that it wrote in the last hour, and `loop_lag` the largest
    event-loop delay in the last minute, in seconds.
    """

    status: ProcessStatus
    usage: list[ProcessUsage]
    requests: Mapping[str, int]
    transactions: int
    commits: int
    commit_times: Histogram
    commit_delay: float
    written: KernelCounters
    write_rate: float
    loop_lag: float
    counts: EventCounts


class Sources(NamedTuple):
    """The parts of the gateway from which the figures are read."""

    folder: Path
    settings: Config
    store: Store
    process_status: Callable[[], ProcessStatus]
    check_health: Callable[[], Awaitable[Health]]
    requests: Callable[[], Mapping[str, int]]
    meter: WriteMeter
    connections: Callable[[], Awaitable[DeviceConnections]]
    counts: EventCounts


class SnapshotReader:
    """A reader that caches snapshots, and measures the event-loop delay."""

    def __init__(self, sources: Sources, clock: Callable[[], float] = time.monotonic) -> None:
        self._sources = sources
        self._clock = clock
        self._started = clock()
        self._events: dict[int, RecentEvent] = {}
        self._lags: list[float] = []
        self._stored = _Cache(lambda: sources.store.read(self._read), clock)
        self._reports = _Cache(self._read_reports, clock)

    def keep_events(self, tx: Transaction) -> None:
        """Keep the events of a transaction for the status page, just before its commit.

        After a rollback, the next transaction uses the same event numbers, so its events replace
        these.
        """
        found = {
            seq: RecentEvent(tx.now.wall, event)
            for seq, event in logged(tx)
            if event.level in SHOWN_LEVELS
        }
        if found:
            rows = sorted((self._events | found).items())
            self._events = dict(rows[-MAX_EVENTS:])

    async def measure_lag(self) -> None:
        """Measure the event-loop delay repeatedly, until the task is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            expected = loop.time() + LAG_INTERVAL
            await asyncio.sleep(LAG_INTERVAL)
            self._lags = [*self._lags[1 - LAG_SAMPLES :], max(0.0, loop.time() - expected)]

    async def check_health(self) -> Health:
        """Judge the gateway now, except for the limits."""
        return await self._sources.check_health()

    async def snapshot(self) -> Snapshot:
        """Return the figures from the database; raises `StoreError`."""
        stored = await self._stored.get()
        status = gateway_status.combine(
            self._sources.settings, stored.status, self._sources.process_status()
        )
        devices = device_status.combine(stored.devices, await self._sources.connections())
        events = sorted(self._events.values(), key=lambda each: -each.wall)
        return Snapshot(
            status,
            stored.uplink,
            stored.route,
            self._sources.settings.uplink.segment_age,
            stored.queues,
            devices,
            events,
            self._clock() - self._started,
            stored.certificate_ends,
        )

    async def queue_reports(self) -> list[Report]:
        """Return a report on each of the queues with the most items; raises `StoreError`.

        Each report has the first item of each state.
        """
        return await self._reports.get()

    async def _read_reports(self) -> list[Report]:
        rows = sorted((await self._stored.get()).queues, key=lambda row: -row.depth)
        queues = [row.queue for row in rows[:MAX_QUEUES] if row.queue]
        members: dict[int, list[Attendance] | None] = dict.fromkeys(queues)

        def attend(tx: Transaction) -> None:
            members.update((queue, overview.attendance(tx, queue, MAX_MEMBERS)) for queue in queues)

        store = self._sources.store
        with suppress(StoreError):  # then it is not known which members are connected
            await store.run(attend)
        limits = self._sources.settings.limits
        return await store.read(lambda tx: list(diagnosis.first_items(tx, limits, members)))

    def _read(self, tx: Transaction) -> _Stored:
        folder, settings = self._sources.folder, self._sources.settings
        route = uplink.route(folder, settings)
        return _Stored(
            gateway_status.read_stored(tx),
            uplink.read_status(tx, settings),
            route,
            [row for row in depth_events.depths(tx) if row.depth or row.dead],
            device_status.read_devices(tx, settings.gateway.domain, tx.now.wall),
            self._certificate_ends(tx, route.certificate_end),
        )

    def _certificate_ends(self, tx: Transaction, end: int | None) -> dict[str, int]:
        found = {} if self._sources.settings.component else pki.expiry_times(self._sources.folder)
        first = min(certificates.latest_expiry(tx).values(), default=None)
        found |= {"uplink": end} if end is not None else {}
        found |= {"device": first} if first is not None else {}
        return found

    def process(self) -> ProcessFigures:
        """Return the figures of the process."""
        _, _, store, process_status, _check, requests, meter, _, counts = self._sources
        status = process_status()
        return ProcessFigures(
            status,
            read_usage(status.fronts),
            requests(),
            store.commits,
            store.writes,
            store.commit_window.commit_times,
            store.commit_window.min_interval,
            meter.read_counters(),
            meter.average,
            max(self._lags, default=0.0),
            counts,
        )


class _Stored(NamedTuple):
    status: StoredStatus
    uplink: UplinkStatus
    route: Route
    queues: list[Depth]
    devices: list[Device]
    certificate_ends: dict[str, int]


class _Cache(Generic[T]):
    """Cache of the result of a function, which is reused for `CACHE_TIME`."""

    def __init__(self, read: Callable[[], Awaitable[T]], clock: Callable[[], float]) -> None:
        self._read = read
        self._clock = clock
        self._kept: tuple[float, T] | None = None
        self._lock = asyncio.Lock()

    async def get(self) -> T:
        async with self._lock:
            now = self._clock()
            if self._kept is None or now - self._kept[0] >= CACHE_TIME:
                self._kept = (now, await self._read())
            return self._kept[1]
