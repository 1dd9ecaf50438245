"""Times and durations on the pages: their time zone, and those that only a wrong clock can have."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from sync.pages import plots
from sync.pages.files import report_json, write_report
from sync.pages.overview import find_problems
from sync.pages.page import fleet_page
from sync.reports.shared import column, formats
from sync.reports.shared.plausible import LONGEST_S
from sync.reports.shared.window import Window
from sync.storage.local import LocalStorage
from tests.helpers.pages import checked, checked_gateway_pages
from tests.helpers.sample_findings import sample
from tests.helpers.sound_findings import BEGIN, DELIVERY, GATEWAY, NOON, sound_findings

BERLIN, SAO_PAULO = ZoneInfo("Europe/Berlin"), ZoneInfo("America/Sao_Paulo")
UNSET = datetime(2006, 1, 1, tzinfo=UTC)
YEARS_S = (NOON - UNSET).total_seconds()
FLEET = sample(8)
LAG = FLEET["lag"][0] | {"gateway": "gw.example"}


def cells(page: str, section: str) -> list[str]:
    part = page[page.index(f'<section id="{section}"') :]
    return re.findall(r"<td[^>]*>(?:<span[^>]*>)?([^<]*)<", part[: part.index("</section>")])


@pytest.mark.parametrize(
    ("zone", "time", "named"),
    [
        (UTC, "2025-11-21 12:00:00", "2025-11-21 12:00:00 UTC"),
        (BERLIN, *["2025-11-21 13:00:00 CET"] * 2),
        (SAO_PAULO, *["2025-11-21 09:00:00 UTC-03"] * 2),
    ],
)
def test_a_time_names_its_zone_unless_the_head_of_its_column_does(
    zone: Any, time: str, named: str
) -> None:
    assert formats.moment(NOON, zone) == time
    assert formats.named_moment(NOON, zone) == named
    seen_column = column.time("seen", "Seen")
    assert seen_column.head(zone) == ("Seen, UTC" if zone is UTC else "Seen")
    assert seen_column.show(NOON, NOON, zone) == time


def test_a_repeated_hour_has_two_zone_names() -> None:
    moments = [datetime(2025, 10, 26, hour, 30, tzinfo=UTC) for hour in (0, 1)]
    times = [formats.moment(each, BERLIN) for each in moments]
    assert times == ["2025-10-26 02:30:00 CEST", "2025-10-26 02:30:00 CET"]


def test_pages_show_times_of_the_chosen_zone_and_files_those_of_utc(tmp_path: Path) -> None:
    silent = GATEWAY | {"state": "silent"}
    found = replace(sound_findings(availability=[silent]), zone=BERLIN, since=NOON.date())
    write_report(found, LocalStorage(tmp_path))
    page = checked((tmp_path / "index.html").read_text())
    assert "As of 2025-11-21 13:00:00 CET, for the days since 2025-11-21." in page
    assert "Times are those of Europe/Berlin; days are UTC days." in page
    assert "Nothing has arrived since 2025-11-21 13:00:00 CET" in page
    assert "12:00:00" not in page
    assert "UTC<" not in page
    assert ">2025-11-21, Europe/Berlin<" in page
    own = checked((tmp_path / "gateways" / "gw.example.html").read_text())
    assert "2025-11-21 13:00:00 CET" in own
    assert "12:00:00" not in own
    document = json.loads((tmp_path / "report.json").read_text())
    assert document["time_zone"] == "Europe/Berlin"
    assert document["tables"]["availability"][0]["last_seen"] == "2025-11-21T12:00:00+00:00"
    assert "13:00:00" not in (tmp_path / "availability.csv").read_text()


def test_ticks_are_at_full_hours_of_the_zone_on_both_sides_of_a_change() -> None:
    begin = datetime(2025, 10, 25, 12, tzinfo=UTC).timestamp()
    row = {"gateway": "gw.example", "begin": begin, "end": begin + 86_400, "state": "running"}
    for zone in (BERLIN, ZoneInfo("Asia/Kathmandu")):
        svg = plots.running_plot([row], Window(begin, begin + 86_400), zone)
        times, days = (re.findall(rf">({form})<", svg) for form in (r"\d\d:\d\d", r"10-2\d"))
        assert (len(times) >= 1, days) == (True, ["10-26"])
        assert {time[-2:] for time in times} == {"00"}
        assert f"2025-10-25 to 2025-10-26, {zone}<" in svg


def test_the_lag_of_a_clock_that_was_never_set_is_unknown() -> None:
    wrong = LAG | {"clock": False} | {f"{name}_s": YEARS_S for name in ("p50", "p95", "p99", "max")}
    ahead = LAG | {"gateway": "a.example", "clock": False, "p50_s": -90_000.0, "p95_s": -3_600.0}
    page = checked(fleet_page(sound_findings(lag=[wrong, ahead])))
    assert cells(page, "lag")[2:6] == ["unknown"] * 4
    assert cells(page, "lag")[8:10] == ["unknown", "-1 h"]
    assert not re.search(r"\d{4} d", page)
    assert (
        json.loads(report_json(sound_findings(lag=[wrong])))["tables"]["lag"][0]["p50_s"] == YEARS_S
    )


def test_the_lag_of_a_wrong_synchronised_clock_is_not_drawn_or_reported() -> None:
    wrong = LAG | {f"{name}_s": YEARS_S for name in ("p50", "p95", "p99", "max")}
    page = checked(fleet_page(sound_findings(lag=[wrong])))
    assert "Upstream lag</title>" not in page
    assert find_problems(sound_findings(lag=[wrong])) == []


def test_a_gateway_with_an_unset_clock_was_seen_at_an_unknown_time() -> None:
    unset = GATEWAY | {"first_seen": UNSET, "last_seen": UNSET, "state": "silent"}
    found = sound_findings(availability=[unset])
    page = checked(fleet_page(found))
    assert cells(page, "gateways")[-2:] == ["unknown"] * 2
    assert "2006" not in page
    assert cells(page, "availability").count("unknown") == 2
    [own] = checked_gateway_pages(found)
    assert "<dt>Last seen</dt><dd>unknown</dd>" in own
    assert "<dt>Last arrival</dt><dd>2025-11-21 12:00:00 UTC</dd>" in own


@pytest.mark.parametrize(
    ("last_seen", "known"),
    [
        (NOON + timedelta(hours=3), True),  # a wrong time zone
        (NOON + timedelta(days=2), False),
        (NOON - timedelta(days=300), True),
    ],
)
def test_the_last_time_seen_is_shown_if_it_agrees_with_the_arrivals(
    last_seen: datetime, known: bool
) -> None:
    page = checked(fleet_page(sound_findings(availability=[GATEWAY | {"last_seen": last_seen}])))
    assert (cells(page, "gateways")[-2] != "unknown") is known


def test_a_clock_that_stopped_months_ago_is_contradicted_by_arrivals() -> None:
    later = NOON + timedelta(days=400)
    row = GATEWAY | {"last_arrival": later}
    page = checked(fleet_page(replace(sound_findings(availability=[row]), as_of=later)))
    assert cells(page, "gateways")[-2:] == ["unknown"] * 2


@pytest.mark.parametrize(
    ("table", "name", "value"),
    [
        ("delivery", "max_ms", int(YEARS_S * 1_000)),
        ("delivery", "p50_ms", -1),
        ("queues", "oldest_s", YEARS_S),
        ("queues", "longest_stuck_s", YEARS_S),
        ("sensors", "silence_s", YEARS_S),
        ("clocks", "drift_ppm", 1e6),
        ("clocks", "gain_ppm", -1e6),
        ("clocks", "worst_day_s", YEARS_S),
        ("versions", "per_day", None),
    ],
)
def test_absurd_values_are_unknown(table: str, name: str, value: float | None) -> None:
    row = (DELIVERY if table == "delivery" else FLEET[table][0]) | {name: value}
    found = replace(sound_findings(**{table: [row]}), as_of=FLEET.as_of)
    assert cells(checked(fleet_page(found)), table).count("unknown") == 1
    assert json.loads(report_json(found))["tables"][table][0][name] == value


def test_the_longest_plausible_duration_is_shown() -> None:
    age = column.age("silence_s", "Silent for")
    assert age.show(LONGEST_S, NOON) == "366 d"
    assert age.show(LONGEST_S + 1, NOON) == "unknown"
    assert age.show(None, NOON) == formats.ABSENT


def test_a_silence_since_an_unknown_time_has_no_duration() -> None:
    row = FLEET["sensors"][0] | {"state": "silent", "last": UNSET, "silence_s": YEARS_S}
    [problem] = find_problems(sound_findings(sensors=[row]))
    assert problem.what.startswith("Last reading at an unknown time. The sensor usually sends")
    assert plots.silence_plot([row | {"silence_s": None}]) == ""


def test_forecasts_beyond_a_year_are_not_counted_in_days() -> None:
    row = FLEET["growth"][0] | {"days_left": 9e6, "days_low": 300.5, "days_high": 1e300}
    page = checked(fleet_page(sound_findings(growth=[row])))
    assert cells(page, "growth")[1:4] == ["over 400 d", "300 d", "over 400 d"]
    assert "Days until storage is full" not in page
    soon = plots.forecast_plot([row | {"days_left": 350.0}, row])
    assert "1 gateway of 2 with a forecast" in soon
    assert "in 350 d (300 d to over 400 d)" in soon


def test_times_of_problems_of_an_unset_clock_are_unknown() -> None:
    assert sound_findings().moment(UNSET) == sound_findings().moment(None) == "an unknown time"
    assert replace(sound_findings(), zone=BERLIN).moment(NOON) == "2025-11-21 13:00:00 CET"


def test_activity_names_the_zone_of_its_peak() -> None:
    row = {"gateway": "gw", "begin": int(BEGIN), "lane": "logs", "step_s": 3600, "events": 5}
    assert "from 2025-11-21 13:00:00 CET." in plots.activity_plot([row], BERLIN)
