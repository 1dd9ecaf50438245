"""Which segments a full lane loses: those of the source that fills it, and alarms last."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.features.eventlog.rules.eviction import (
    FLOOD_PART,
    EventWeight,
    SegmentContent,
    StoredSegment,
    describe,
    order,
)

FLOOD, MODEST = "flood@gw.example", "modest@gw.example"
URGENT = frozenset({"Critical"})


def event(source: str | None, size: int = 10, level: str = "Notice") -> EventWeight:
    return EventWeight(source, level, size)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], SegmentContent(None, 0)),
        ([event(None)], SegmentContent(None, 0)),
        ([event(f"{FLOOD}/a"), event(f"{FLOOD}/b"), event(MODEST)], SegmentContent(FLOOD, 0)),
        ([event(FLOOD), event(MODEST)], SegmentContent(None, 0)),
        ([event(FLOOD, level="Critical"), event(FLOOD)], SegmentContent(FLOOD, 1)),
        ([event(FLOOD, 100), event(MODEST, level="Critical")], SegmentContent(FLOOD, 2)),
        ([event(FLOOD, level="Critical"), event(MODEST)], SegmentContent(None, 2)),
    ],
)
def test_content_of_a_segment(events: list[EventWeight], expected: SegmentContent) -> None:
    assert describe(events, URGENT) == expected


def rows(*segments: StoredSegment) -> list[int]:
    return [segment.row for segment in order(segments)]


def test_the_source_that_fills_a_lane_loses_its_segments_first() -> None:
    modest = [StoredSegment(row, 10, MODEST, 0) for row in (1, 2)]
    mixed = [StoredSegment(3, 10, None, 0)]
    flood = [StoredSegment(row, 10, FLOOD, 0) for row in range(4, 30)]
    evicted = rows(*modest, *mixed, *flood)
    assert evicted[:20] == list(range(4, 24)), "until it has no more than others"


def test_without_a_flood_the_oldest_segments_are_lost() -> None:
    sources = [f"pump{number}@gw.example" for number in range(FLOOD_PART)]
    segments = [StoredSegment(row, 10, source, 0) for row, source in enumerate(sources)]
    assert rows(*segments)[0] == 0


def test_segments_with_alarms_of_others_are_lost_last() -> None:
    """A flood keeps its own alarms only longer than its own other segments."""
    alarm = StoredSegment(1, 10, FLOOD, 2)
    own = [StoredSegment(2, 10, FLOOD, 1), StoredSegment(3, 10, FLOOD, 0)]
    assert rows(alarm, *own, StoredSegment(4, 10, MODEST, 1)) == [3, 2, 4, 1]


@given(
    st.lists(
        st.tuples(st.integers(1, 99), st.sampled_from([None, FLOOD, MODEST]), st.integers(0, 2))
    )
)
def test_each_segment_is_evicted_once(found: list[tuple[int, str | None, int]]) -> None:
    segments = [StoredSegment(row, *fields) for row, fields in enumerate(found)]
    evicted = list(order(segments))
    assert sorted(one.row for one in evicted) == list(range(len(segments)))
    spared = [one.spared == 2 for one in evicted]
    assert spared == sorted(spared)
