"""Reading the event log at the gateway: recent segments, then what is not sealed yet."""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any, Final, NamedTuple

from edge.engine import database, events, meta
from edge.engine.database import Transaction
from edge.features.eventlog.store import segments
from edge.ops import current_time

PAGE: Final = 1000
"""Events read at once: memory does not depend on how many there are."""

PAGE_BYTES: Final = 1024 * 1024


class Logged(NamedTuple):
    """An event and what it is counted under; `event` has the fields of the store's `Row`."""

    epoch: str
    lane: str
    event: Any


def read(folder: Path, decode: Callable[[bytes], Sequence[Any]]) -> Iterator[Logged]:
    """Yield every event that is still here: epoch by epoch, in each by (time, lane, number).

    The numbers of a lane stay in order even where the clock was set back. `decode` opens a segment:
    its events. Each segment or page is read in a transaction of its own, so that a slow reader of
    this keeps nothing from the running gateway; one of each lane is in memory.
    """
    path = folder / database.FILE_NAME
    with closing(database.connect_reader(path)) as connection:
        with _snapshot(connection) as tx:
            current = meta.read_text(tx, meta.EPOCH)
            lanes = segments.lanes(tx)
            lanes += [key for lane in events.LANES if (key := (current, lane)) not in lanes]
        for epoch in dict.fromkeys(epoch for epoch, _ in lanes):
            pages = [_lane(connection, epoch, lane, decode) for of, lane in lanes if of == epoch]
            yield from heapq.merge(*pages, key=_order)


def _order(logged: Logged) -> tuple[int, str, int]:
    return logged.event.time, logged.lane, logged.event.seq


def _lane(
    connection: sqlite3.Connection,
    epoch: str,
    lane: str,
    decode: Callable[[bytes], Sequence[Any]],
) -> Iterator[Logged]:
    """Yield a lane's events by their numbers; no transaction is open while it yields."""
    seq = 0
    while True:
        with _snapshot(connection) as tx:
            data = segments.first_after(tx, epoch, lane, seq)
            page = [] if data is not None else _unsealed(tx, epoch, lane, seq)
        if data is not None:  # what was just sealed may have been read before that
            page = [event for event in decode(data) if event.seq > seq]
        if not page:
            return
        yield from (Logged(epoch, lane, event) for event in page)
        seq = page[-1].seq


def _snapshot(connection: sqlite3.Connection) -> AbstractContextManager[Transaction]:
    return database.transaction(connection, current_time.now(), "BEGIN")


def _unsealed(tx: Transaction, epoch: str, lane: str, seq: int) -> Sequence[Any]:
    """Return what is counted in the current epoch; of one before, all is in segments."""
    if epoch != meta.read_text(tx, meta.EPOCH):
        return ()
    return events.read(tx, lane, seq, PAGE, PAGE_BYTES)
