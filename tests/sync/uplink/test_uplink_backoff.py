"""How long a gateway waits: within bounds, spread, and growing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync.uplink import Backoff

BACKOFF = Backoff()
chances = st.floats(0, 1, exclude_max=True)


@given(st.integers(0, 10**9), chances)
def test_a_delay_is_between_a_second_and_a_quarter_of_an_hour(failures: int, chance: float) -> None:
    assert 1 <= BACKOFF.delay(failures, chance) <= 900
    assert 30 <= BACKOFF.delay_denied(failures, chance) <= 900


@given(st.integers(1, 100), chances)
def test_the_bound_doubles_until_it_is_the_most(failures: int, chance: float) -> None:
    bound = min(900, 2.0**failures)
    assert BACKOFF.delay(failures, chance) == max(1, chance * bound)


def test_chance_spreads_a_fleet_over_the_whole_wait() -> None:
    assert [BACKOFF.delay(20, chance) for chance in (0.0, 0.25, 0.5)] == [1, 225, 450]


def test_a_gateway_that_is_not_known_begins_at_a_minute() -> None:
    assert [BACKOFF.delay_denied(n, 0.75) for n in (1, 2, 3, 9)] == [45, 90, 180, 675]


@given(st.floats(-10, 1e9), st.integers(1, 100), chances)
def test_what_the_centre_asks_for_is_kept_within_the_most(
    after: float, failures: int, chance: float
) -> None:
    delay = BACKOFF.delay_told(after, failures, chance)
    assert min(after, 900) <= delay <= 900
    assert delay >= 1


@pytest.mark.parametrize(
    "bounds",
    [{"least": 0}, {"least": 100}, {"denied": 1_000}, {"most": 10}, {"most": float("nan")}],
)
def test_bounds_that_are_not_in_order_are_refused(bounds: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="least <= denied <= most"):
        Backoff(**bounds)
