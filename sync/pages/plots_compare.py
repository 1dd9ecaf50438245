"""The plots that put gateways, queues, sensors and versions side by side: one row for each.

Each gives SVG, or "" where there is nothing to draw. The worst come first where there is not room
for all. Reads no table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from sync.pages import text
from sync.pages.drawing import (
    CALM,
    FIRST,
    INK,
    LINE,
    SERIES,
    SOFT,
    THIRD,
    WRONG,
    counted,
    drawn,
    figures,
    height_of,
    legend,
    paired,
    rows_axis,
    shortened,
    svg,
)
from sync.reports.gather import Rows

if TYPE_CHECKING:
    from matplotlib.artist import Artist


ROWS: Final = 20
"""Rows that such a plot has room for on a phone."""

HEARD: Final = 6
"""Sensors that are drawn even where all of them were heard from not long ago."""

_PERCENTILES: Final = ("p50", "p95", "p99", "max")
_WAITING: Final = (
    ("ready", FIRST, ""),
    ("locked", CALM, "xxxx"),
    ("delayed", THIRD, "\\\\\\\\"),
    ("dead", WRONG, "////"),
)


def latency_plot(delivery: Rows, name: str = "latency") -> str:
    """Draw p50 to the maximum of assured delivery, by gateway; the slowest come first."""
    rows = [row for row in delivery if row["qos"] == 2]
    return _percentiles(rows, "ms", "milliseconds", 10, (name, "Latency of assured delivery"))


def lag_plot(lag: Rows, name: str = "lag-plot") -> str:
    """Draw p50 to the maximum of the upstream lag, by gateway, of synchronised clocks alone."""
    rows = [row for row in lag if row["clock"]]
    return _percentiles(rows, "s", "seconds", 1, (name, "Upstream lag"))


def _percentiles(
    rows: Rows, suffix: str, unit: str, linear: float, known_as: tuple[str, str]
) -> str:
    rows = [row for row in rows if row[f"p99_{suffix}"] is not None]
    chosen = sorted(rows, key=lambda row: (-row[f"p99_{suffix}"], row["gateway"]))[:ROWS]
    if not chosen:
        return ""
    names = _names(chosen, "gateway")
    with drawn(height_of(len(chosen)), names) as (figure, axes):
        places = range(len(chosen))
        low, high = _of(chosen, f"p50_{suffix}"), _of(chosen, f"max_{suffix}")
        axes.hlines(places, low, high, color=LINE, linewidth=2)
        for each, (colour, _, mark) in zip(_PERCENTILES, SERIES, strict=True):
            values = _of(chosen, f"{each}_{suffix}")
            axes.scatter(values, places, color=colour, marker=mark, s=22, zorder=3)
        axes.set_xscale("symlog", linthresh=linear)
        axes.set_xlim(left=min(low) / 2 if min(low) > linear else min(0, *low))
        figures(axes.xaxis)
        axes.set_xlabel(unit)
        rows_axis(axes, names)
        legend(figure, _marks(_PERCENTILES))
        worst = chosen[0]
        told = (
            f"{len(chosen)} of {text.plural(len(rows), 'gateway')}. Slowest: {worst['gateway']}, "
            f"p50 {worst[f'p50_{suffix}']:,}, p99 {worst[f'p99_{suffix}']:,}, "
            f"most {worst[f'max_{suffix}']:,} {unit}."
        )
        return svg(figure, known_as[0], known_as[1], told)


def queues_plot(queues: Rows, name: str = "queue-items") -> str:
    """Draw what is in each queue, as told last; the deepest come first."""
    held = [row for row in queues if (row["depth"] or 0) + (row["dead"] or 0)]
    held.sort(key=lambda row: (-(row["depth"] or 0) - (row["dead"] or 0), _queue(row)))
    chosen = held[:ROWS]
    if not chosen:
        return ""
    alone = len({row["gateway"] for row in queues}) == 1
    names = _names(chosen, "queue", alone=alone)
    with drawn(height_of(len(chosen)), names) as (figure, axes):
        left = [0] * len(chosen)
        for column, colour, hatch in _WAITING:
            widths = [row[column] or 0 for row in chosen]
            there = [place for place, width in enumerate(widths) if width]
            bars = [[values[place] for place in there] for values in (widths, left)]
            axes.barh(there, bars[0], left=bars[1], height=0.6, **_face(colour, hatch))
            left = [at + width for at, width in zip(left, widths, strict=True)]
        counted(axes.xaxis)
        axes.set_xlabel("items")
        rows_axis(axes, names)
        legend(figure, [Patch(label=word, **_face(*look)) for word, *look in _WAITING])
        told = (
            f"{len(chosen)} of {text.plural(len(held), 'queue')} with items. Most: "
            f"{_queue(chosen[0])}, {text.count(left[0])} items."
        )
        return svg(figure, name, "What is in the queues", told)


def silence_plot(sensors: Rows, name: str = "silence") -> str:
    """Draw how long sensors have been silent, as times their limit; the longest come first."""
    known = [row for row in sensors if row["limit_s"] and row["silence_s"] is not None]
    times = {id(row): row["silence_s"] / row["limit_s"] for row in known}
    order = sorted(known, key=lambda row: (-times[id(row)], _sensor(row)))[:ROWS]
    chosen = [row for at, row in enumerate(order) if at < HEARD or times[id(row)] > 0.5]
    if not chosen:
        return ""
    alone = len({row["gateway"] for row in sensors}) == 1
    names = _names(chosen, "sensor", alone=alone)
    with drawn(height_of(len(chosen)), names) as (figure, axes):
        for place, row in enumerate(chosen):
            silent = row["state"] == "silent"
            face = _face(WRONG, "////") if silent else _face(CALM, "")
            axes.barh(place, times[id(row)], height=0.6, **face)
        axes.axvline(1, color=INK, linewidth=1.2, linestyle="--")
        axes.set_xscale("symlog", linthresh=1)
        axes.set_xlim(left=0)
        figures(axes.xaxis)
        axes.set_xlabel("times the limit of silence")
        rows_axis(axes, names)
        looks = [("silent", WRONG, "////"), ("heard", CALM, "")]
        handles: list[Artist] = [Patch(label=word, **_face(*look)) for word, *look in looks]
        legend(figure, [*handles, Line2D([], [], color=INK, linestyle="--", label="limit")])
        silent_ones = sum(row["state"] == "silent" for row in sensors)
        told = (
            f"{text.plural(silent_ones, 'sensor is', 'sensors are')} silent, of {len(sensors)}. "
            f"Longest beyond its limit: {_sensor(chosen[0])}, "
            f"{text.duration(chosen[0]['silence_s'])}."
        )
        return svg(figure, name, "How long sensors have been silent", told)


def skew_plot(clocks: Rows, name: str = "skew") -> str:
    """Draw how far each gateway's clock is from the centre's; the farthest come first."""
    return _signed(clocks, "skew_s", ("seconds ahead of the centre's clock", 1.0), name)


def drift_plot(clocks: Rows, name: str = "drift") -> str:
    """Draw how much faster each gateway's clock runs than it should; the worst come first."""
    return _signed(clocks, "drift_ppm", ("parts per million too fast", 10.0), name)


def _signed(rows: Rows, column: str, axis: tuple[str, float], name: str) -> str:
    known = [row for row in rows if row[column] is not None]
    chosen = sorted(known, key=lambda row: (-abs(row[column]), row["gateway"]))[:ROWS]
    if not chosen:
        return ""
    names = _names(chosen, "gateway")
    with drawn(height_of(len(chosen)), names) as (figure, axes):
        places = range(len(chosen))
        for fine, (colour, _, mark) in ((True, SERIES[0]), (False, SERIES[3])):
            at = [place for place in places if (chosen[place]["state"] == "ok") == fine]
            values = [chosen[place][column] for place in at]
            axes.hlines(at, 0, values, color=colour, linewidth=1.4)
            axes.scatter(values, at, color=colour, marker=mark, s=24, zorder=3)
        axes.axvline(0, color=SOFT, linewidth=1)
        axes.set_xscale("symlog", linthresh=axis[1])
        figures(axes.xaxis)
        axes.set_xlabel(axis[0])
        rows_axis(axes, names)
        legend(figure, _marks(("in order", "", "", "judged wrong"), skip=""))
        told = (
            f"{len(chosen)} of {text.plural(len(known), 'gateway')}. Farthest: "
            f"{chosen[0]['gateway']}, {chosen[0][column]:+,.3g} {axis[0]}."
        )
        return svg(figure, name, f"Clocks: {axis[0]}", told)


def versions_plot(versions: Rows, name: str = "version-share") -> str:
    """Draw how many gateways run each version now."""
    rows = [row for row in versions if row["current"]]
    if not rows:
        return ""
    chosen = sorted(rows, key=lambda row: (-row["current"], row["version"]))[:ROWS]
    names = _names(chosen, "version")
    with drawn(height_of(len(chosen)), names, legends=0) as (figure, axes):
        for place, row in enumerate(chosen):
            face = _face(WRONG, "////") if row["worse"] else _face(FIRST, "")
            axes.barh(place, row["current"], height=0.6, **face)
        counted(axes.xaxis)
        axes.set_xlabel("gateways that run it now; hatched: it errs more than the one before")
        rows_axis(axes, names)
        told = ", ".join(f"{row['version']}: {row['current']}" for row in chosen)
        return svg(figure, name, "Gateways by version", f"{told}.")


def forecast_plot(growth: Rows, name: str = "forecast") -> str:
    """Draw in how many days storage will be full, with the interval; the soonest come first."""
    known = [row for row in growth if row["days_left"] is not None]
    chosen = sorted(known, key=lambda row: (row["days_left"], row["gateway"]))[:ROWS]
    if not chosen:
        return ""
    names = _names(chosen, "gateway")
    with drawn(height_of(len(chosen)), names, legends=0) as (figure, axes):
        for place, row in enumerate(chosen):
            colour, _, mark = SERIES[0] if row["state"] == "ok" else SERIES[3]
            ends = [row["days_low"], row["days_high"] or row["days_left"]]
            axes.plot(ends, [place, place], color=colour, linewidth=3, alpha=0.4)
            axes.plot(row["days_left"], place, color=colour, marker=mark)
        axes.set_xscale("symlog", linthresh=10)
        axes.set_xlim(left=0)
        figures(axes.xaxis)
        axes.set_xlabel("days until full, with the interval; a diamond: soon")
        rows_axis(axes, names)
        first = chosen[0]
        told = (
            f"{text.plural(len(known), 'gateway')} with a forecast. Soonest: {first['gateway']}, "
            f"in {text.days(first['days_left'])} ({text.days(first['days_low'])} to "
            f"{text.days(first['days_high'])})."
        )
        return svg(figure, name, "Days until storage is full", told)


def _face(colour: str, hatch: str) -> dict[str, Any]:
    """Fill plain, or hatch where the page's colours are told apart by shape as well."""
    return {
        "facecolor": "none" if hatch else colour,
        "edgecolor": colour,
        "hatch": hatch,
        "linewidth": 0.6,
    }


def _marks(names: Sequence[str], skip: str | None = None) -> list[Artist]:
    return [
        Line2D([], [], color=colour, marker=mark, linestyle="none", label=name)
        for name, (colour, _, mark) in zip(names, SERIES, strict=True)
        if name != skip
    ]


def _of(rows: Rows, name: str) -> list[Any]:
    return [row[name] for row in rows]


def _names(rows: Rows, name: str, *, alone: bool = True) -> list[str]:
    """Give the labels of rows: with the gateway's name where it is not `alone`."""
    if alone:
        return [shortened(row[name]) for row in rows]
    return [paired(row["gateway"], row[name]) for row in rows]


def _queue(row: dict[str, Any]) -> str:
    return f"{row['queue']} at {row['gateway']}"


def _sensor(row: dict[str, Any]) -> str:
    return f"{row['sensor']} at {row['gateway']}"
