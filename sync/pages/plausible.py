"""Remove values that only a wrong clock can have, for plots, problems and the overview."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sync.reports.shared.findings import Findings, Row
from sync.reports.shared.registry import REPORTS


def only_plausible(findings: Findings) -> Findings:
    """Return the findings with None in place of values that are not plausible."""
    tables = dict(findings.tables)
    for report in REPORTS:
        limits = [
            (each.name, *found)
            for each in report.table.columns
            if (found := each.limits_at(findings.as_of))
        ]
        rows = findings[report.name]
        if limits and rows:
            tables[report.name] = [_plausible_row(row, limits) for row in rows]
    return replace(findings, tables=tables)


def _plausible_row(row: Row, limits: Sequence[tuple[str, Any, Any]]) -> Row:
    # This runs for each value of each gateway several times: it calls nothing.
    wrong = [
        name
        for name, lowest, highest in limits
        if (value := row[name]) is not None and not lowest <= value <= highest
    ]
    return row | dict.fromkeys(wrong) if wrong else row
