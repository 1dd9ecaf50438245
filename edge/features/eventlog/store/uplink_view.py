"""Read the uplink's state for status reports, and record its last upload and last notice."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from edge.engine.store import meta
from edge.engine.store.database import Transaction

SAMPLE_SIZES: Final = (200, 5_000)
"""Sizes, in segments, of the two samples from which the rate of sealing is estimated. The second
sample is used if the first yields no rate, for example because it spans less than an hour."""

MAX_ROWS: Final = 1000
"""Maximum number of rows in each list of set-aside segments and of lost ranges."""

POSITIVE_NOTICES: Final = frozenset({"shipping", "certificate-renewed"})
"""Names of the notices that report a success."""

_LAST_UPLOAD: Final = "uplink taken"
_NOTICE: Final = "uplink told"

_LANES: Final = """
SELECT l.lane, l.last, l.sealed,
    coalesce((
        SELECT s.first - 1 FROM segments AS s, meta AS m
        WHERE m.key = 'epoch' AND s.epoch = m.value AND s.lane = l.lane AND s.state = 'waiting'
        ORDER BY s.first LIMIT 1
    ), l.sealed),
    count(w.id), coalesce(sum(w.bytes), 0), min(w.id)
FROM lane_counters AS l LEFT JOIN segments AS w ON w.state = 'waiting' AND w.lane = l.lane
GROUP BY l.lane ORDER BY l.lane
"""
_EPOCHS: Final = """
SELECT epoch, count(*) FROM segments WHERE state = 'waiting' GROUP BY epoch
"""
_UNSEALED: Final = """
SELECT coalesce(sum(last - sealed), 0), min(time), min(oldest) FROM lane_counters
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
    """The state of a lane.

    `last`, `sealed` and `settled` are sequence numbers within the current epoch: the last event,
    the last sealed event, and the last event before the first waiting segment. `segments` and
    `bytes` are the number and the size of the waiting segments of all epochs; `oldest` is the row
    number of the oldest one.
    """

    lane: str
    last: int
    sealed: int
    settled: int
    segments: int
    bytes: int
    oldest: int | None


class UnsealedEvents(NamedTuple):
    """The number of events that are not sealed yet, and the time of the first one.

    `since` is in ms since 1970 UTC, `service` in service seconds; both are `None` without events.
    """

    events: int
    since: int | None
    service: float | None


class SetAsideSegments(NamedTuple):
    """The number and bytes of segments of a lane that are kept but never sent again, and why."""

    lane: str
    reason: str
    segments: int
    bytes: int


class UndeclaredRange(NamedTuple):
    """A lost range of sequence numbers; the centre has not acknowledged its declaration yet."""

    lane: str
    first: int
    last: int
    reason: str


class Notice(NamedTuple):
    """The last success or failure that the uplink reported; `time` is in ms since 1970 UTC."""

    name: str
    text: str
    time: int


class SegmentSample(NamedTuple):
    """A sample of the latest segments, to compute how many bytes are sealed per second.

    `oldest` and `newest` are the first and last, encoded; `size` is the bytes of all but `oldest`.
    """

    size: int
    oldest: bytes
    newest: bytes


class SegmentRow(NamedTuple):
    """A segment and its row number, which rises with the time of sealing."""

    row: int
    epoch: str
    lane: str
    first: int
    last: int
    digest: bytes
    data: bytes


def record_upload(tx: Transaction) -> None:
    """Record that the centre has just acknowledged a segment."""
    meta.write(tx, _LAST_UPLOAD, float(tx.now.wall))


def last_upload_time(tx: Transaction) -> int | None:
    """Return when the centre last acknowledged a segment, in ms since 1970 UTC, or `None`."""
    return round(meta.read_number(tx, _LAST_UPLOAD)) or None


def record_notice(tx: Transaction, name: str, text: str) -> None:
    """Record a notice of the uplink, in place of the previous one."""
    meta.write(tx, _NOTICE, msgspec.json.encode(Notice(name, text, tx.now.wall)).decode())


def last_notice(tx: Transaction) -> Notice | None:
    """Return the last notice of the uplink, or `None`."""
    text = meta.find_text(tx, _NOTICE)
    return None if text is None else msgspec.json.decode(text, type=Notice)


def lane_status(tx: Transaction) -> list[LaneStatus]:
    """Return the state of each lane."""
    return [LaneStatus(*row) for row in tx.rows(_LANES)]


def epochs(tx: Transaction) -> dict[str, int]:
    """Return the number of waiting segments of each epoch."""
    return dict(tx.rows(_EPOCHS))


def unsealed(tx: Transaction) -> UnsealedEvents:
    """Return the number of events that are not sealed yet, and the time of the first one."""
    return UnsealedEvents(*tx.row(_UNSEALED))


def set_aside_segments(tx: Transaction) -> list[SetAsideSegments]:
    """Return the number and bytes of segments that were set aside, by lane and reason."""
    return [SetAsideSegments(*row) for row in tx.rows(_ASIDE, (MAX_ROWS,))]


def undeclared_ranges(tx: Transaction) -> list[UndeclaredRange]:
    """Return the lost ranges of the current epoch of which the centre does not know yet."""
    return [UndeclaredRange(*row) for row in tx.rows(_DROPPED, (MAX_ROWS,))]


def data(tx: Transaction, row: int) -> bytes:
    """Return the encoded data of the segment in a row, which must exist."""
    return bytes(tx.row(_DATA, (row,))[0])


def sample(tx: Transaction, count: int) -> SegmentSample | None:
    """Return a sample of the latest segments, at most `count`; `None` if fewer than two exist."""
    rows = tx.rows(_LATEST, (count,))
    if len(rows) < 2:
        return None
    size = sum(length for _row, length in rows[:-1])
    return SegmentSample(size, data(tx, rows[-1][0]), data(tx, rows[0][0]))


def first_after(tx: Transaction, row: int, *, every: bool) -> SegmentRow | None:
    """Return the first waiting segment after a row, or with `every` the first in any state.

    Returns `None` if there is none.
    """
    found = tx.row(_NEXT, (row, every))
    return None if found is None else SegmentRow(*found)
