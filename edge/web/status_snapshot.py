"""Collect the figures for the status page and the metrics.

Results from the database are cached for some seconds, so that frequent requests do not cause more
database reads.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from edge.config.load import Config
from edge.engine.limits.flash_meter import KernelCounters, WriteMeter
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent, logged
from edge.engine.store.group_commit import Store
from edge.event_counts import EventCounts
from edge.features.accounts.store import certificates
from edge.features.eventlog.rules import levels
from edge.features.eventlog.store import uplink_view
from edge.features.eventlog.store.uplink_view import LaneStatus, Notice
from edge.features.queues.store import depth_events
from edge.features.queues.store.depth_events import Depth
from edge.ops.certificates import pki
from edge.ops.checks.health import Health
from edge.ops.devices import device_status
from edge.ops.devices.device_status import Device, DeviceStatus
from edge.ops.gateway import status as gateway_status
from edge.ops.gateway import uplink
from edge.ops.gateway.control import DeviceConnections, ProcessStatus
from edge.ops.gateway.status import Status, StoredStatus
from sync.common.metrics import Histogram

CACHE_TIME: Final = 5.0
"""Seconds for which a result from the database is reused."""

MAX_EVENTS: Final = 20
"""Maximum number of recent events that are kept for the status page."""

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
    """The figures that are read from the database; `last_upload` is in ms since 1970 UTC.

    `events` are the latest events of `SHOWN_LEVELS`; `observed` is the process's age in seconds.
    `waiting_since` is since when the oldest event waits for the centre. `certificate_ends` has the
    end of each certificate, by its name: `server`, `ca`, `uplink`, and `device` for the device
    certificate that ends first. Times are in ms since 1970 UTC.
    """

    status: Status
    lanes: list[LaneStatus]
    last_upload: int | None
    last_notice: Notice | None
    queues: list[Depth]
    devices: list[DeviceStatus]
    events: Sequence[RecentEvent]
    observed: float
    waiting_since: int | None
    certificate_ends: dict[str, int]
    has_uplink: bool


class ProcessFigures(NamedTuple):
    """The figures of the running process.

    `resident` is its memory in bytes, `requests` the number of stanzas and packets that each
    protocol has received, `commit_delay` the minimum seconds between commits,
    `write_rate` the bytes per second that it wrote in the last hour, and `loop_lag` the largest
    event-loop delay in the last minute, in seconds.
    """

    status: ProcessStatus
    resident: int
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
        self._cached: tuple[float, _Stored] | None = None
        self._lock = asyncio.Lock()

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
        async with self._lock:
            now = self._clock()
            if self._cached is None or now - self._cached[0] >= CACHE_TIME:
                self._cached = (now, await self._sources.store.read(self._read))
        stored = self._cached[1]
        status = gateway_status.combine(
            self._sources.settings, stored.status, self._sources.process_status()
        )
        devices = device_status.combine(stored.devices, await self._sources.connections())
        events = sorted(self._events.values(), key=lambda each: -each.wall)
        return Snapshot(
            status,
            stored.lanes,
            stored.last_upload,
            stored.last_notice,
            stored.queues,
            devices,
            events,
            now - self._started,
            stored.waiting_since,
            stored.certificate_ends,
            bool(self._sources.settings.uplink.enrolment or self._sources.settings.uplink.folder),
        )

    def _read(self, tx: Transaction) -> _Stored:
        return _Stored(
            gateway_status.read_stored(tx),
            uplink_view.lane_status(tx),
            uplink_view.last_upload_time(tx),
            uplink_view.last_notice(tx),
            [row for row in depth_events.depths(tx) if row.depth or row.dead],
            device_status.read_devices(tx, self._sources.settings.gateway.domain, tx.now.wall),
            uplink.waiting_since(tx),
            self._certificate_ends(tx),
        )

    def _certificate_ends(self, tx: Transaction) -> dict[str, int]:
        folder, settings = self._sources.folder, self._sources.settings
        found = {} if settings.component else pki.expiry_times(folder)
        end = uplink.route(folder, settings).certificate_end
        first = min(certificates.latest_expiry(tx).values(), default=None)
        found |= {"uplink": end} if end is not None else {}
        found |= {"device": first} if first is not None else {}
        return found

    def process(self) -> ProcessFigures:
        """Return the figures of the process."""
        _, _, store, process_status, _check, requests, meter, _, counts = self._sources
        return ProcessFigures(
            process_status(),
            _resident_bytes(),
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
    lanes: list[LaneStatus]
    last_upload: int | None
    last_notice: Notice | None
    queues: list[Depth]
    devices: list[Device]
    waiting_since: int | None
    certificate_ends: dict[str, int]


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize()
