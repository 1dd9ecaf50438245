"""Exponential backoff: bounds, doubling, jitter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync.common.backoff import Backoff, delay

JUST_BELOW_ONE = 1 - 2**-53
BACKOFF = Backoff()
chances = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(
    ("failures", "longest"), [(0, 1), (1, 2), (2, 4), (3, 8), (5, 32), (6, 60), (1000, 60)]
)
def test_upper_bound_doubles_up_to_the_maximum(failures: int, longest: float) -> None:
    assert delay(failures, JUST_BELOW_ONE, 1.0, 60.0) == pytest.approx(longest)


def test_shortest_wait_applies_whatever_the_chance() -> None:
    assert delay(4, 0.0, 1.0, 60.0) == 1.0


@given(st.integers(-3, 10**9), chances)
def test_waits_stay_within_their_bounds(failures: int, chance: float) -> None:
    assert 1.0 <= delay(failures, chance, 1.0, 60.0) <= 60.0
    assert 1 <= BACKOFF.delay(failures, chance) <= 900
    assert 30 <= BACKOFF.delay_denied(failures, chance) <= 900


def test_chance_spreads_a_fleet_over_the_whole_wait() -> None:
    assert [BACKOFF.delay(20, chance) for chance in (0.0, 0.25, 0.5)] == [1, 225, 450]


def test_waits_after_a_refused_login_begin_at_a_minute() -> None:
    assert [BACKOFF.delay_denied(n, 0.75) for n in (1, 2, 3, 9)] == [45, 90, 180, 675]


@given(st.floats(-10, 1e9), st.integers(1, 100), chances)
def test_requested_pause_is_kept_up_to_a_maximum(
    after: float, failures: int, chance: float
) -> None:
    wait = BACKOFF.delay_retry_after(after, failures, chance)
    assert min(after, 900) <= wait <= 900
    assert wait >= 1


@pytest.mark.parametrize(
    "bounds",
    [{"least": 0}, {"least": 100}, {"denied": 1_000}, {"most": 10}, {"most": float("nan")}],
)
def test_bounds_out_of_order_are_refused(bounds: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="least <= denied <= most"):
        Backoff(**bounds)
