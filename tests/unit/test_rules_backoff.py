"""The wait before the next try: within its bounds, spread by chance, doubled by each failure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync.common.backoff import delay

JUST_BELOW_ONE = 1 - 2**-53


@pytest.mark.parametrize(
    ("failures", "longest"), [(0, 1), (1, 2), (2, 4), (3, 8), (5, 32), (6, 60), (1000, 60)]
)
def test_the_longest_wait_doubles_up_to_its_bound(failures: int, longest: float) -> None:
    assert delay(failures, JUST_BELOW_ONE, 1.0, 60.0) == pytest.approx(longest)


def test_the_least_is_waited_whatever_chance_says() -> None:
    assert delay(4, 0.0, 1.0, 60.0) == 1.0


@given(st.integers(-3, 10**6), st.floats(0, 1, exclude_max=True))
def test_it_never_leaves_its_bounds(failures: int, chance: float) -> None:
    assert 1.0 <= delay(failures, chance, 1.0, 60.0) <= 60.0
