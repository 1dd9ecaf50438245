"""The period that a plot shows: consecutive data up to now, whatever wrong clocks add."""

from __future__ import annotations

import pytest

from sync.reports.shared.window import window

DAY = 86_400.0
NOW = 20_000 * DAY


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(0, 0)], (0, 0)),  # in days relative to now
        ([(-3, -2), (-1, 0)], (-3, 0)),
        ([(-300, 0)], (-300, 0)),
        ([(-300, -299), (-298, 0)], (-300, 0)),
        ([(-7000, -6999), (-2, 0)], (-2, 0)),
        ([(-31.9, -31.5), (-2, 0)], (-31.9, 0)),  # a gap of less than a month
        ([(-32.6, -32.1), (-2, 0)], (-2, 0)),
        ([(-400, -399), (-300, -1)], (-400, -1)),  # a gap that is short for a year of data
        ([(-800, -700), (-90, 0)], (-90, 0)),
        ([(-2, 0), (7000, 7001)], (-2, 0)),
        ([(-2, 0), (0.5, 1)], (-2, 1)),
        ([(7000, 7001)], (7000, 7001)),  # nothing else exists
        ([(-50, -40), (-45, 0)], (-50, 0)),
    ],
)
def test_window(spans: list[tuple[float, float]], expected: tuple[float, float]) -> None:
    absolute = [(NOW + begin * DAY, NOW + end * DAY) for begin, end in spans]
    for order in (absolute, absolute[::-1]):
        assert window(order, NOW) == (NOW + expected[0] * DAY, NOW + expected[1] * DAY)


def test_window_bounds() -> None:
    assert window([], NOW) is None
    bounds = window([(1, 2)], NOW)
    assert bounds is not None
    assert bounds.contains(1, 2)
    assert not bounds.contains(0.9, 2)
    assert not bounds.contains(1, 2.1)
