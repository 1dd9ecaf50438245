from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.config.limits import Limits
from edge.server.rate_limit import MIN_PAUSE, LeakyBuckets

LIMITS = Limits(stanzas_at_once=10, stanzas_per_second=5, bytes_at_once=1000, bytes_per_second=100)


def new_buckets(stanzas: float = 0.0, size: float = 0.0) -> LeakyBuckets:
    buckets = LeakyBuckets(LIMITS, 100.0)
    buckets.requests, buckets.bytes = stanzas, size
    return buckets


def test_full_buckets_need_no_pause() -> None:
    buckets = new_buckets(10, 1000)
    assert not buckets.is_exceeded()
    assert buckets.pause() == 0.0


@pytest.mark.parametrize(
    ("stanzas", "size", "pause"),
    [
        (11, 0, 0.2), (20, 0, 2.0), (0, 1100, 1.0), (20, 1100, 2.0), (11, 1100, 1.0),
        (0, 1000.5, MIN_PAUSE),
    ],
)  # fmt: skip
def test_pause_lasts_until_both_buckets_have_leaked(
    stanzas: int, size: float, pause: float
) -> None:
    buckets = new_buckets(stanzas, size)
    assert buckets.is_exceeded()
    assert buckets.pause() == pytest.approx(pause)
    buckets.leak(100.0 + pause)
    assert not buckets.is_exceeded()


def test_buckets_do_not_leak_below_empty() -> None:
    buckets = new_buckets(3, 300)
    buckets.leak(10_000.0)
    assert (buckets.requests, buckets.bytes) == (0.0, 0.0)
    buckets.requests += 11
    assert buckets.is_exceeded()


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(0, 400)), max_size=60))
def test_rate_is_never_above_the_limit(steps: list[tuple[float, int]]) -> None:
    """A peer that sends whenever it may exceeds the burst and the leak by at most one read."""
    buckets, now, received = new_buckets(), 100.0, 0
    for pause, size in steps:
        now += pause
        buckets.leak(now)
        if not buckets.is_exceeded():
            buckets.bytes += size
            received += size
        leaked = LIMITS.bytes_per_second * (now - 100.0)
        assert received <= LIMITS.bytes_at_once + leaked + 400 + 1e-6
