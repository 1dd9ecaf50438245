"""The sections of a page: for each report its plots, and its first rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup, escape

from sync.pages.plausible import only_plausible
from sync.pages.plot_cache import CachedPlots
from sync.pages.plots import plots_of, sparkline
from sync.reports.shared import formats
from sync.reports.shared.column import Column
from sync.reports.shared.findings import Findings, Row, Rows
from sync.reports.shared.registry import REPORTS
from sync.reports.shared.report import Report, Table

FLEET_ROWS: Final = 50
"""Maximum number of rows of a table on the fleet's page; the CSV has all."""

GATEWAY_ROWS: Final = 200
"""Maximum number of rows of a table on a gateway's page: more than on the fleet's, for details."""

UNFOLDED: Final = 12
"""Number of rows up to which a table without plots is shown unfolded."""

SPARKLINES: Final = 48
"""Maximum number of sensors that are drawn as small plots on a gateway's page."""

_FLEET_COLUMNS: Final = ("gateway", "gateways", "which")
"""Columns that a gateway's own page leaves out."""


@dataclass(frozen=True, slots=True)
class Section:
    """A report on a page. `left` counts the rows that only the CSV has."""

    name: str
    table: Table
    columns: tuple[Column, ...]
    rows: Rows
    left: int
    caption: str
    empty: str
    plots: tuple[Markup, ...]
    sparklines: tuple[Markup, ...] = ()

    @property
    def is_open(self) -> bool:
        """Return whether the table is shown unfolded: it is short, and the section has no plots."""
        return not self.plots and not self.sparklines and len(self.rows) <= UNFOLDED

    @property
    def summary(self) -> str:
        """The text to click on to unfold the table, such as `Table: 3 rows`."""
        return f"Table: {formats.plural(len(self.rows), 'row')}"


def sections_of(
    findings: Findings, cached: CachedPlots, *, of_gateway: bool = False
) -> list[Section]:
    """Return the sections of the fleet's page: all reports, also those without rows.

    With `of_gateway`, the findings are those of a gateway, and reports without rows are left out.
    """
    plausible = only_plausible(findings)
    return [
        _section(
            report,
            findings,
            plots_of(report.name, plausible, cached, of_gateway=of_gateway),
            of_gateway,
        )
        for report in REPORTS
        if findings[report.name] or not of_gateway
    ]


def _section(report: Report, findings: Findings, plots: Sequence[str], of_gateway: bool) -> Section:
    table, rows = report.table, findings[report.name]
    most, hidden = (GATEWAY_ROWS, _FLEET_COLUMNS) if of_gateway else (FLEET_ROWS, ())
    columns = tuple(each for each in table.columns if each.name not in hidden)
    visible = rows
    caption = f"{table.title}: {formats.plural(len(rows), 'row')}"
    if len(rows) > most:
        visible = sorted(rows, key=lambda row: not needs_attention(columns, row))[:most]
        caption = f"{table.title}: {most} of {formats.count(len(rows))} rows, the conspicuous first"
    return Section(
        report.name,
        table,
        columns,
        visible,
        len(rows) - len(visible),
        caption,
        table.empty if findings["totals"] else "Nothing has arrived yet.",
        tuple(Markup(plot) for plot in plots),  # noqa: S704 - escaped when it was drawn
        _sparklines(findings["sensor_series"]) if of_gateway and report.name == "sensors" else (),
    )


def needs_attention(columns: Sequence[Column], row: Row) -> bool:
    """Return whether a row has an alarm, a flag, or a state that is wrong."""
    return any(
        (column.kind in ("alarm", "flag") and bool(row[column.name]))
        or (column.kind == "state" and column.marks.get(row[column.name]) == "wrong")
        for column in columns
    )


def _sparklines(readings: Rows) -> tuple[Markup, ...]:
    sensors: dict[tuple[str, str], Rows] = {}
    for row in readings:
        sensors.setdefault((row["source"] or "", row["sensor"]), []).append(row)
    drawn = []
    for number, key in enumerate(sorted(sensors)[:SPARKLINES]):
        name = f"{key[0]} {key[1]}".strip()
        plot = sparkline(sensors[key], f"small-{number}", name)
        if plot:
            drawn.append(escape(name) + Markup(plot))  # noqa: S704 - escaped when it was drawn
    return tuple(drawn)
