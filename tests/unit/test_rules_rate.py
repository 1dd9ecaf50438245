"""The leaky buckets that a connection is read by."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.server.rate_limit import LEAST_WAIT, Bound, Rate

STANZAS = Bound(10, 5)
BYTES = Bound(1000, 100)


def rate() -> Rate:
    return Rate(STANZAS, BYTES, 100.0)


def test_what_is_within_both_does_not_wait() -> None:
    it = rate()
    it.stanzas, it.bytes = 10, 1000
    assert not it.over()
    assert it.wait() == 0.0


@pytest.mark.parametrize(
    ("stanzas", "size", "wait"),
    [(11, 0, 0.2), (20, 0, 2.0), (0, 1100, 1.0), (20, 1100, 2.0), (11, 1100, 1.0)],
)
def test_what_is_over_waits_until_the_slower_has_leaked(
    stanzas: int, size: int, wait: float
) -> None:
    it = rate()
    it.stanzas, it.bytes = stanzas, size
    assert it.over()
    assert it.wait() == pytest.approx(wait)
    it.leak(100.0 + wait)
    assert not it.over()


def test_a_wait_is_worth_a_timer() -> None:
    it = rate()
    it.bytes = 1000.5
    assert it.wait() == LEAST_WAIT


def test_silence_earns_nothing_beyond_an_empty_bucket() -> None:
    it = rate()
    it.stanzas, it.bytes = 3, 300
    it.leak(10_000.0)
    assert (it.stanzas, it.bytes) == (0.0, 0.0)
    it.stanzas += 11
    assert it.over()


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(0, 400)), max_size=60))
def test_in_no_time_more_passes_than_the_bound_says(steps: list[tuple[float, int]]) -> None:
    """Whoever sends as soon as it may: at most one portion more than the bucket and its leak."""
    it, now, passed = rate(), 100.0, 0
    for pause, size in steps:
        now += pause
        it.leak(now)
        if not it.over():
            it.bytes += size
            passed += size
        assert passed <= BYTES.at_once + BYTES.per_second * (now - 100.0) + 400 + 1e-6
