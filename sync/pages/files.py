"""The files of a report: the HTML pages, a CSV and a JSON file for each table, and JSON of it all.

CSV and JSON contain the values as they were computed; times are in ISO 8601, UTC. Every file is
replaced as a whole.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, Final

from sync.common.errors import FleetError
from sync.common.progress import Progress, no_progress
from sync.common.text import os_error, size
from sync.pages.overview import find_problems, totals
from sync.pages.page import (
    PAGES,
    check_templates,
    fleet_page,
    gateway_page,
    list_pages,
    page_name,
    with_page,
)
from sync.pages.plot_cache import read_plots
from sync.pages.table_csv import table_csv
from sync.reports.shared import formats
from sync.reports.shared.by_gateway import SpreadRows, by_gateway
from sync.reports.shared.findings import Findings
from sync.reports.shared.registry import REPORTS
from sync.storage.local import LocalStorage
from sync.storage.storage import Storage, check_writable

VERSION: Final = 1
"""Version of report.json: it increases when a field changes its meaning or is removed."""

SUMMARY: Final = "summary.json"
"""The file with what report.json has without its tables."""

INDEX: Final = "index.html"
"""The file of the fleet's page."""

MIN_FREE: Final = 32 * 1024 * 1024
"""Bytes of free disk space that `prepare_report` requires: the files of some hundred gateways."""

_DRAWING: Final = "drawing pages of gateways"


def prepare_report(out: Storage) -> None:
    """Check that `write_report` can write into `out`, and create its folders on a local disk.

    Call it before a report is computed, which takes minutes. Raises FleetError if `out` cannot be
    written, a file of the report cannot be replaced, the disk is almost full, or a template of the
    pages cannot be read.
    """
    try:
        check_writable(out, "", PAGES)
        check_templates()
        if isinstance(out, LocalStorage):
            _check_disk(out.root)
    except OSError as error:
        msg = f"cannot write the report into {out.uri()}: {os_error(error)}; choose another --out"
        raise FleetError(msg) from error


def _check_disk(folder: Path) -> None:
    names = [f"{report.name}.{suffix}" for report in REPORTS for suffix in ("csv", "json")]
    for name in (INDEX, "report.json", SUMMARY, *names):
        if (folder / name).is_dir():
            msg = f"{folder / name} is a folder, but the report needs a file there; remove it"
            raise FleetError(msg)
    free = shutil.disk_usage(folder).free
    if free < MIN_FREE:
        raise FleetError(
            f"the disk of {folder} has {size(free)} free, and a report needs {size(MIN_FREE)}; "
            "make room"
        )


def write_report(
    findings: Findings,
    out: Storage,
    *,
    formulas: bool = False,
    only_problems: bool = False,
    progress: Progress = no_progress,
) -> None:
    """Write all files of the report into `out`; the fleet's page is `INDEX`.

    `formulas` is that of `table_csv`. With `only_problems`, only gateways with problems get a page.
    Pages of earlier reports that this one does not have are left in place, without a link to
    them. If `findings` has `is_of_fleet`, `draw_pages` has written the gateways' pages. Raises
    OSError if a file cannot be written.
    """

    def write(path: str, text: str) -> None:
        out.replace(path, text.encode())

    for report in REPORTS:
        table = table_csv(report.table, findings[report.name], formulas=formulas)
        write(f"{report.name}.csv", table)
        write(f"{report.name}.json", _json(_scope(findings), rows=findings[report.name]))
    document = report_document(findings)
    write("report.json", _json(document))
    del document["tables"]
    write(SUMMARY, _json(document))
    if not findings.is_of_fleet:
        each, gateways = by_gateway(findings), with_page(findings, only_problems=only_problems)
        for number, gateway in enumerate(gateways):
            progress(_DRAWING, number, len(gateways))
            _write_page(out, gateways, gateway, each[gateway])
    for name, page in list_pages(findings, only_problems=only_problems):
        write(name, page)
    write(INDEX, fleet_page(findings, read_plots(out, INDEX), only_problems=only_problems))


def draw_pages(
    findings: Findings,
    rows: SpreadRows,
    out: Storage,
    *,
    only_problems: bool = False,
    progress: Progress = no_progress,
) -> None:
    """Write the pages of a large fleet's gateways into `out` by Spark's tasks.

    They are those that `write_report` writes for a small one. A page that a task writes again is
    replaced by the same bytes. Raises PySparkException if a page cannot be written.
    """
    gateways = with_page(findings, only_problems=only_problems)
    progress(_DRAWING, 0, len(gateways))
    if gateways:
        rows.for_each(findings, gateways, partial(_write_page, out, gateways))


def _write_page(out: Storage, gateways: Sequence[str], gateway: str, own: Findings) -> None:
    path = f"{PAGES}/{page_name(gateway)}"
    out.replace(path, gateway_page(own, gateway, gateways, read_plots(out, path)).encode())


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


def _json_value(value: Any) -> str:
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"a report cannot contain a value of type {type(value).__name__}")
