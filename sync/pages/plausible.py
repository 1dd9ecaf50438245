"""Remove values that only a wrong clock can have, for plots, problems and the overview."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from sync.reports.shared.column import Column
from sync.reports.shared.findings import Findings, Row
from sync.reports.shared.registry import REPORTS


def only_plausible(findings: Findings) -> Findings:
    """Return the findings with None in place of values that are not plausible."""
    tables = dict(findings.tables)
    for report in REPORTS:
        columns = [each for each in report.table.columns if each.is_limited]
        rows = findings[report.name]
        if columns and rows:
            tables[report.name] = [_plausible_row(row, columns, findings.as_of) for row in rows]
    return replace(findings, tables=tables)


def _plausible_row(row: Row, columns: Iterable[Column], as_of: datetime) -> Row:
    wrong = [each.name for each in columns if not each.is_plausible(row[each.name], as_of)]
    return row | dict.fromkeys(wrong) if wrong else row
