"""The files of a report: the HTML pages, a CSV and a JSON file for each table, and report.json.

CSV and JSON contain the values as they were computed; times are in ISO 8601, UTC. Every file is
replaced as a whole.
"""

from __future__ import annotations

import csv
import io
import json
from datetime import date
from pathlib import Path
from typing import Any, Final

from sync.common.durable_files import replace_file
from sync.pages.overview import find_problems, totals
from sync.pages.page import PAGES, fleet_page, gateway_pages
from sync.pages.plot_cache import read_plots
from sync.reports.shared import formats
from sync.reports.shared.column import Column
from sync.reports.shared.findings import Findings, Rows
from sync.reports.shared.registry import REPORTS
from sync.reports.shared.report import Table

VERSION: Final = 1
"""Version of report.json: it increases when a field changes its meaning or is removed."""

READABLE: Final = 0o644
"""The files' permissions, readable by all users: they contain no key and no message."""


def write_report(findings: Findings, folder: Path) -> Path:
    """Write all files of the report into `folder`, which is created; return the fleet's page.

    Pages of gateways that have no rows any more are left in place, without a link to them. Raises
    OSError if a file cannot be written.
    """
    (folder / PAGES).mkdir(parents=True, exist_ok=True)
    for report in REPORTS:
        _write(folder / f"{report.name}.csv", table_csv(report.table, findings[report.name]))
        _write(folder / f"{report.name}.json", _json(_scope(findings), rows=findings[report.name]))
    _write(folder / "report.json", report_json(findings))
    for name, page in gateway_pages(findings, lambda name: read_plots(folder / PAGES / name)):
        _write(folder / PAGES / name, page)
    index = folder / "index.html"
    _write(index, fleet_page(findings, read_plots(index)))
    return index


def report_document(findings: Findings) -> dict[str, Any]:
    """Return the content of report.json: the selection, totals, problems and all tables."""
    return _scope(findings) | {
        "time_zone": formats.zone_name(findings.zone),
        "days": findings.days,
        "totals": totals(findings),
        "problems": [problem._asdict() for problem in find_problems(findings)],
        "tables": {report.name: findings[report.name] for report in REPORTS},
    }


def report_json(findings: Findings) -> str:
    """Return report.json. Raises TypeError if a row has a value that JSON cannot express."""
    return _json(report_document(findings))


def _scope(findings: Findings) -> dict[str, Any]:
    """Return the fields of each JSON file that describe the report: version, time and selection."""
    return {
        "version": VERSION,
        "as_of": findings.as_of,
        "since": findings.since,
        "gateways": findings.gateways,
    }


def _json(document: dict[str, Any], **more: Any) -> str:
    return json.dumps(document | more, indent=1, sort_keys=True, default=_json_value) + "\n"


def table_csv(table: Table, rows: Rows) -> str:
    """Return a table as CSV, with a line of column names; flags are written as words."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow([column.name for column in table.columns])
    writer.writerows([_cell(each, row[each.name]) for each in table.columns] for row in rows)
    return target.getvalue()


def _cell(column: Column, value: Any) -> Any:
    if isinstance(value, bool):
        return column.write(value)
    return value.isoformat() if isinstance(value, date) else value


def _json_value(value: Any) -> str:
    if isinstance(value, date):
        return value.isoformat()
    msg = f"a report cannot contain a value of type {type(value).__name__}"
    raise TypeError(msg)


def _write(path: Path, text: str) -> None:
    replace_file(path, text.encode(), READABLE)
