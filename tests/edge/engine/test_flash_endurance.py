"""For how long a card lasts: by its rating, or by what is assumed."""

from __future__ import annotations

import pytest

from edge.engine import flash_endurance

GB = 10**9


def test_a_rating_counts_and_without_one_the_size_does() -> None:
    assert flash_endurance.endurance(7, 32 * GB) == 7
    assert flash_endurance.endurance(0, 32 * GB) == 16_000 * GB


def test_the_rate_of_a_day_takes_an_hour_of_measuring() -> None:
    assert flash_endurance.bytes_per_day(GB, 3599) is None
    assert flash_endurance.bytes_per_day(GB, 43_200) == pytest.approx(2 * GB)


def test_years_are_what_is_left_of_the_rating_a_day() -> None:
    assert flash_endurance.lifetime_years(16_000 * GB, 4 * GB) == pytest.approx(10.96, abs=0.01)
    assert flash_endurance.lifetime_years(16_000 * GB, 0) is None
