"""Hypothesis strategies for segments with few rows and difficult values."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from sync.segment import LANES, Dropped, Event, SegmentHeader
from sync.segment.limits import MAX_TIME, MIN_TIME
from tests.helpers.segments import header

characters = st.characters(exclude_categories=["Cs"])
words = st.sampled_from(["", "a", "pump1", "pump2", "größe", "\U0001f4a7", "2026-01-01T00:00:00Z"])
texts = st.one_of(words, st.text(characters, max_size=12))
times = st.one_of(
    st.integers(1_790_000_000_000, 1_790_000_900_000), st.integers(MIN_TIME, MAX_TIME)
)
numbers = st.one_of(
    st.sampled_from([0, 1, -1, 255, 256, -128, -129, 65_535, 65_536, -32_769, 2**31, -(2**31) - 1]),
    st.integers(-(2**63), 2**63 - 1),
)
values = st.one_of(
    st.integers(-1000, 1000).map(float),
    st.decimals(-1000, 1000, places=2).map(float),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 1e300, 5e-324, 0.1, 1 / 3]),
)
row = st.fixed_dictionaries(
    {"time": times, "clock": st.booleans(), "kind": texts},
    optional={
        "source": texts,
        "topic": texts,
        "name": texts,
        "value": values,
        "unit": texts,
        "level": texts,
        "text": texts,
        "qos": st.integers(0, 2),
        "latency_ms": numbers,
        "tags": st.dictionaries(texts, texts, max_size=6),
    },
)


@st.composite
def segments(draw: st.DrawFn) -> tuple[SegmentHeader, list[Event]]:
    rows: list[dict[str, Any]] = draw(st.lists(row, min_size=1, max_size=40))
    first = draw(st.one_of(st.integers(1, 100), st.just(2**63 - len(rows))))
    events = [Event(seq=first + place, **columns) for place, columns in enumerate(rows)]
    dropped = draw(st.lists(st.integers(1, 2**63 - 1), max_size=3))
    segment_header = header(
        first,
        first + len(rows) - 1,
        lane=draw(st.sampled_from(LANES)),
        previous=draw(st.binary(min_size=32, max_size=32)),
        boot=draw(texts),
        sealed_at=draw(times),
        service_seconds=draw(st.floats(0, 1e12)),
        clock=draw(st.booleans()),
        firmware=draw(texts),
        software=draw(texts),
        config_hash=draw(st.binary(max_size=32)),
        disk_used=draw(st.integers(0, 2**63 - 1)),
        dropped=tuple(Dropped(seq, seq, "backlog-full") for seq in dropped),
    )
    return segment_header, events
