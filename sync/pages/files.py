"""The report for programs: a CSV for each table, and one JSON with all of them.

Values are as the reports give them, not as people read them; times are ISO 8601, UTC.
"""

from __future__ import annotations

import csv
import io
import json
from datetime import date
from typing import Any, Final

from sync.pages.column import Column, Layout
from sync.pages.layout import LAYOUTS, rows_of
from sync.pages.summary import problems, totals
from sync.reports.gather import Findings

VERSION: Final = 1
"""Version of `report.json`: raised when a name in it changes its meaning or goes."""


def report_document(found: Findings) -> dict[str, Any]:
    """Give what `report.json` holds: of what it tells, totals, problems, every table's rows."""
    return {
        "version": VERSION,
        "as_of": found.as_of,
        "since": found.since,
        "gateways": found.gateways,
        "days": found.days,
        "totals": totals(found),
        "problems": [problem._asdict() for problem in problems(found)],
        "tables": {layout.name: rows_of(found, layout.name) for layout in LAYOUTS},
    }


def report_json(found: Findings) -> str:
    """Write `report.json`. Raises TypeError where a row holds what JSON cannot."""
    return json.dumps(report_document(found), indent=1, sort_keys=True, default=_json) + "\n"


def table_csv(layout: Layout, rows: list[dict[str, Any]]) -> str:
    """Write a table with its columns' names and plain values; times in ISO 8601, UTC.

    A state that is true or false is written in the page's words.
    """
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow([column.name for column in layout.columns])
    writer.writerows([_cell(each, row[each.name]) for each in layout.columns] for row in rows)
    return target.getvalue()


def _cell(column: Column, value: Any) -> Any:
    if isinstance(value, bool):
        return column.write(value)
    return value.isoformat() if isinstance(value, date) else value


def _json(value: Any) -> str:
    if isinstance(value, date):
        return value.isoformat()
    msg = f"{type(value).__name__} has no place in a report"
    raise TypeError(msg)
