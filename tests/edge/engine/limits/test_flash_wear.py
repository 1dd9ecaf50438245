from __future__ import annotations

from functools import partial

import pytest

from edge.engine.limits import flash_wear
from edge.engine.limits.flash_wear import DailyWear, WriteCounts
from edge.engine.rules.service_time import DAY_MS
from tests.helpers.store import WALL, Gateway

CAP = 1_000_000
COUNTS = WriteCounts(60.0, 4096 * 3, 2, 1)
TODAY = (WALL + 1_000_000) // DAY_MS


def add(gateway: Gateway, days: int = 0) -> None:
    """Count writes so many days after today."""
    gateway.clock.wall_offset = days * DAY_MS
    gateway.tx(lambda tx: flash_wear.add(tx, COUNTS, CAP))


def logged_days(gateway: Gateway) -> list[tuple[str, float | None]]:
    return [(row.tags["day"], row.value) for row in gateway.events("system", "wear")]


def test_counts_of_a_day_add_up(gateway: Gateway) -> None:
    for _ in range(3):
        add(gateway)
    assert gateway.tx(partial(flash_wear.recent_days, count=9)) == [
        DailyWear(TODAY, 180.0, 36_864, 6, 3)
    ]
    assert logged_days(gateway) == []


def test_a_finished_day_is_logged_once(gateway: Gateway) -> None:
    for day in (0, 0, 1, 1, 2):
        add(gateway, day)
    assert logged_days(gateway) == [("2025-10-09", 24_576.0), ("2025-10-10", 24_576.0)]
    (first, _) = gateway.events("system", "wear")
    assert (first.kind, first.unit) == ("system", "B")
    assert first.tags == {
        "day": "2025-10-09", "seconds": "120", "pages": "4", "commits": "2", "cap": "1000000",
    }  # fmt: skip


def test_days_without_writes_are_not_logged(gateway: Gateway) -> None:
    add(gateway)
    add(gateway, 5)
    assert logged_days(gateway) == [("2025-10-09", 12_288.0)]


def test_a_clock_set_back_neither_repeats_nor_suppresses_a_day(gateway: Gateway) -> None:
    for day in (0, 1, 4000, 1):
        add(gateway, day)
    assert [day for day, _ in logged_days(gateway)] == ["2025-10-09", "2025-10-10"]
    add(gateway, 2)
    assert [day for day, _ in logged_days(gateway)] == ["2025-10-09", "2025-10-10", "2025-10-10"], (
        "more was written on that day since"
    )


def test_a_limited_number_of_days_is_kept(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flash_wear, "KEPT_DAYS", 3)
    for day in range(6):
        add(gateway, day)
    rows = gateway.tx(partial(flash_wear.recent_days, count=9))
    assert [row.day - TODAY for row in rows] == [5, 4, 3]
