from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edge.engine.rules import commit_delay

BUDGETS = st.integers(1, 10**12)
MOST = st.floats(0, 1)
PRESSURES = st.floats(0, 100)
RATES = st.floats(0, 10**9)


def wait(pressure: float, budget: int, most: float) -> float:
    return commit_delay.commit_wait(pressure * budget / commit_delay.DAY, budget, most)


@given(PRESSURES, BUDGETS, MOST)
def test_the_delay_is_zero_within_the_budget_and_maximal_at_twice_the_budget(
    pressure: float, budget: int, most: float
) -> None:
    found = wait(pressure, budget, most)
    assert 0 <= found <= most
    if pressure < 1:
        assert found == 0
    if pressure > commit_delay.FULL_DELAY:
        assert found == most


@given(PRESSURES, st.floats(0, 1), BUDGETS, MOST)
def test_the_delay_grows_continuously_with_the_rate(
    pressure: float, more: float, budget: int, most: float
) -> None:
    before, after = wait(pressure, budget, most), wait(pressure + more, budget, most)
    assert before <= after <= before + most * more / (commit_delay.FULL_DELAY - 1) + 1e-9


@given(RATES, MOST)
def test_without_a_budget_commits_are_not_delayed(rate: float, most: float) -> None:
    assert commit_delay.commit_wait(rate, 0, most) == 0


@given(RATES, RATES, st.floats(0, 10**6))
def test_the_average_lies_between_the_old_average_and_the_rate(
    average: float, rate: float, seconds: float
) -> None:
    found = commit_delay.updated_average(average, rate, seconds)
    low, high = min(average, rate), max(average, rate)
    slip = 1e-9 * (1 + high)  # rounding errors grow with the larger of the two
    assert low - slip <= found <= high + slip


@given(RATES, RATES, st.floats(0, 10**4), st.floats(0, 10**4))
def test_the_average_does_not_depend_on_the_sampling_interval(
    average: float, rate: float, first: float, second: float
) -> None:
    twice = commit_delay.updated_average(
        commit_delay.updated_average(average, rate, first), rate, second
    )
    once = commit_delay.updated_average(average, rate, first + second)
    assert abs(twice - once) <= 1e-6 * max(average, rate, 1.0)


@given(st.floats(0.1, 20), st.floats(1, 500))
def test_delay_and_rate_settle_at_an_equilibrium(load: float, units: float) -> None:
    """Each unit writes a page, and so does each commit: a delay joins commits and reduces what is
    written, by a factor that depends on the number of units a second."""
    most, budget = 0.05, 10**9
    full = load * budget / commit_delay.DAY  # bytes a second without a delay

    def written(delay: float) -> float:
        return full * (0.5 + 0.5 / (1 + units * delay))

    average, delays = 0.0, []
    for _minute in range(24 * 60):
        delay = commit_delay.commit_wait(average, budget, most)
        delays.append(delay)
        average = commit_delay.updated_average(average, written(delay), 60)
    last = delays[-60:]
    assert max(last) - min(last) < most * 0.01, "it does not oscillate"
    if load <= 1:
        assert max(delays) == 0
    if written(most) > commit_delay.FULL_DELAY * budget / commit_delay.DAY:
        assert last[-1] == most
