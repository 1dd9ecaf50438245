"""Which time is shown: what is together up to now, whatever wrong clocks say beside it."""

from __future__ import annotations

import pytest

from sync.reports.shared.window import AHEAD_S, GAP_S, window

DAY = 86_400.0
NOW = 20_000 * DAY


@pytest.mark.parametrize(
    ("spans", "shown"),
    [
        ([(0, 0)], (0, 0)),  # days before now
        ([(-3, -2), (-1, 0)], (-3, 0)),
        ([(-300, 0)], (-300, 0)),
        ([(-300, -299), (-298, 0)], (-300, 0)),
        ([(-7000, -6999), (-2, 0)], (-2, 0)),
        ([(-31.9, -31.5), (-2, 0)], (-31.9, 0)),  # less than a month apart
        ([(-32.6, -32.1), (-2, 0)], (-2, 0)),
        ([(-400, -399), (-300, -1)], (-400, -1)),  # a month of a year
        ([(-800, -700), (-90, 0)], (-90, 0)),
        ([(-2, 0), (7000, 7001)], (-2, 0)),
        ([(-2, 0), (0.5, 1)], (-2, 1)),
        ([(7000, 7001)], (7000, 7001)),  # nothing else is there
        ([(-50, -40), (-45, 0)], (-50, 0)),
    ],
)
def test_what_is_together_is_shown(
    spans: list[tuple[float, float]], shown: tuple[float, float]
) -> None:
    moved = [(NOW + begin * DAY, NOW + end * DAY) for begin, end in spans]
    for order in (moved, moved[::-1]):
        assert window(order, NOW) == (NOW + shown[0] * DAY, NOW + shown[1] * DAY)
    assert (AHEAD_S, GAP_S) == (DAY, 30 * DAY)


def test_of_nothing_there_is_no_window() -> None:
    with pytest.raises(ValueError, match="nothing to show"):
        window([], NOW)
    assert window([(1, 2)], NOW).has(1, 2)
    assert not window([(1, 2)], NOW).has(0.9, 2)
    assert not window([(1, 2)], NOW).has(1, 2.1)
