"""Read the event log on the gateway: recent segments, then unsealed events."""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from edge.engine.store import database, events, meta
from edge.engine.store.database import Transaction
from edge.errors import StoreError
from edge.features.eventlog.store import segments
from edge.ops import current_time
from sync.segment import SegmentError, decode

PAGE: Final = 1000
"""Events read per transaction, so that memory use does not depend on the size of the log."""

PAGE_BYTES: Final = 1024 * 1024


Numbers: TypeAlias = dict[tuple[str, str], int]
"""The number of the last event that was read, by epoch and lane."""


class LoggedEvent(NamedTuple):
    """An event with its epoch and lane; `event` has the fields of `sync.segment.Event`."""

    epoch: str
    lane: str
    event: Any


class Selection(NamedTuple):
    """Which events to show.

    Attributes:
        since: the least time of an event, in ms since 1970 UTC.
        device: the name or the bare JID of the device that is the source; "" selects all events.
        kinds: the kinds of events; empty selects all.
    """

    since: int = 0
    device: str = ""
    kinds: tuple[str, ...] = ()

    def has(self, event: Any) -> bool:
        """Return whether the event is selected."""
        source = (event.source or "").partition("/")[0]
        name = source if "@" in self.device else source.partition("@")[0]
        return (
            event.time >= self.since
            and (not self.device or name == self.device.lower())
            and (not self.kinds or event.kind in self.kinds)
        )


def end(folder: Path) -> Numbers:
    """Return the numbers of the last events that are stored now."""
    with (
        closing(database.connect_reader(folder / database.FILE_NAME)) as connection,
        _snapshot(connection) as tx,
    ):
        epoch = meta.read_text(tx, meta.EPOCH)
        ends: Numbers = {key: segments.last_number(tx, *key) for key in segments.lanes(tx)}
        return ends | {(epoch, lane): events.last_numbers(tx, lane)[1] for lane in events.LANES}


def read(folder: Path, after: Numbers | None = None) -> Iterator[LoggedEvent]:
    """Yield the stored events: epoch by epoch, within an epoch by time, lane and number.

    The numbers of a lane stay in order even if the clock was set back. Each segment or page is read
    in a separate transaction, so that a slow consumer does not block the running gateway. Memory
    holds one segment or page per lane. Raises `StoreError` if a segment is damaged.

    Args:
        after: yields only events with higher numbers, and enters the number of each event.
    """
    after = {} if after is None else after
    path = folder / database.FILE_NAME
    with closing(database.connect_reader(path)) as connection:
        with _snapshot(connection) as tx:
            current = meta.read_text(tx, meta.EPOCH)
            lanes = segments.lanes(tx)
            lanes += [key for lane in events.LANES if (key := (current, lane)) not in lanes]
        for epoch in dict.fromkeys(epoch for epoch, _ in lanes):
            pages = [
                _lane(connection, epoch, lane, after.get((epoch, lane), 0))
                for of, lane in lanes
                if of == epoch
            ]
            for logged in heapq.merge(
                *pages, key=lambda one: (one.event.time, one.lane, one.event.seq)
            ):
                after[epoch, logged.lane] = logged.event.seq
                yield logged


def _lane(connection: sqlite3.Connection, epoch: str, lane: str, seq: int) -> Iterator[LoggedEvent]:
    """Yield a lane's events after the number `seq`; no transaction is open while the caller
    handles one."""
    while True:
        with _snapshot(connection) as tx:
            data = segments.first_after(tx, epoch, lane, seq)
            page = [] if data is not None else _unsealed(tx, epoch, lane, seq)
        if data is not None:  # its first events may have been read before they were sealed
            page = [event for event in _decode(data) if event.seq > seq]
        if not page:
            return
        yield from (LoggedEvent(epoch, lane, event) for event in page)
        seq = page[-1].seq


def _snapshot(connection: sqlite3.Connection) -> AbstractContextManager[Transaction]:
    return database.transaction(connection, current_time.now(), "BEGIN")


def _unsealed(tx: Transaction, epoch: str, lane: str, seq: int) -> Sequence[Any]:
    """Return the next unsealed events of a lane after number `seq`; none if the epoch has ended."""
    if epoch != meta.read_text(tx, meta.EPOCH):
        return ()
    return events.read(tx, lane, seq, PAGE, PAGE_BYTES)


def _decode(data: bytes) -> Sequence[Any]:
    try:
        return decode(data).events
    except SegmentError as error:
        raise StoreError(f"a segment in the database is damaged: {error}") from error
