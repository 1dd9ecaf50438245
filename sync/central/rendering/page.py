"""Writes the report: one page that needs nothing else, a CSV for each table, and one JSON.

Every file is replaced whole. Computes nothing but text.
"""

from __future__ import annotations

import csv
import io
import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from sync.central.durable import write_whole
from sync.central.rendering import words
from sync.central.rendering.layout import LAYOUTS, Column, Layout
from sync.central.rendering.plots import activity_plot, latency_plot, running_plot
from sync.central.rendering.summary import MAX_PROBLEMS, problems, totals, verdict

if TYPE_CHECKING:
    from sync.central.reports.gather import Findings

VERSION: Final = 1
"""Version of `report.json`: raised when a name in it changes its meaning or goes."""

READABLE: Final = 0o644
"""A report is for others to read: it holds names and figures, no key and no message."""


def write_report(found: Findings, folder: Path) -> Path:
    """Write all files of the report into `folder`, made when missing; gives the page's path.

    Raises OSError when the disk refuses.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for layout in LAYOUTS:
        text = table_csv(layout, getattr(found, layout.name))
        write_whole(folder / f"{layout.name}.csv", text.encode(), READABLE)
    document = json.dumps(report_document(found), indent=1, sort_keys=True, default=_json)
    write_whole(folder / "report.json", document.encode() + b"\n", READABLE)
    page = folder / "index.html"
    write_whole(page, render_page(found).encode(), READABLE)
    return page


def report_document(found: Findings) -> dict[str, Any]:
    """Give what `report.json` holds: the totals, the problems, and the rows of every table."""
    return {
        "version": VERSION,
        "as_of": found.as_of,
        "totals": totals(found),
        "problems": [problem._asdict() for problem in problems(found)],
        "tables": {layout.name: getattr(found, layout.name) for layout in LAYOUTS},
    }


def table_csv(layout: Layout, rows: list[dict[str, Any]]) -> str:
    """Write a table with its columns' names and plain values; times in ISO 8601, UTC.

    A state that is true or false is written in the page's words.
    """
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow([column.name for column in layout.columns])
    writer.writerows([_cell(each, row[each.name]) for each in layout.columns] for row in rows)
    return target.getvalue()


def render_page(found: Findings) -> str:
    """Write the page: what is wrong first, then the plots and the tables."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    told = problems(found)
    sums = totals(found)
    kind, sentence = verdict(told, sums["events"])
    return environment.get_template("page.html.jinja").render(
        as_of=words.moment(found.as_of),
        kind=kind,
        sentence=sentence,
        totals=sums,
        problems=told[:MAX_PROBLEMS],
        more=max(len(told) - MAX_PROBLEMS, 0),
        count=words.count,
        tables=[(layout, getattr(found, layout.name)) for layout in LAYOUTS],
        plots=_plots(found),
        step=words.duration(found.step_s),
    )


def _plots(found: Findings) -> dict[str, Markup]:
    """Draw the plots by the table that they stand above. Their text is escaped as it is drawn."""
    drawn = {
        "availability": running_plot(found.stretches),
        "delivery": latency_plot(found.delivery),
        "totals": activity_plot(found.activity, found.step_s),
    }
    return {name: Markup(svg) for name, svg in drawn.items() if svg}  # noqa: S704


def _cell(column: Column, value: Any) -> Any:
    if isinstance(value, bool):
        return column.write(value)
    return value.isoformat() if isinstance(value, datetime) else value


def _json(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    msg = f"{type(value).__name__} has no place in a report"
    raise TypeError(msg)
