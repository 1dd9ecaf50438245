"""When a lane is sealed: number, size, age and urgency around their limits."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync.uplink.batcher import BatchLimits, seal_time
from sync.uplink.interfaces import LaneState

LIMITS = BatchLimits(events=10, seconds=60, bytes=1_000)


def test_empty_lane_waits() -> None:
    assert seal_time(LaneState("logs", 0, 0, None), LIMITS, 1e9) is None


@pytest.mark.parametrize(
    ("events", "size", "age"), list(product((1, 9, 10, 11), (1, 999, 1_000), (0, 59.5, 60, 61)))
)
def test_each_limit_seals(events: int, size: int, age: float) -> None:
    moment = seal_time(LaneState("logs", events, size, 100.0), LIMITS, 100.0 + age)
    full = events >= 10 or size >= 1_000
    assert moment == (100.0 + age if full else 160.0)


@given(st.integers(1, 30), st.integers(0, 2_000), st.floats(0, 1e9), st.floats(0, 1e9, width=32))
def test_lane_is_due_at_announced_time(events: int, size: int, oldest: float, now: float) -> None:
    state = LaneState("logs", events, size, oldest)
    moment = seal_time(state, LIMITS, now)
    assert moment is not None
    assert seal_time(state, LIMITS, moment) == moment


URGENT = BatchLimits(events=10, seconds=60, bytes=1_000, urgent=5)


@pytest.mark.parametrize(
    ("now", "idle", "expected"),
    [
        (100.0, True, 115.0),
        (100.0, False, 115.0),
        (114.5, True, 115.0),
        (115.0, True, 115.0),
        (115.0, False, 120.0),
        (130.0, False, 135.0),
        (158.0, False, 160.0),
        (160.0, False, 160.0),
    ],
)
def test_urgent_events_wait_briefly_if_idle(now: float, idle: bool, expected: float) -> None:
    state = LaneState("logs", 2, 10, oldest=100.0, urgent=110.0)
    assert seal_time(state, URGENT, now, idle=idle) == expected


def test_urgent_events_never_wait_longer_than_others() -> None:
    state = LaneState("logs", 2, 10, oldest=100.0, urgent=158.0)
    assert seal_time(state, URGENT, 159.0, idle=True) == 160.0


@pytest.mark.parametrize(
    "changes",
    [
        {"events": 0},
        {"events": 65_537},
        {"seconds": 0},
        {"seconds": float("nan")},
        {"seconds": 86_401},
        {"bytes": 0},
        {"bytes": 4 * 1024 * 1024 + 1},
        {"urgent": 0},
        {"urgent": 86_401},
    ],
)
def test_invalid_limits_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        BatchLimits(**changes)  # type: ignore[arg-type]  # the wrong numbers are the point
