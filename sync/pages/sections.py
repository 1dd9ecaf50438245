"""What each section of a page shows: the plots, the rows that there is room for, and the words.

Knows no template. Rows of one gateway make the sections of its page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from markupsafe import Markup, escape

from sync.pages import plots_compare as compare
from sync.pages import plots_series as series
from sync.pages import plots_time as over_time
from sync.pages import text
from sync.pages.column import LOOKS, Column, Layout
from sync.pages.layout import LAYOUTS, rows_of
from sync.reports.gather import Findings, Rows

FLEET_ROWS: Final = 50
"""Rows of a table on the fleet's page: more than that is looked up, in its CSV."""

GATEWAY_ROWS: Final = 200
"""Rows of a table on a gateway's page, where somebody looks for one thing of one gateway."""

OPENED: Final = 12
"""Rows of a table that is not folded where nothing is drawn above it."""

SMALL: Final = 48
"""Sensors drawn small on a gateway's page."""


@dataclass(frozen=True, slots=True)
class Section:
    """A report on a page. `left` counts the rows that are in the CSV alone."""

    name: str
    title: str
    about: str
    columns: tuple[Column, ...]
    rows: Rows
    left: int
    caption: str
    none: str
    figures: tuple[Markup, ...]
    small: tuple[Markup, ...] = ()

    @property
    def opened(self) -> bool:
        """Tell whether the table is open: where nothing is drawn, and it is short."""
        return not self.figures and not self.small and len(self.rows) <= OPENED

    @property
    def summary(self) -> str:
        """Say what opens."""
        return f"Table: {text.plural(len(self.rows), 'row')}"


def of_fleet(found: Findings) -> list[Section]:
    """Make the sections of the fleet's page: all reports, with the rows that need a look first."""
    empty = "Nothing has arrived yet." if not found.totals else ""
    sections = []
    for layout in LAYOUTS:
        figures = drawings(layout.name, found)
        section = _section(layout, rows_of(found, layout.name), FLEET_ROWS, figures)
        sections.append(replace(section, none=empty or section.none))
    return sections


def of_gateway(found: Findings) -> list[Section]:
    """Make the sections of a gateway's page out of its own findings, without its name.

    Tables that are of the whole fleet, and those without a row of it, are not there.
    """
    sections = []
    for layout in LAYOUTS:
        rows = rows_of(found, layout.name)
        if not rows:
            continue
        own = tuple(column for column in layout.columns if column.name not in _FLEETS)
        figures = drawings(layout.name, found, alone=True)
        section = _section(layout._replace(columns=own), rows, GATEWAY_ROWS, figures)
        if layout.name == "sensors":
            section = replace(section, small=_small(rows_of(found, "sensor_series")))
        sections.append(section)
    return sections


_FLEETS: Final = ("gateway", "gateways", "which")
"""Columns that have no place on a gateway's own page."""


def _section(layout: Layout, rows: Rows, most: int, figures: Iterable[str]) -> Section:
    shown = rows
    caption = f"{layout.title}: {text.plural(len(rows), 'row')}"
    if len(rows) > most:
        shown = sorted(rows, key=lambda row: not needs_a_look(layout, row))[:most]
        caption = (
            f"{layout.title}: {most} of {text.count(len(rows))} rows, those that need a look first"
        )
    return Section(
        layout.name,
        layout.title,
        layout.about,
        layout.columns,
        shown,
        len(rows) - len(shown),
        caption,
        layout.none,
        tuple(Markup(figure) for figure in figures if figure),  # noqa: S704 - drawn and escaped
    )


def needs_a_look(layout: Layout, row: dict[str, Any]) -> bool:
    """Tell whether a row has an alarm, a flag, or a state that is wrong."""
    return any(
        (column.kind in ("alarm", "flag") and bool(row[column.name]))
        or (column.kind == "state" and LOOKS.get(row[column.name]) == "wrong")
        for column in layout.columns
    )


def drawings(name: str, found: Findings, *, alone: bool = False) -> list[str]:
    """Draw what stands above a table; `alone` on the page of one gateway."""
    draw = (_BOTH | (_ALONE if alone else _FLEET)).get(name)
    return draw(found) if draw else []


_BOTH: Final[dict[str, Callable[[Findings], list[str]]]] = {
    "availability": lambda found: [
        over_time.running_plot(found.stretches, found.as_of.timestamp())
    ],
    "queues": lambda found: [
        series.depth_plot(rows_of(found, "queue_depths"), _now(found)),
        compare.queues_plot(rows_of(found, "queues")),
    ],
    "sensors": lambda found: [compare.silence_plot(rows_of(found, "sensors"))],
}
_FLEET: Final[dict[str, Callable[[Findings], list[str]]]] = {
    "delivery": lambda found: [compare.latency_plot(found.delivery)],
    "lag": lambda found: [compare.lag_plot(found.lag)],
    "clocks": lambda found: [
        compare.skew_plot(rows_of(found, "clocks")),
        compare.drift_plot(rows_of(found, "clocks")),
    ],
    "versions": lambda found: [compare.versions_plot(rows_of(found, "versions"))],
    "growth": lambda found: [compare.forecast_plot(rows_of(found, "growth"))],
    "totals": lambda found: [over_time.activity_plot(found.activity, found.step_s)],
}
_ALONE: Final[dict[str, Callable[[Findings], list[str]]]] = {
    "availability": lambda found: [
        over_time.running_plot(found.stretches, _now(found)),
        over_time.activity_plot(rows_of(found, "gateway_activity"), found.step_s),
    ],
    "clocks": lambda found: [series.offset_plot(rows_of(found, "clock_offsets"))],
    "growth": lambda found: [
        series.growth_plot(row, _now(found)) for row in rows_of(found, "growth")
    ],
}


def _now(found: Findings) -> float:
    return found.as_of.timestamp()


def _small(readings: Rows) -> tuple[Markup, ...]:
    """Draw the sensors of a gateway, each by itself, in the order of their names."""
    sensors: dict[tuple[str, str], Rows] = {}
    for row in readings:
        sensors.setdefault((row["source"] or "", row["sensor"]), []).append(row)
    small = []
    for number, key in enumerate(sorted(sensors)[:SMALL]):
        told = f"{key[0]} {key[1]}".strip()
        drawn = series.sparkline(sensors[key], f"small-{number}", told)
        if drawn:
            small.append(escape(told) + Markup(drawn))  # noqa: S704 - drawn and escaped
    return tuple(small)
