"""Tests that the columns and limits in `docs/reference/reports.md` are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edge.features.eventlog.rules import levels as gateway_levels
from sync.ingest.decoding import MAX_DAYS
from sync.pages import overview, plots, sections
from sync.pages.overview import totals
from sync.reports import (
    anomalies,
    clocks,
    duplicates,
    growth,
    lag,
    outages,
    quarantine,
    refusals,
    sensors,
    sessions,
    versions,
)
from sync.reports.shared import events, frames, plausible, readings, thresholds
from sync.reports.shared.registry import PROBLEM_KINDS, REPORTS
from sync.reports.shared.report import Problem, Report
from sync.reports.shared.thresholds import MISSED_INTERVALS, SEAL_S
from sync.tables.spark_session import BATCH_FILES
from sync.tables.summaries import DayCount
from tests.helpers.sound_findings import findings

TEXT = (Path(__file__).parents[3] / "docs" / "reference" / "reports.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.name)
def test_every_report_is_listed(report: Report) -> None:
    assert re.search(rf"^\| .*`{report.name}`.* \| .+ \|$", TEXT, re.MULTILINE)


def test_the_document_names_only_columns_that_exist() -> None:
    known = {name for report in REPORTS for name in report.table.schema.fieldNames()}
    known |= {report.name for report in REPORTS} | {kind.name for kind in PROBLEM_KINDS}
    cells = [line.split("|")[1] for line in TEXT.splitlines() if line.startswith("| `")]
    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} <= known | {"kind"}


def test_titles_and_names_are_unique() -> None:
    for values in ([each.name for each in REPORTS], [each.table.title for each in REPORTS]):
        assert len(set(values)) == len(values)


def test_kinds_of_problems_and_sizes_of_pages_are_documented() -> None:
    table = TEXT[TEXT.index("| `kind` |") :].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \| (.+) \|$", table, re.MULTILINE)[1:] == [
        (kind.name, kind.headline) for kind in PROBLEM_KINDS
    ]
    assert all(f"`{name}`" in TEXT for name in Problem._fields)
    for number in (
        *(overview.SHOWN, sections.FLEET_ROWS, sections.GATEWAY_ROWS, plots.ROWS, plots.GATEWAYS),
        *(duplicates.MANY_OFFERS, f"{lag.BACKLOG_S:,.0f}"),
    ):
        assert re.search(rf"\b{number}\b", TEXT), number


def test_totals_and_counts_of_days_are_documented() -> None:
    named = set(re.findall(r"`(\w+)`", TEXT))
    assert {*totals(findings()), *DayCount._fields} <= named


def section(title: str) -> str:
    return re.split(r"^#+ ", TEXT.split(f"# {title}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]


NUMBERS: dict[str, tuple[float | str, ...]] = {
    "How to read it": (
        *(plausible.LONGEST_S / 86_400, plausible.EARLIEST.year, thresholds.FORECAST_D),
        f"{clocks.PLAUSIBLE_PPM[1]:,.0f}",
    ),
    "How each event is counted once": (MAX_DAYS, f"{BATCH_FILES:,}"),
    "Availability": (SEAL_S * MISSED_INTERVALS, MISSED_INTERVALS, thresholds.MIN_SEALINGS),
    "Outages": (f"{outages.ROWS:,}",),
    "Delivery and upstream lag": (f"{lag.RESOLUTION:.0%}".replace("%", " %"),),
    "Queues": (thresholds.STUCK_S / 60,),
    "Refusals": (
        *(refusals.NAMED, f"{refusals.ROWS:,}"),
        *(thresholds.SURGE_MIN, thresholds.SURGE_FACTOR),
    ),
    "Silent sensors": (
        *(thresholds.SILENT_INTERVALS, thresholds.MIN_SILENCE_S, thresholds.MIN_INTERVAL_S),
        *(thresholds.MIN_INTERVALS, thresholds.BACKLOG_S, f"{readings.ROWS:,}"),
        f"{2 ** (1 / sensors.STEPS) - 1:.0%}".replace("%", " %"),
    ),
    "Clocks": (
        *(clocks.BIG_STEP_S, clocks.ODD_STEPS, clocks.SETTLE_S / 60, clocks.DRIFT_PPM),
        *(clocks.AHEAD_S, clocks.BEHIND_S, clocks.RECENT_S / 3600, clocks.APART_H),
    ),
    "Versions": (versions.GATEWAY_VERSIONS, versions.MIN_ERRORS, versions.SIGMAS),
    "Completeness": (f"{frames.GATEWAY_ROWS:,}",),
    "Anomalies": (
        *(anomalies.FLAT_READINGS, anomalies.FLAT_S / 3600, anomalies.MIN_COMPARED),
        *(anomalies.WINDOW_D, anomalies.UNUSUAL_Z, anomalies.MIN_DAYS, anomalies.MIN_HOURS),
        *(anomalies.MIN_TYPE, f"{anomalies.RARE:.0%}".replace("%", " %")),
    ),
    "Sessions": (sessions.NAMED, *sessions.LOST),
    "Growth": (
        *(growth.EVICTED_H, growth.SOON_D, growth.TREND_D, growth.MIN_POINTS),
        f"{growth.DEFAULT_CAP:,}",
    ),
    "Totals and quarantine": (f"{quarantine.ROWS:,}",),
}
"""The limits and thresholds that each section names."""


@pytest.mark.parametrize("title", NUMBERS)
def test_limits_and_thresholds_are_those_of_the_code(title: str) -> None:
    text = section(title)
    for number in NUMBERS[title]:
        written = number if isinstance(number, str) else f"{number:g}"
        assert re.search(rf"(?<![\d.,]){re.escape(written)}(?![\d,])", text), (title, written)


def test_pictures_are_small_and_linked() -> None:
    docs = Path(__file__).parents[3] / "docs"
    readme = (docs.parent / "README.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\((?:docs/|\.\./)?images/([\w-]+\.png)\)", TEXT + readme))
    pictures = {picture.name: picture.stat().st_size for picture in (docs / "images").iterdir()}
    assert set(pictures) == linked
    assert max(pictures.values()) < 200_000


def test_reports_know_the_levels_of_the_gateway() -> None:
    assert events.LEVELS == gateway_levels.LEVELS
