"""What `docs/reference/reports.md` says of columns and limits is what the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sync.pages.layout import LAYOUTS
from sync.pages.summary import totals

from sync.ingest.decoding import MAX_DAYS
from sync.pages import (
    overview,
    plots,
    plots_time,
    problems_lanes,
    problems_work,
    sections,
)
from sync.reports import (
    anomalies,
    availability,
    clocks,
    completeness,
    delivery,
    duplicates,
    growth,
    lag,
    notices,
    odd_hours,
    outages,
    quarantine,
    queues,
    refusals,
    sensors,
    versions,
    volume,
)
from sync.reports.shared import readings, thresholds
from sync.reports.shared.collect import Findings
from sync.reports.shared.problem import KINDS, Problem
from sync.reports.shared.thresholds import MISSED_INTERVALS, SEAL_S
from sync.tables.spark_session import BATCH_FILES
from sync.tables.summaries import DayCount
from sync.tables.tables import SEGMENTS
from tests.helpers.small_tables import START

TEXT = (Path(__file__).parents[2] / "docs" / "reference" / "reports.md").read_text(encoding="utf-8")

SCHEMAS = {
    "availability": availability.SCHEMA,
    "outages": outages.SCHEMA,
    "completeness": completeness.SCHEMA,
    "delivery": delivery.SCHEMA,
    "lag": lag.SCHEMA,
    "duplicates": duplicates.SCHEMA,
    "queues": queues.SCHEMA,
    "refusals": refusals.SCHEMA,
    "sensors": sensors.SCHEMA,
    "anomalies": anomalies.SCHEMA,
    "clocks": clocks.SCHEMA,
    "versions": versions.SCHEMA,
    "growth": growth.SCHEMA,
    "notices": notices.SCHEMA,
    "totals": volume.TOTALS,
    "quarantine": quarantine.SCHEMA,
}


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_every_column_is_shown_and_told_of(layout: object) -> None:
    [known] = [each for each in LAYOUTS if each is layout]
    names = set(SCHEMAS[known.name].fieldNames())
    assert {column.name for column in known.columns} == names
    assert names <= set(re.findall(r"`(\w+)`", TEXT))


def test_the_document_names_no_column_that_is_not_there() -> None:
    known = {name for schema in SCHEMAS.values() for name in schema.fieldNames()}
    cells = [line.split("|")[1] for line in TEXT.splitlines() if line.startswith("| `")]
    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} <= known | set(KINDS)


def test_kinds_of_problems_and_what_a_page_has_room_for_are_as_told() -> None:
    table = TEXT[TEXT.index("| `kind` | what it says |") :].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \| (.+) \|$", table, re.MULTILINE) == [
        ("kind", "what it says"),
        *KINDS.items(),
    ]
    assert all(f"`{name}`" in TEXT for name in Problem._fields)
    assert f"{overview.SHOWN} are shown" in TEXT
    assert (
        f"{sections.FLEET_ROWS} rows on the fleet's page and {sections.GATEWAY_ROWS} on a" in TEXT
    )
    assert f"from {problems_work.REPEATS} repeated offers on" in TEXT
    assert f"more than {problems_lanes.BACKLOG_S:,.0f} s" in TEXT
    assert f"the worst {plots.ROWS} ({plots_time.GATEWAYS} gateways" in TEXT


def test_totals_and_limits_are_as_told() -> None:
    named = set(re.findall(r"`(\w+)`", TEXT))
    assert set(totals(Findings(as_of=START))) <= named
    assert set(SEGMENTS.fieldNames()[:7]) <= named
    assert f"{SEAL_S * MISSED_INTERVALS:.0f} s" in TEXT
    assert f"{MISSED_INTERVALS} times" in TEXT
    assert f"{BATCH_FILES:,} files" in TEXT
    assert f"{quarantine.ROWS:,} files" in TEXT
    assert f"last {outages.ROWS:,} of them" in TEXT
    assert f"at most {lag.RESOLUTION:.0%} above".replace("%", " %") in TEXT
    assert f"and {thresholds.MIN_SEALINGS} such times" in TEXT
    assert set(DayCount._fields) <= named
    assert f"more than {MAX_DAYS} days" in TEXT


def test_what_the_reports_judge_by_is_as_told() -> None:
    told = " ".join(TEXT.split())
    for words in (
        f"for {thresholds.STUCK_S / 60:.0f} minutes or longer",
        f"those with most, {refusals.NAMED} at most",
        f"at least {thresholds.SURGE_MIN} and more than {thresholds.SURGE_FACTOR:.0f} times",
        f"The {refusals.ROWS:,} sources",
        f"{thresholds.SILENT_INTERVALS:.0f} times `interval_s`, but at least {thresholds.MIN_SILENCE_S:.0f} s",
        f"{thresholds.MIN_INTERVAL_S:.0f} s or more apart; empty while fewer than {thresholds.MIN_INTERVALS}",
        f"sealed more than {thresholds.BACKLOG_S:.0f} s before",
        f"classes {2 ** (1 / sensors.STEPS) - 1:.0%} wide".replace("%", " %"),
        f"{readings.ROWS:,} sensors are told at most",
        f"by {clocks.BIG_STEP_S:.0f} s or more, or {clocks.ODD_STEPS} times by less",
        f"within {clocks.SETTLE_S / 60:.0f} minutes",
        f"by more than {clocks.DRIFT_PPM:.0f} ppm",
        f"more than {clocks.AHEAD_S:.0f} s ahead, or {clocks.BEHIND_S:.0f} s behind",
        f"Of its last {clocks.RECENT_S / 3600:.0f} hours",
        f"over {clocks.APART_H} hours each",
        f"at least {versions.LEAST} errors",
        f"{versions.SIGMAS:.0f} standard deviations",
        f"{anomalies.FLAT_READINGS} readings and {anomalies.FLAT_S / 3600:.0f} hours at least",
        f"other hours ({anomalies.COMPARED} or more)",
        f"The last {anomalies.WINDOW_D} days",
        f"more than {odd_hours.Z:.0f} robust standard deviations",
        f"once there are {odd_hours.DAYS};",
        f"once there are {odd_hours.HOURS};",
        f"{odd_hours.CROWD} or more and not more than {odd_hours.RARE:.0%}".replace("%", " %"),
        f"in its last {growth.EVICTED_H:.0f} hours",
        f"less than {growth.SOON_D:.0f} days away",
        f"of the last {growth.TREND_D:.0f} days; {growth.POINTS} such sizes",
        f"`default` of its option `database_bytes`, {growth.CAP:,}",
    ):
        assert words in told


def test_pictures_are_small_and_each_is_shown() -> None:
    docs = Path(__file__).parents[2] / "docs"
    readme = (docs.parent / "README.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"\((?:docs/|\.\./)?images/([\w-]+\.png)\)", TEXT + readme))
    pictures = {picture.name: picture.stat().st_size for picture in (docs / "images").iterdir()}
    assert set(pictures) == shown
    assert max(pictures.values()) < 200_000
