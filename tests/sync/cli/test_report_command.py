"""The options of `fieldpost-fleet report`."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import click
import pytest

from sync.cli.commands.report import command

OPTIONS = ["--dir", "none", "--out", "none"]


def since(told: str) -> date | None:
    context = command.make_context("report", [*OPTIONS, "--since", told])
    found: date | None = context.params["since"]
    return found


def test_since_is_a_day_or_a_number_of_days() -> None:
    assert since("2025-11-21") == date(2025, 11, 21)
    before = datetime.now(UTC).date()
    last_seven, today = since("7d"), since("1d")
    assert last_seven is not None
    assert today is not None
    assert before <= today <= datetime.now(UTC).date()
    assert today - last_seven == timedelta(days=6)


def as_of(told: str) -> datetime:
    context = command.make_context("report", [*OPTIONS, "--as-of", told])
    found: datetime = context.params["as_of"]
    return found


def test_as_of_is_a_time_or_the_end_of_a_day() -> None:
    assert as_of("2025-11-21") == datetime(2025, 11, 21, 23, 59, 59, 999_999, UTC)
    assert as_of("2025-11-21T06:30") == datetime(2025, 11, 21, 6, 30, tzinfo=UTC)
    assert as_of("2025-11-21T06:30:00+02:00") == datetime(2025, 11, 21, 4, 30, tzinfo=UTC)
    before = datetime.now(UTC)
    assert before <= as_of(before.date().isoformat()) <= datetime.now(UTC)
    assert command.make_context("report", list(OPTIONS)).params["as_of"] is None


@pytest.mark.parametrize(
    ("option", "values", "problem"),
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
def test_invalid_value_is_wrong_usage(option: str, values: list[str], problem: str) -> None:
    for value in values:
        with pytest.raises(click.BadParameter, match=problem):
            command.make_context("report", [*OPTIONS, option, value])


@pytest.mark.parametrize("order", [1, -1])
def test_days_end_with_the_day_of_as_of(order: int) -> None:
    options = [("--since", "7d"), ("--as-of", "2025-11-21T01:00")][::order]
    context = command.make_context(
        "report", [*OPTIONS, *(word for pair in options for word in pair)]
    )
    assert context.params["since"] == date(2025, 11, 15)


def test_times_are_of_a_time_zone_by_its_name() -> None:
    def zone(*options: str) -> object:
        return command.make_context("report", [*OPTIONS, *options]).params["zone"]

    assert zone() is zone("--time-zone", "UTC") is UTC
    assert zone("--time-zone", "Europe/Berlin") == ZoneInfo("Europe/Berlin")


def test_several_gateways_or_all() -> None:
    context = command.make_context("report", [*OPTIONS, "--gateway", "a", "--gateway", "b"])
    assert context.params["gateways"] == ("a", "b")
    assert command.make_context("report", list(OPTIONS)).params["gateways"] == ()
