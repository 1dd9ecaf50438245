"""Tests of the rules that estimate the lifetime of a flash card."""

from __future__ import annotations

import pytest

from edge.engine import flash_endurance

GB = 10**9


def test_endurance_is_the_rating_or_else_derived_from_the_size() -> None:
    assert flash_endurance.endurance(7, 32 * GB) == 7
    assert flash_endurance.endurance(0, 32 * GB) == 16_000 * GB


def test_bytes_per_day_need_an_hour_of_measuring() -> None:
    assert flash_endurance.bytes_per_day(GB, 3599) is None
    assert flash_endurance.bytes_per_day(GB, 43_200) == pytest.approx(2 * GB)


def test_lifetime_is_endurance_divided_by_the_yearly_rate() -> None:
    assert flash_endurance.lifetime_years(16_000 * GB, 4 * GB) == pytest.approx(10.96, abs=0.01)
    assert flash_endurance.lifetime_years(16_000 * GB, 0) is None
