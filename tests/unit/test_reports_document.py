"""What `docs/reports.md` says of columns and limits is what the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sync.central.decoding import MAX_DAYS
from sync.central.rendering.layout import LAYOUTS
from sync.central.rendering.summary import totals
from sync.central.reports import (
    availability,
    completeness,
    delivery,
    duplicates,
    lag,
    notices,
    outages,
    quarantine,
    volume,
)
from sync.central.reports.common import PATIENCE, SEAL_S
from sync.central.reports.gather import Findings
from sync.central.session import BATCH_FILES
from sync.central.summaries import DayCount
from sync.central.tables import SEGMENTS
from tests.helpers.small_tables import START

TEXT = (Path(__file__).parents[2] / "docs" / "reports.md").read_text(encoding="utf-8")

SCHEMAS = {
    "availability": availability.SCHEMA,
    "outages": outages.SCHEMA,
    "completeness": completeness.SCHEMA,
    "delivery": delivery.SCHEMA,
    "lag": lag.SCHEMA,
    "duplicates": duplicates.SCHEMA,
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
    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} <= known


def test_totals_and_limits_are_as_told() -> None:
    named = set(re.findall(r"`(\w+)`", TEXT))
    assert set(totals(Findings(as_of=START))) <= named
    assert set(SEGMENTS.fieldNames()[:7]) <= named
    assert f"{SEAL_S * PATIENCE:.0f} s" in TEXT
    assert f"{PATIENCE} times" in TEXT
    assert f"{BATCH_FILES:,} files" in TEXT
    assert f"{quarantine.ROWS:,} files" in TEXT
    assert f"last {outages.ROWS:,} of them" in TEXT
    assert f"at most {lag.RESOLUTION:.0%} above".replace("%", " %") in TEXT
    assert f"and {availability.SEALINGS} such times" in TEXT
    assert set(DayCount._fields) <= named
    assert f"more than {MAX_DAYS} days" in TEXT
