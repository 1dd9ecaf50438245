"""Choose the lane and the segments that are lost when the backlog is full.

A lane with too many events loses its own segments; other lanes keep theirs. Within a lane, the
source that fills it loses its segments first, so that a flood of one device evicts nothing of
others. Segments with urgent events of other sources are lost last.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

MIN_MEASURED: Final = 3600.0
"""Minimum seconds of measurement for an estimate of the time until the backlog is full."""

EVICTION_DIVISOR: Final = 64
"""Each eviction frees a fraction of the quota: 1 divided by this number.

Each eviction is logged as an event. If too few bytes were freed, that event alone could fill the
backlog again, and sealing and evicting would never end.
"""


FLOOD_PART: Final = 8
"""Divisor of a lane's waiting bytes: if a source has more than this part, it loses its own segments
first."""


class BacklogQuota(NamedTuple):
    """The maximum bytes of all waiting segments, and the guaranteed share of each lane (sum: 1)."""

    bytes: int
    shares: Mapping[str, float]


def is_over_quota(used: Mapping[str, int], bound: BacklogQuota) -> bool:
    """Return whether the waiting bytes, given by lane, exceed the quota."""
    return sum(used.values()) > bound.bytes


def eviction_target(bound: BacklogQuota) -> BacklogQuota:
    """Return the quota to which a full backlog is reduced, a little below `bound`."""
    return bound._replace(bytes=bound.bytes - bound.bytes // EVICTION_DIVISOR)


def lane_to_evict(used: Mapping[str, int], bound: BacklogQuota) -> str:
    """Return the lane that exceeds its share by the most bytes.

    Because the shares sum to 1, at least one lane exceeds its share whenever the backlog exceeds
    the quota. So segments within a lane's share are never evicted.
    """
    return max(used, key=lambda lane: used[lane] - bound.shares[lane] * bound.bytes)


class SegmentContent(NamedTuple):
    """The main source of a segment, and whether its eviction is put off.

    Attributes:
        source: the bare JID that has more than half of the bytes of the segment's events, if any.
        spared: 2 if the segment has urgent events of other sources, 1 if it has only urgent events
            of `source`, otherwise 0.
    """

    source: str | None = None
    spared: int = 0


class EventWeight(NamedTuple):
    """An event's source (a full or bare JID), its level, and its size in bytes."""

    source: str | None
    level: str | None
    bytes: int


def describe(found: Iterable[EventWeight], urgent: Collection[str]) -> SegmentContent:
    """Return what the eviction of a segment with these events depends on; `urgent` are the levels
    of urgent events."""
    sizes: defaultdict[str, int] = defaultdict(int)
    alarms: set[str] = set()
    for event in found:
        source = (event.source or "").partition("/")[0]
        sizes[source] += event.bytes
        if event.level in urgent:
            alarms.add(source)
    largest = max(sizes, key=sizes.__getitem__, default="")
    dominates = 2 * sizes[largest] > sum(sizes.values())
    main = largest if largest and dominates else None
    if not alarms:
        return SegmentContent(main)
    return SegmentContent(main, 1 if alarms == {main} else 2)


class StoredSegment(NamedTuple):
    """A waiting segment: its row, its bytes, and its `SegmentContent`."""

    row: int
    bytes: int
    source: str | None
    spared: int


def order(segments: Iterable[StoredSegment]) -> Iterator[StoredSegment]:
    """Yield the waiting segments of a lane in the order in which they are evicted.

    As long as a source has more than a part of the lane's bytes (1 / `FLOOD_PART`), the source with
    the most loses its oldest segment, those without urgent events first. Otherwise the oldest
    segment is lost. Segments with urgent events of other sources are lost after all others.

    Args:
        segments: the segments, the oldest first.
    """
    kept: list[StoredSegment] = []
    waiting: defaultdict[str | None, list[StoredSegment]] = defaultdict(list)
    sizes: defaultdict[str | None, int] = defaultdict(int)
    for segment in segments:
        sizes[segment.source] += segment.bytes
        (kept if segment.spared == 2 else waiting[segment.source]).append(segment)
    queues = {
        source: deque(sorted(found, key=lambda one: (one.spared, one.row)))
        for source, found in waiting.items()
    }
    while queues:
        largest = max((source for source in queues if source), key=sizes.__getitem__, default=None)
        if largest is None or sizes[largest] * FLOOD_PART <= sum(sizes.values()):
            largest = min(queues, key=lambda source: queues[source][0].row)
        segment = queues[largest].popleft()
        sizes[largest] -= segment.bytes
        if not queues[largest]:
            del queues[largest]
        yield segment
    yield from kept


def hours_until_full(room: int, sealed: int, seconds: float) -> float | None:
    """Return the hours until `room` bytes are full at the rate of `sealed` bytes in `seconds`.

    Returns `None` if the rate is unknown, because nothing was sealed, the measurement took less
    than `MIN_MEASURED` seconds, or the clock was set back.
    """
    if sealed <= 0 or seconds < MIN_MEASURED:
        return None
    return max(0, room) / (sealed / seconds) / 3600
