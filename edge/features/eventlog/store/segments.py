"""The table `segments`: sealed segments, until the centre has them and for some time after.

One transaction stores a segment and deletes its events. A segment waits until the centre
acknowledges its digest. Then it is kept as recent history, within a quota. When the backlog is
full, segments of the lane that exceeds its share most are deleted (`rules.eviction`). The following
segments of the lane declare the lost range until the centre acknowledges one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from edge.engine.store import events, meta
from edge.engine.store.database import Transaction
from edge.engine.store.events import StoredEvent
from edge.features.eventlog.rules import eviction
from edge.features.eventlog.rules.eviction import BacklogQuota, SegmentContent, StoredSegment
from edge.features.eventlog.store import lost_ranges
from edge.features.eventlog.store.lost_ranges import LostRange


class DroppedRange(NamedTuple):
    """A range of sequence numbers that was deleted before it was sent, and the reason.

    Both ends are included.
    """

    first: int
    last: int
    reason: str


class SegmentDraft(NamedTuple):
    """The content of a lane's next segment, and the digest of the previous one."""

    epoch: str
    lane: str
    previous: bytes
    events: list[StoredEvent]
    dropped: list[DroppedRange]


class Segment(NamedTuple):
    """A sealed segment; `data` is the encoded file, `digest` its SHA-256 (32 bytes)."""

    epoch: str
    lane: str
    first: int
    last: int
    digest: bytes
    data: bytes


class NewSegment(NamedTuple):
    """A segment to store, with the previous one's digest, the lost ranges that it declares, and
    what its eviction depends on."""

    epoch: str
    lane: str
    first: int
    last: int
    digest: bytes
    data: bytes
    previous: bytes
    dropped: Sequence[DroppedRange]
    content: SegmentContent = SegmentContent()


class EvictedRange(NamedTuple):
    """A range of sequence numbers that was deleted before the centre had it; `bytes` were freed."""

    epoch: str
    lane: str
    first: int
    last: int
    bytes: int


class LaneHead(NamedTuple):
    """The last sealed sequence number of a lane in the current epoch, and its segment's digest.

    Before the first segment, the digest is zeros.
    """

    lane: str
    sealed: int
    digest: bytes


_CHAIN: Final = "SELECT sealed, previous FROM lanes WHERE lane = ?"
_HEADS: Final = "SELECT lane, sealed, previous FROM lanes ORDER BY lane"
_HOLDING: Final = """
SELECT last, digest FROM segments WHERE epoch = ? AND lane = ? AND first <= ?
ORDER BY first DESC LIMIT 1
"""
_DROPPED: Final = """
SELECT first, last, reason FROM dropped WHERE epoch = ? AND lane = ? ORDER BY first LIMIT ?
"""
_EXTEND: Final = """
UPDATE lanes SET previous = :digest
WHERE lane = :lane AND sealed = :first - 1 AND previous = :previous
"""
_PUT_IN: Final = """
INSERT INTO segments (
    epoch, lane, first, last, digest, state, declares, bytes, data, source, spared
) VALUES (?, ?, ?, ?, ?, 'waiting', ?, ?, ?, ?, ?)
"""
_WAITING: Final = """
SELECT epoch, lane, first, last, digest, data FROM segments WHERE state = 'waiting' ORDER BY id
"""
_OLDEST: Final = f"{_WAITING} LIMIT 1"
_NEWEST: Final = f"{_WAITING} DESC LIMIT 1"
_MARK: Final = """
UPDATE segments SET state = ?, reason = ? WHERE digest = ? AND state = 'waiting'
RETURNING epoch, lane, first, last, declares
"""
_TOTAL: Final = "SELECT coalesce(sum(bytes), 0) FROM segments WHERE state = ?"
_BY_LANE: Final = """
SELECT lane, sum(bytes) FROM segments WHERE state = 'waiting' GROUP BY lane
"""
_WAITING_OF_LANE: Final = """
SELECT id, bytes, source, spared FROM segments INDEXED BY segments_waiting
WHERE state = 'waiting' AND lane = ? ORDER BY id
"""
_EVICT: Final = """
DELETE FROM segments WHERE id = ? RETURNING epoch, lane, first, last, bytes
"""
_FORGET_OLDEST: Final = """
DELETE FROM segments WHERE id = (SELECT min(id) FROM segments WHERE state = ?) RETURNING bytes
"""
_LAST: Final = "SELECT max(last) FROM segments WHERE epoch = ? AND lane = ?"
_LANES: Final = "SELECT epoch, lane FROM segments GROUP BY epoch, lane ORDER BY min(id)"
_AFTER: Final = """
SELECT data FROM segments WHERE epoch = ? AND lane = ? AND last > ? ORDER BY first LIMIT 1
"""
_FREE: Final = "PRAGMA incremental_vacuum(256)"

MAX_DROPPED_RANGES: Final = 256
"""Maximum number of lost ranges that a segment's header declares; the next declares the rest."""


def draft(tx: Transaction, lane: str, count: int, max_bytes: int) -> SegmentDraft | None:
    """Return the content of a lane's next segment, or `None` if the lane has no unsealed events.

    It has at most `count` events, and at most `max_bytes` of them unless the first one is larger.
    """
    sealed, previous = tx.row(_CHAIN, (lane,))
    found = events.read(tx, lane, sealed, count, max_bytes)
    if not found:
        return None
    epoch = meta.epoch(tx)
    dropped = [DroppedRange(*row) for row in tx.rows(_DROPPED, (epoch, lane, MAX_DROPPED_RANGES))]
    return SegmentDraft(epoch, lane, previous, found, dropped)


def seal(tx: Transaction, sealed: NewSegment) -> bool:
    """Store a segment and delete its events.

    Returns `False`, and changes nothing, if another segment of the lane was sealed or a new epoch
    began since `draft` returned the content.
    """
    if sealed.epoch != meta.epoch(tx) or tx.run(_EXTEND, sealed._asdict()).rowcount != 1:
        return False
    events.delete_sealed(tx, sealed.lane, sealed.last)
    if sealed.lane == events.SYSTEM:
        events.log_unwritten(tx)
    declares = sealed.dropped[-1].last if sealed.dropped else None
    values = *sealed[:5], declares, len(sealed.data), sealed.data
    tx.run(_PUT_IN, (*values, *sealed.content))
    return True


def next_waiting(tx: Transaction, *, newest: bool = False) -> Segment | None:
    """Return the oldest waiting segment, or with `newest` the newest; `None` if none waits."""
    row = tx.row(_NEWEST if newest else _OLDEST)
    return None if row is None else Segment(*row)


def lane_heads(tx: Transaction) -> list[LaneHead]:
    """Return the last sealed number and digest of each lane in the current epoch."""
    return [LaneHead(*row) for row in tx.rows(_HEADS)]


def digest_at(tx: Transaction, epoch: str, lane: str, seq: int) -> bytes | None:
    """Return the digest of the segment that contains `seq`, or `None` if it is not known.

    It is known for the segments in the table, and for the last number that was sealed in the lane.
    """
    sealed, previous = tx.row(_CHAIN, (lane,))
    if (epoch, seq) == (meta.epoch(tx), sealed):
        return bytes(previous)
    row = tx.row(_HOLDING, (epoch, lane, seq))
    return row[1] if row is not None and row[0] >= seq else None


def acknowledge(tx: Transaction, digest: bytes, recent_bytes: int) -> None:
    """Record that the centre has a segment.

    At most `recent_bytes` of acknowledged segments are kept; the oldest are deleted.
    """
    marked = tx.row(_MARK, ("acknowledged", None, digest))
    if marked is not None:
        lost_ranges.delete_acknowledged(tx, *marked)
    _trim(tx, "acknowledged", recent_bytes)


def set_aside(tx: Transaction, digest: bytes, reason: str, max_bytes: int) -> LostRange | None:
    """Keep a segment without ever sending it again, and return its range.

    Returns `None` if the segment was not waiting. At most `max_bytes` of segments that were set
    aside are kept; the oldest are deleted.
    """
    marked = tx.row(_MARK, ("aside", reason, digest))
    _trim(tx, "aside", max_bytes)
    if marked is None:
        return None
    lost_ranges.report_again(tx, *marked[:4])
    epoch, lane, first, last, _declares = marked
    return LostRange(epoch, lane, first, last, reason)


def _trim(tx: Transaction, state: str, max_bytes: int) -> None:
    (total,) = tx.row(_TOTAL, (state,))
    while total > max_bytes:
        (freed,) = tx.row(_FORGET_OLDEST, (state,))
        total -= freed
    tx.rows(_FREE)


def lane_shares(readings: float, logs: float) -> dict[str, float]:
    """Return the fraction of the backlog that each lane is guaranteed; `system` gets the rest."""
    return {events.READINGS: readings, events.LOGS: logs, events.SYSTEM: 1 - readings - logs}


def waiting_bytes(tx: Transaction) -> dict[str, int]:
    """Return the total bytes of waiting segments of each lane."""
    return dict.fromkeys(events.LANES, 0) | dict(tx.rows(_BY_LANE))


def evict(tx: Transaction, bound: BacklogQuota, reason: str) -> list[EvictedRange]:
    """If the backlog exceeds its quota, delete segments of the lanes that are most above their
    shares, in the order of `eviction.order`. Record and return the lost ranges, with adjacent
    ranges merged."""
    latest: dict[tuple[str, str], EvictedRange] = {}
    ended: list[EvictedRange] = []
    left = waiting_bytes(tx)
    low = eviction.eviction_target(bound) if eviction.is_over_quota(left, bound) else bound
    orders: dict[str, Iterator[StoredSegment]] = {}
    while eviction.is_over_quota(left, low):
        lane = eviction.lane_to_evict(left, low)
        if lane not in orders:
            rows = tx.rows(_WAITING_OF_LANE, (lane,))
            orders[lane] = eviction.order(map(StoredSegment._make, rows))
        evicted = EvictedRange(*tx.row(_EVICT, (next(orders[lane]).row,)))
        left[evicted.lane] -= evicted.bytes
        lost_ranges.add(tx, LostRange(*evicted[:4], reason))
        key = evicted.epoch, evicted.lane
        before = latest.get(key)
        if before is not None and before.last + 1 == evicted.first:
            evicted = evicted._replace(first=before.first, bytes=before.bytes + evicted.bytes)
        elif before is not None:
            ended.append(before)
        latest[key] = evicted
    return [*ended, *latest.values()]


def drop_unsealed(tx: Transaction, lane: str, reason: str) -> EvictedRange:
    """Delete the events of a lane that are not sealed, because their epoch ends."""
    sealed, last = events.last_numbers(tx, lane)
    events.delete_sealed(tx, lane, last)
    dropped = EvictedRange(meta.epoch(tx), lane, sealed + 1, last, 0)
    lost_ranges.add(tx, LostRange(*dropped[:4], reason))
    return dropped


def lanes(tx: Transaction) -> list[tuple[str, str]]:
    """Return the epoch and lane of all stored segments, without duplicates, the oldest first."""
    return [(epoch, lane) for epoch, lane in tx.rows(_LANES)]


def last_number(tx: Transaction, epoch: str, lane: str) -> int:
    """Return the number of the last event of a lane that is in a stored segment, 0 if none is."""
    return int(tx.row(_LAST, (epoch, lane))[0] or 0)


def first_after(tx: Transaction, epoch: str, lane: str, seq: int) -> bytes | None:
    """Return the data of the first segment of a lane that ends after `seq`, or `None`."""
    row = tx.row(_AFTER, (epoch, lane, seq))
    return None if row is None else row[0]
