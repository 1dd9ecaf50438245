"""What the pages tell: what is read of the database, and what the process knows of itself.

The database is asked by its reader, and the answer kept for a while, so that who asks all the time
costs no more than who asks now and then.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from edge.config.load import Config
from edge.engine import events
from edge.engine.database import Transaction
from edge.engine.events import NewEvent
from edge.features.eventlog.rules import levels
from edge.features.eventlog.store import uplink_view
from edge.features.eventlog.store.uplink_view import LaneStatus, Notice
from edge.features.queues.store import depth_events
from edge.features.queues.store.depth_events import Depth
from edge.ops import status as standing
from edge.ops.control import ProcessStatus
from edge.ops.status import Status, StoredStatus

if TYPE_CHECKING:
    from edge.engine.flash_meter import KernelCounters, WriteMeter
    from edge.engine.group_commit import Store
    from sync.common.metrics import Histogram

FRESH: Final = 5.0
"""Seconds for which what was read of the database is told again."""

KEPT: Final = 20
"""Events that are kept to be shown."""

LEAST: Final = frozenset(levels.at_least("Warning"))
"""The levels of those."""

BEAT: Final = 0.5
"""Seconds between two looks at how late the event loop is."""

LOOKS: Final = 120
"""Looks of which the worst is told: those of a minute."""


class Noted(NamedTuple):
    """An event as it is shown; `wall` in ms since 1970. Its text is not: it may quote a message."""

    wall: int
    event: NewEvent


class Look(NamedTuple):
    """What was read of the database; `taken` is when the centre took a segment last, and `told` the
    last notice of the uplink."""

    status: Status
    lanes: list[LaneStatus]
    taken: int | None
    told: Notice | None
    queues: list[Depth]
    noted: Sequence[Noted]


class Process(NamedTuple):
    """What the process knows of itself. `resident` is its memory in bytes, `window` the seconds
    that commits keep apart, `average` the bytes a second that are written, `lag` the seconds by
    which the event loop was late."""

    running: ProcessStatus
    up: bool
    resident: int
    stanzas: int
    transactions: int
    commits: int
    commit_times: Histogram
    window: float
    counted: KernelCounters
    average: float
    lag: float


class Front(Protocol):
    """What the outside sees of the gateway."""

    @property
    def up(self) -> bool:
        """Whether devices can connect."""


class Counting(Protocol):
    """What all stanzas go through."""

    stanzas: int


class Sources(NamedTuple):
    """Where all that comes from."""

    settings: Config
    store: Store
    running: Callable[[], ProcessStatus]
    front: Front
    router: Counting
    meter: WriteMeter


class Looker:
    """Reads, remembers for a while, and watches."""

    def __init__(self, sources: Sources, clock: Callable[[], float] = time.monotonic) -> None:
        self._sources = sources
        self._clock = clock
        self._noted: dict[int, Noted] = {}
        self._lags: list[float] = []
        self._read: tuple[float, _Read] | None = None
        self._turn = asyncio.Lock()

    def note(self, tx: Transaction) -> None:
        """Keep the last events that are worth to be shown, on the database's thread: at the end of
        a transaction. One that is rolled back gives its numbers to the next, whose events replace
        its own."""
        found = {
            seq: Noted(tx.now.wall, event)
            for seq, event in events.logged(tx)
            if event.level in LEAST
        }
        if found:
            rows = sorted((self._noted | found).items())
            self._noted = dict(rows[-KEPT:])

    async def watch(self) -> None:
        """See how late the event loop is, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + BEAT
            await asyncio.sleep(BEAT)
            self._lags = [*self._lags[1 - LOOKS :], max(0.0, loop.time() - due)]

    async def look(self) -> Look:
        """Return how the gateway stands; raises `StoreError`."""
        async with self._turn:
            now = self._clock()
            if self._read is None or now - self._read[0] >= FRESH:
                self._read = (now, await self._sources.store.read(_read))
        found = self._read[1]
        settings, running = self._sources.settings, self._sources.running()
        status = standing.combine(settings, found.rows, running)
        noted = sorted(self._noted.values(), key=lambda each: -each.wall)
        return Look(status, found.lanes, found.taken, found.told, found.queues, noted)

    def process(self) -> Process:
        """Return what the process knows of itself."""
        _settings, store, running, front, router, meter = self._sources
        return Process(
            running(),
            front.up,
            _resident(),
            router.stanzas,
            store.commits,
            store.writes,
            store.commit_window.commit_times,
            store.commit_window.min_interval,
            meter.read_counters(),
            meter.average,
            max(self._lags, default=0.0),
        )


class _Read(NamedTuple):
    rows: StoredStatus
    lanes: list[LaneStatus]
    taken: int | None
    told: Notice | None
    queues: list[Depth]


def _read(tx: Transaction) -> _Read:
    return _Read(
        standing.read_stored(tx),
        uplink_view.lane_status(tx),
        uplink_view.last_upload_time(tx),
        uplink_view.last_notice(tx),
        [row for row in depth_events.depths(tx) if row.depth or row.dead],
    )


def _resident() -> int:
    """Return the bytes of memory that the process has."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize()
