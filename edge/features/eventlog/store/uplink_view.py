"""How the uplink stands, as far as rows tell: for who asks, and for nothing that is decided.

What the uploader told last, and when the centre took a segment last, is remembered here beside.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from edge.engine import meta
from edge.engine.database import Transaction

SAMPLE_SIZE: Final = 200
"""Segments, the latest ones, by which it is told how fast they come."""

MAX_ROWS: Final = 1000
"""Rows of dropped ranges, of reasons why segments were set aside, or of epochs, that are told."""

_TAKEN: Final = "uplink taken"
_TOLD: Final = "uplink told"

_LANES: Final = """
SELECT l.lane, l.last, l.sealed,
    coalesce((
        SELECT s.first - 1 FROM segments AS s, meta AS m
        WHERE m.key = 'epoch' AND s.epoch = m.value AND s.lane = l.lane AND s.state = 'waiting'
        ORDER BY s.first LIMIT 1
    ), l.sealed),
    count(w.id), coalesce(sum(w.bytes), 0), min(w.id)
FROM lanes AS l LEFT JOIN segments AS w ON w.state = 'waiting' AND w.lane = l.lane
GROUP BY l.lane ORDER BY l.lane
"""
_EPOCHS: Final = """
SELECT epoch, count(*) FROM segments WHERE state = 'waiting' GROUP BY epoch
"""
_UNSEALED: Final = """
SELECT coalesce(sum(last - sealed), 0), (
    SELECT min(time) FROM lanes AS f JOIN events AS e ON e.lane = f.lane AND e.seq = f.sealed + 1
), min(oldest) FROM lanes
"""
_ASIDE: Final = """
SELECT lane, reason, count(*), sum(bytes) FROM segments WHERE state = 'aside'
GROUP BY lane, reason ORDER BY lane, reason LIMIT ?
"""
_DROPPED: Final = """
SELECT d.lane, d.first, d.last, d.reason FROM dropped AS d, meta AS m
WHERE m.key = 'epoch' AND d.epoch = m.value ORDER BY d.lane, d.first LIMIT ?
"""
_DATA: Final = "SELECT data FROM segments WHERE id = ?"
_LATEST: Final = "SELECT id, bytes FROM segments ORDER BY id DESC LIMIT ?"
_NEXT: Final = """
SELECT id, epoch, lane, first, last, digest, data FROM segments
WHERE id > ? AND (state = 'waiting' OR ?) ORDER BY id LIMIT 1
"""


class LaneStatus(NamedTuple):
    """A lane: the last number, how far it is sealed, and up to where nothing waits any more.

    The last two are within the current epoch. `segments` and `bytes` wait, of all epochs, and
    `oldest` is the row of the first of those.
    """

    lane: str
    last: int
    sealed: int
    settled: int
    segments: int
    bytes: int
    oldest: int | None


class UnsealedEvents(NamedTuple):
    """Events that are in no segment yet, and when the first of them was logged.

    `since` is that in ms since 1970 UTC, `service` in seconds of service; `None` of no event.
    """

    events: int
    since: int | None
    service: float | None


class SetAsideSegments(NamedTuple):
    """Segments that are kept and never sent again, and why."""

    lane: str
    reason: str
    segments: int
    bytes: int


class UndeclaredRange(NamedTuple):
    """A range of numbers that is lost, and not yet declared to the centre."""

    lane: str
    first: int
    last: int
    reason: str


class Notice(NamedTuple):
    """The last notice of the uplink; `time` is in ms since 1970 UTC."""

    name: str
    text: str
    time: int


class SegmentSample(NamedTuple):
    """The latest segments: the bytes of all but the oldest, and the data of both ends."""

    size: int
    oldest: bytes
    newest: bytes


class SegmentRow(NamedTuple):
    """A segment and its row, which rises with the time of sealing."""

    row: int
    epoch: str
    lane: str
    first: int
    last: int
    digest: bytes
    data: bytes


def record_upload(tx: Transaction) -> None:
    """Remember that the centre has just taken a segment."""
    meta.write(tx, _TAKEN, float(tx.now.wall))


def last_upload_time(tx: Transaction) -> int | None:
    """Return when the centre took a segment last, in ms since 1970 UTC."""
    return round(meta.read_number(tx, _TAKEN)) or None


def record_notice(tx: Transaction, name: str, text: str) -> None:
    """Remember a notice as the last one."""
    meta.write(tx, _TOLD, msgspec.json.encode(Notice(name, text, tx.now.wall)).decode())


def last_notice(tx: Transaction) -> Notice | None:
    """Return the last notice, if there was one."""
    text = meta.find_text(tx, _TOLD)
    return None if text is None else msgspec.json.decode(text, type=Notice)


def lane_status(tx: Transaction) -> list[LaneStatus]:
    """Return how each lane stands."""
    return [LaneStatus(*row) for row in tx.rows(_LANES)]


def epochs(tx: Transaction) -> dict[str, int]:
    """Return how many segments wait of each epoch."""
    return dict(tx.rows(_EPOCHS))


def unsealed(tx: Transaction) -> UnsealedEvents:
    """Return what is in no segment yet."""
    return UnsealedEvents(*tx.row(_UNSEALED))


def set_aside_segments(tx: Transaction) -> list[SetAsideSegments]:
    """Return what was set aside, by lane and reason."""
    return [SetAsideSegments(*row) for row in tx.rows(_ASIDE, (MAX_ROWS,))]


def undeclared_ranges(tx: Transaction) -> list[UndeclaredRange]:
    """Return the ranges that the current epoch has lost and not told yet."""
    return [UndeclaredRange(*row) for row in tx.rows(_DROPPED, (MAX_ROWS,))]


def data(tx: Transaction, row: int) -> bytes:
    """Return the bytes of a segment that is here."""
    return bytes(tx.row(_DATA, (row,))[0])


def sample(tx: Transaction) -> SegmentSample | None:
    """Return the latest segments, `None` where there are not two."""
    rows = tx.rows(_LATEST, (SAMPLE_SIZE,))
    if len(rows) < 2:
        return None
    size = sum(length for _row, length in rows[:-1])
    return SegmentSample(size, data(tx, rows[-1][0]), data(tx, rows[0][0]))


def first_after(tx: Transaction, row: int, *, every: bool) -> SegmentRow | None:
    """Return the first segment behind a row that waits, or `every` first one; `None` at the end."""
    found = tx.row(_NEXT, (row, every))
    return None if found is None else SegmentRow(*found)
