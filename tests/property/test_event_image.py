"""Property tests of the event log's counters in memory: they equal the rows after every step.

The steps are groups of units that run in memory first, sealing inside rows, epochs, failed commits,
crashes, and changes by another process.
"""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from edge.engine.rules.service_time import Now
from edge.engine.store import database, events
from edge.engine.store.database import NeedsDatabase, Transaction
from edge.engine.store.events import LANES, SYSTEM, NewEvent, UnsealedLane
from edge.features.eventlog.store import epochs, segments
from edge.features.eventlog.store.segments import NewSegment
from tests.helpers.store import WALL, digest_of, new_database

LONG: Final = os.environ.get("FIELDPOST_TEST_LONG") == "1"
MAX_BYTES: Final = 2**40


class End(Enum):
    """How a transaction ends."""

    COMMIT = auto()
    ROLLBACK = auto()
    CRASH = auto()


class Append(NamedTuple):
    """An event to append."""

    lane: str
    event: NewEvent
    received: bool


class Unit(NamedTuple):
    """A unit of work: events to append, with a statement after the first if it `reads`."""

    appends: Sequence[Append]
    reads: bool
    fails: bool

    def __call__(self, tx: Transaction) -> None:
        for number, (lane, event, received) in enumerate(self.appends):
            if received and lane != SYSTEM:
                events.append_received(tx, lane, event, "a@gw", "t", 2, 7)
            else:
                events.append(tx, lane, event)
            if self.reads and number == 0:
                tx.row("SELECT 1")
        if self.fails:
            raise ZeroDivisionError


class Row(NamedTuple):
    """An event that must be stored; `since` is a service second."""

    number: int
    event: NewEvent
    since: float
    urgent: bool


class Lane:
    """The expected contents of a lane."""

    def __init__(self) -> None:
        self.last = 0
        self.sealed = 0
        self.rows: list[Row] = []

    def add(self, event: NewEvent, since: float, *, urgent: bool) -> None:
        self.last += 1
        self.rows.append(Row(self.last, event, since, urgent))

    def seal(self, last: int) -> None:
        self.sealed = last
        self.rows = [row for row in self.rows if row.number > last]

    def status(self, lane: str) -> UnsealedLane:
        size = sum(_bytes(row.event) for row in self.rows)
        oldest = min((row.since for row in self.rows), default=None)
        urgent = min((row.since for row in self.rows if row.urgent), default=None)
        return UnsealedLane(lane, self.last - self.sealed, size, oldest, urgent)


def _bytes(event: NewEvent) -> int:
    tags = "".join(key + value for key, value in (event.tags or {}).items())
    texts = (event.source, event.topic, event.name, event.unit, event.level, event.text, tags)
    return events.EVENT_OVERHEAD + sum(len(text) for text in texts if text is not None)


def _completed(append: Append) -> NewEvent:
    if not append.received or append.lane == SYSTEM:
        return append.event
    return append.event._replace(source="a@gw", topic="t", qos=2, latency_ms=7)


LEVELS: Final = ("Error", "Alert", None)
EVENTS: Final = st.builds(
    lambda level, text, value, tags: NewEvent(
        "log", level=level, text=text, value=value, tags=tags
    ),
    st.sampled_from(LEVELS),
    st.text("xö", max_size=5),
    st.none() | st.floats(allow_nan=False),
    st.none() | st.dictionaries(st.text("kä", max_size=2), st.text("v", max_size=2)),
)
APPENDS: Final = st.builds(Append, st.sampled_from(LANES), EVENTS, st.booleans())
UNITS: Final = st.builds(
    Unit, st.lists(APPENDS, max_size=3), st.booleans(), st.sampled_from([False, False, False, True])
)
ENDS: Final = st.sampled_from([End.COMMIT, End.COMMIT, End.ROLLBACK, End.CRASH])


class EventImage(RuleBasedStateMachine):
    """A gateway's database, the caches of its writer, and the expected rows."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = new_database(Path(self.folder.name))
        self.service = 0.0
        self.lanes = {lane: Lane() for lane in LANES}
        self.levels: frozenset[str] = frozenset()
        self.connect()

    def connect(self) -> None:
        self.db = database.connect(self.path)
        self.db.execute("PRAGMA synchronous = OFF")
        self.cache: dict[str, Any] = {}
        self.version = self.data_version()

    def data_version(self) -> int:
        return int(self.db.execute("PRAGMA data_version").fetchone()[0])

    def new_transaction(self) -> Transaction:
        """Begin a transaction in memory."""
        self.service += 1.0
        return Transaction(None, Now(self.service, WALL, True), self.cache)

    def connect_transaction(self, tx: Transaction) -> bool:
        """Return whether the images were valid; otherwise everything has to run again."""
        self.db.execute("BEGIN IMMEDIATE")
        tx.connect(self.db, tx.now)
        version, self.version = self.version, self.data_version()
        if version != self.version:
            self.cache.clear()
        return version == self.version

    def end(self, tx: Transaction, end: End, lanes: dict[str, Lane]) -> None:
        tx.run_before_commit()
        if end is End.COMMIT:
            self.db.execute("COMMIT")
            self.lanes = lanes
        elif end is End.ROLLBACK:
            self.db.execute("ROLLBACK")
            self.cache.clear()
        else:
            self.db.close()
            self.connect()

    def store(self, lanes: dict[str, Lane], append: Append) -> None:
        event = _completed(append)
        lanes[append.lane].add(event, self.service, urgent=event.level in self.levels)

    def append(self, tx: Transaction, lanes: dict[str, Lane], *appends: Append) -> None:
        for append in appends:
            Unit([append], False, False)(tx)
            self.store(lanes, append)

    @rule(units=st.lists(UNITS, max_size=4), end=ENDS)
    def group(self, units: list[Unit], end: End) -> None:
        """Run units in memory, those that need the database afterwards, and commit."""
        tx = self.new_transaction()
        done: list[Unit] = []
        waiting: list[Unit] = []
        for unit in units:
            try:
                unit(tx)
            except NeedsDatabase:
                tx.undo()
                waiting.append(unit)
            except ZeroDivisionError:
                tx.undo()
            else:
                tx.take_sends()
                done.append(unit)
        if not self.connect_transaction(tx):
            tx, waiting, done = Transaction(self.db, tx.now, self.cache), units, []
        for unit in waiting:
            if not unit.fails:
                unit(tx)
                tx.take_sends()
                done.append(unit)
        appended = [append for unit in done for append in unit.appends]
        lanes = copy.deepcopy(self.lanes)
        for append in appended:
            self.store(lanes, append)
        system = [append.event for append in appended if append.lane == SYSTEM]
        assert [event for _number, event in events.take_logged(tx)] == system
        self.end(tx, end, lanes)

    def work(self, end: End, unit: Callable[[Transaction, dict[str, Lane]], None]) -> None:
        tx, lanes = self.new_transaction(), copy.deepcopy(self.lanes)
        self.connect_transaction(tx)
        unit(tx, lanes)
        self.end(tx, end, lanes)

    def seal_some(self, tx: Transaction, lanes: dict[str, Lane], lane: str, count: int) -> bool:
        draft = segments.draft(tx, lane, count, MAX_BYTES)
        if draft is None:
            return False
        numbers = [event.seq for event in draft.events]
        assert numbers == [row.number for row in lanes[lane].rows][:count]
        first, last = numbers[0], numbers[-1]
        digest = digest_of(f"{draft.epoch} {lane} {first}-{last}")
        sealed = NewSegment(draft.epoch, lane, first, last, digest, b"x", draft.previous, ())
        assert segments.seal(tx, sealed)
        lanes[lane].seal(last)
        return True

    @rule(
        lane=st.sampled_from(LANES),
        count=st.integers(1, 5),
        around=st.tuples(st.lists(APPENDS, max_size=2), st.lists(APPENDS, max_size=2)),
        end=ENDS,
    )
    def seal(
        self, lane: str, count: int, around: tuple[list[Append], list[Append]], end: End
    ) -> None:
        """Seal the oldest events of a lane, perhaps a part of a row."""

        def unit(tx: Transaction, lanes: dict[str, Lane]) -> None:
            before, after = around
            self.append(tx, lanes, *before)
            self.seal_some(tx, lanes, lane, count)
            self.append(tx, lanes, *after)

        self.work(end, unit)

    @rule(lost=st.sets(st.sampled_from(LANES)), first=APPENDS, end=ENDS)
    def begin_epoch(self, lost: set[str], first: Append, end: End) -> None:
        """Seal all events or drop those of some lanes, and begin another epoch."""

        def unit(tx: Transaction, lanes: dict[str, Lane]) -> None:
            for lane in LANES:
                if lane in lost and lanes[lane].rows:
                    dropped = segments.drop_unsealed(tx, lane, "not-sealed")
                    assert dropped[2:4] == (lanes[lane].sealed + 1, lanes[lane].last)
                while lane not in lost and self.seal_some(tx, lanes, lane, 3):
                    pass
                lanes[lane] = Lane()
            epochs.begin(tx, "restored")
            self.append(tx, lanes, first)

        self.work(end, unit)

    @rule(levels=st.sets(st.sampled_from(LEVELS[:2])), end=ENDS)
    def change_urgent_levels(self, levels: set[str], end: End) -> None:
        """Change which events are urgent from now on."""
        self.work(end, lambda tx, _lanes: events.set_urgent(tx, sorted(levels)))
        if end is End.COMMIT:
            self.levels = frozenset(levels)

    @rule(append=APPENDS)
    def another_process_appends(self, append: Append) -> None:
        """Append an event as a command does, beside the gateway."""
        self.service += 1.0
        now = Now(self.service, WALL, True)
        with closing(database.connect(self.path)) as db, database.transaction(db, now) as tx:
            self.append(tx, self.lanes, append)

    @invariant()
    def the_rows_equal_the_committed_events(self) -> None:
        tx = Transaction(self.db, Now(0.0, 0, True))
        assert events.unsealed_lanes(tx) == [
            self.lanes[lane].status(lane) for lane in sorted(LANES)
        ]
        for lane in LANES:
            expected = [
                (number, *event[:-1], event.tags or {})
                for number, event, *_ in self.lanes[lane].rows
            ]
            read = events.read(tx, lane, 0, 1000, MAX_BYTES)
            assert [(row.seq, *row[3:]) for row in read] == expected

    @invariant()
    def the_image_equals_the_rows(self) -> None:
        if self.version == self.data_version() and "lanes" in self.cache:
            fresh = events._lanes(Transaction(self.db, Now(0.0, 0, True)))
            image = self.cache["lanes"]
            for lane in LANES:
                for name in ("lane", "last", "sealed", "total", "unwritten", "urgent"):
                    assert getattr(image[lane], name) == getattr(fresh[lane], name)

    def teardown(self) -> None:
        """Close the database."""
        if hasattr(self, "db"):
            self.db.close()
            self.folder.cleanup()


EventImage.TestCase.settings = settings(
    max_examples=300 if LONG else 8, stateful_step_count=20, deadline=None
)
TestEventImage = EventImage.TestCase
