"""What part of all there is `fieldpost-fleet report` is asked for, by its options."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import click
import pytest

from sync.central.commands.report import command

OPTIONS = ["--dir", "none", "--out", "none"]


def since(told: str) -> date | None:
    context = command.make_context("report", [*OPTIONS, "--since", told])
    found: date | None = context.params["since"]
    return found


def test_a_range_begins_at_a_day_or_is_a_number_of_days() -> None:
    assert since("2025-11-21") == date(2025, 11, 21)
    before = datetime.now(UTC).date()
    last_seven, today = since("7d"), since("1d")
    assert last_seven is not None
    assert today is not None
    assert before <= today <= datetime.now(UTC).date()
    assert today - last_seven == timedelta(days=6)


@pytest.mark.parametrize("told", ["yesterday", "7", "99999999d", "2025-02-30", "0d", "-1d", ""])
def test_what_is_no_range_is_wrong_usage(told: str) -> None:
    with pytest.raises(click.BadParameter, match="neither a day"):
        since(told)


def test_gateways_may_be_several_and_none_is_all() -> None:
    context = command.make_context("report", [*OPTIONS, "--gateway", "a", "--gateway", "b"])
    assert context.params["gateways"] == ("a", "b")
    assert command.make_context("report", list(OPTIONS)).params["gateways"] == ()
