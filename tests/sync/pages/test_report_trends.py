"""The trends beside the figures: this period against the equally long one before."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from sync.pages import trends
from sync.pages.page import fleet_page
from sync.reports.shared.findings import Findings
from sync.reports.trends import FIGURES, Periods, periods_of
from tests.helpers.pages import checked, gateway_pages
from tests.helpers.sound_findings import GATEWAY, NOON, sound_findings

TODAY = NOON.date()
WEEK = TODAY - timedelta(days=6)
ROW: dict[str, Any] = {
    "gateway": "gw.example",
    "known_since": NOON - timedelta(days=30),
    "state_before": "running",
    **{f"{figure}{suffix}": 0 for figure in FIGURES for suffix in ("", "_before")},
    "judged_s": 1_000.0,
    "judged_s_before": 1_000.0,
    "running_s": 900.0,
    "running_s_before": 1_000.0,
}


def with_trends(*rows: dict[str, Any], since: date | None = WEEK, **tables: Any) -> Findings:
    return replace(sound_findings(trends=[ROW | row for row in rows], **tables), since=since)


def tiles(found: Findings) -> dict[str, tuple[str, str]]:
    tile = r'<li class="tile[^"]*"><b>([^<]*)</b><span>([^<]*)</span>(?:<small>([^<]*)</small>)?'
    matches = re.findall(tile, checked(fleet_page(found)))
    return {label: (number, trend) for number, label, trend in matches}


def test_periods_are_equally_long_and_follow_each_other() -> None:
    begin = datetime(2025, 11, 15, tzinfo=UTC).timestamp()
    length = 6.5 * 86_400
    assert periods_of(WEEK, NOON) == Periods(begin - length, begin)
    assert periods_of(None, NOON) is None
    assert periods_of(TODAY + timedelta(days=1), NOON) is None


def test_each_tile_has_its_trend() -> None:
    row = {"events": 1_120, "events_before": 1_000, "segments": 12, "segments_before": 10}
    row |= {"missing": 7, "missing_before": 2, "outages_before": 3}
    new = {"gateway": "new.example", "state_before": None}
    found = tiles(with_trends(row | {"state_before": "silent"}, new))
    assert found == {
        "gateways": ("1", "unchanged"),
        "running": ("1", "1 more"),
        "silent": ("0", "1 fewer"),
        "of the time running": ("100.00 %", "10 points less"),
        "outages": ("0", "3 fewer"),
        "events": ("20\u202f000", "12 % more"),
        "segments": ("10", "12 new, 10 before"),
        "missing events": ("0", "7 new, 2 before"),
        "missing without explanation": ("0", "unchanged"),
        "stored twice": ("0", "unchanged"),
        "contradicting segments": ("0", "unchanged"),
        "invalid files": ("0", "unchanged"),
    }


def test_a_page_without_a_period_explains_how_to_get_trends() -> None:
    found = with_trends(since=None)
    assert {trend for _, trend in tiles(found).values()} == {""}
    assert "with <code>--since 7d</code> the report compares" in fleet_page(found)


@pytest.mark.parametrize("known_since", [NOON - timedelta(days=12), None])
def test_an_uncovered_earlier_period_is_not_compared(known_since: datetime | None) -> None:
    found = with_trends({"known_since": known_since})
    assert {trend for _, trend in tiles(found).values()} == {"no comparison"}
    assert "No comparison: data is missing in the earlier period, from 2025-11-08" in fleet_page(
        found
    )
    assert {trend for _, trend in tiles(with_trends()).values()} == {"no comparison"}
    [own] = gateway_pages(found).values()
    assert "<small>no comparison</small>" in own


def test_a_new_gateway_is_not_compared_but_its_fleet_is() -> None:
    later = {"gateway": "new.example", "known_since": NOON, "outages": 4, "state_before": None}
    found = with_trends({"outages": 1}, later, availability=[GATEWAY | {"outages": 1}])
    page = checked(fleet_page(found))
    assert tiles(found)["outages"] == ("1", "5 more")
    assert "1 more</small></td>" in page
    assert "4 more</small></td>" not in page


def test_a_gateways_page_has_its_own_trends_in_its_time_zone() -> None:
    row = {"outages": 2, "events": 5, "events_before": 6, "state_before": "stopped"}
    found = with_trends(row, {"gateway": "b.example", "outages": 9})
    pages = gateway_pages(replace(found, zone=ZoneInfo("Europe/Berlin")))
    own = checked(pages["gw.example.html"])
    facts = dict(re.findall(r"<dt>([^<]*)</dt><dd>[^<]*<small>([^<]*)<", own))
    assert facts == {
        "State": "before: stopped",
        "Running": "10 points less",
        "Outages": "2 more",
        "Events received": "5 new, 6 before",
        "Events missing": "unchanged",
        "Events unexplained": "unchanged",
    }
    assert "from 2025-11-08 13:00:00 CET to 2025-11-15 01:00:00 CET" in own


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (trends.change(3, 3), "unchanged"),
        (trends.change(3, 0), "3 more"),
        (trends.change(1_000, 99), "901 more"),
        (trends.change(60, 100), "40 % fewer"),
        (trends.change(100_100, 100_000), "0.1 % more"),
        (trends.change(12_000_000, 100), "11\u202f999\u202f900 % more"),
        (trends.points(0.5, 0.25), "25 points more"),
        (trends.points(0.99999, 0.9999), "0.01 points more"),
        (trends.points(0.999999, 0.999998), "unchanged"),
        (trends.points(None, 0.5), "no comparison"),
        (trends.points(0.5, None), "no comparison"),
        (trends.new(0, 2_000), "0 new, 2\u202f000 before"),
    ],
)
def test_changes_are_described_in_words(text: str, expected: str) -> None:
    assert text == expected


def test_running_time_is_not_compared_without_judged_time() -> None:
    found = with_trends({"judged_s_before": 0.0, "running_s_before": 0.0})
    assert tiles(found)["of the time running"] == ("100.00 %", "no comparison")
