"""The options of `fieldpost-fleet report`."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import click
import pytest

from sync.cli.commands.report import command

OPTIONS = ["--dir", "none", "--out", "none"]


def option(name: str, *arguments: str) -> Any:
    return command.make_context("report", [*OPTIONS, *arguments]).params[name]


def since(text: str) -> date:
    parsed: date = option("since", "--since", text)
    return parsed


def test_since_is_a_day_or_a_number_of_days() -> None:
    assert since("2025-11-21") == date(2025, 11, 21)
    before = datetime.now(UTC).date()
    last_seven, today = since("7d"), since("1d")
    assert before <= today <= datetime.now(UTC).date()
    assert today - last_seven == timedelta(days=6)


def as_of(text: str) -> datetime:
    parsed: datetime = option("as_of", "--as-of", text)
    return parsed


def test_as_of_is_a_time_or_the_end_of_a_day() -> None:
    assert as_of("2025-11-21") == datetime(2025, 11, 21, 23, 59, 59, 999_999, UTC)
    assert as_of("2025-11-21T06:30") == datetime(2025, 11, 21, 6, 30, tzinfo=UTC)
    assert as_of("2025-11-21T06:30:00+02:00") == datetime(2025, 11, 21, 4, 30, tzinfo=UTC)
    before = datetime.now(UTC)
    assert before <= as_of(before.date().isoformat()) <= datetime.now(UTC)
    assert option("as_of") is None


@pytest.mark.parametrize(
    ("name", "values", "problem"),
    [
        ("--since", ["yesterday", "7", "99999999d", "2025-02-30", "0d", "-1d", ""],
         "neither a day"),
        ("--as-of", ["yesterday", "7d", "2025-02-30", "2025-11-21T25:00", ""], "neither a day"),
        ("--as-of", ["9000-01-01"], "in the future"),
        ("--cap", ["0"], "0"),
        ("--time-zone", ["Berlin", "", "Europe", "../UTC", "/etc/passwd", "x" * 500, "a\0"],
         "Europe/Berlin"),
    ],
)  # fmt: skip
def test_invalid_value_is_wrong_usage(name: str, values: list[str], problem: str) -> None:
    for value in values:
        with pytest.raises(click.BadParameter, match=problem):
            option("zone", name, value)


@pytest.mark.parametrize("order", [1, -1])
def test_days_end_with_the_day_of_as_of(order: int) -> None:
    options = [("--since", "7d"), ("--as-of", "2025-11-21T01:00")][::order]
    assert option("since", *options[0], *options[1]) == date(2025, 11, 15)


def test_the_time_zone_is_selected_by_name() -> None:
    assert option("zone") is option("zone", "--time-zone", "UTC") is UTC
    assert option("zone", "--time-zone", "Europe/Berlin") == ZoneInfo("Europe/Berlin")


def test_the_gateway_option_can_be_repeated() -> None:
    assert option("gateways", "--gateway", "a", "--gateway", "b") == ("a", "b")
    assert option("gateways") == ()
