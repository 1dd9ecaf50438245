"""The plots of the page, as SVG to be set into it: the same rows give the same bytes.

Colours are the page's variables, so that light and dark are the page's business. Reads no table.
"""

from __future__ import annotations

import io
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
from matplotlib.dates import AutoDateLocator, DateFormatter
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from sync.central.reports.gather import Rows

GATEWAYS: Final = 40
"""Gateways that a plot has room for: those that were out, or slow, for longest."""

_WIDTH: Final = 9.6  # inches; with 72 points to each, the page's widest column
_COLOURS: Final = {
    "#010101": "var(--ink)",
    "#010102": "var(--soft)",
    "#010103": "var(--line)",
    "#020201": "var(--good)",
    "#020202": "var(--calm)",
    "#020203": "var(--wrong)",
    "#020204": "var(--unknown)",
    "#030301": "var(--first)",
    "#030302": "var(--second)",
    "#030303": "var(--third)",
}
_INK, _SOFT, _LINE = "#010101", "#010102", "#010103"
_STATES: Final = {
    "running": "#020201",
    "stopped": "#020202",
    "outage": "#020203",
    "unknown": "#020204",
}
_LEAST_S: Final = 6  # seconds that an axis spans at least: ticks are whole seconds then
_FORMATS: Final = (
    (600, "%H:%M:%S"),
    (86_400, "%H:%M"),
    (5 * 86_400, "%m-%d %H:%M"),
)  # up to so many seconds; dates beyond, where AutoDateLocator sets whole days
_LANES: Final = {"readings": "#030301", "logs": "#030302", "system": "#030303"}
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9.5,
    "text.color": _INK,
    "text.parse_math": False,
    "axes.edgecolor": _LINE,
    "axes.labelcolor": _SOFT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _LINE,
    "grid.linewidth": 0.6,
    "xtick.color": _SOFT,
    "ytick.color": _SOFT,
    "legend.frameon": False,
}


def running_plot(stretches: Rows) -> str:
    """Draw when each gateway ran; "" where nothing is known."""
    if not stretches:
        return ""
    out: dict[str, float] = {}
    for row in stretches:
        bad = row["state"] in ("outage", "unknown")
        out.setdefault(row["gateway"], 0.0)
        out[row["gateway"]] += (row["end"] - row["begin"]) * bad
    chosen = sorted(sorted(out, key=lambda gateway: (-out[gateway], gateway))[:GATEWAYS])
    with mpl.rc_context(_STYLE):
        figure, axes = _axes(0.9 + 0.3 * len(chosen))
        for place, gateway in enumerate(chosen):
            for state, colour in _STATES.items():
                bars = _bars(stretches, gateway, state)
                axes.broken_barh(bars, (place - 0.32, 0.64), facecolors=colour)
        axes.set_yticks(range(len(chosen)), chosen)
        axes.set_ylim(len(chosen) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        _times(axes)
        _legend(figure, _STATES)
        return _svg(figure, "running")


def activity_plot(activity: Rows, step_s: int) -> str:
    """Draw how many events happened in each step of time, by lane; "" where there are none."""
    if not activity:
        return ""
    begins = sorted({row["begin"] for row in activity})
    with mpl.rc_context(_STYLE):
        figure, axes = _axes(2.6)
        below = dict.fromkeys(begins, 0)
        for lane, colour in _LANES.items():
            heights = {row["begin"]: row["events"] for row in activity if row["lane"] == lane}
            axes.bar(
                [_number(begin) for begin in heights],
                list(heights.values()),
                width=step_s / 86_400 * 0.9,
                bottom=[below[begin] for begin in heights],
                align="edge",
                color=colour,
            )
            for begin, height in heights.items():
                below[begin] += height
        axes.set_ylabel("events")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(visible=False, axis="x")
        _times(axes)
        _legend(figure, _LANES)
        return _svg(figure, "activity")


def latency_plot(delivery: Rows) -> str:
    """Draw p50 to p99 and the maximum of assured delivery by gateway; "" where there are none."""
    rows = [row for row in delivery if row["qos"] == 2]
    rows = sorted(rows, key=lambda row: (-row["p99_ms"], row["gateway"]))[:GATEWAYS]
    if not rows:
        return ""
    with mpl.rc_context(_STYLE):
        figure, axes = _axes(0.9 + 0.3 * len(rows))
        places = range(len(rows))
        axes.hlines(places, _of(rows, "p50_ms"), _of(rows, "max_ms"), color=_LINE, linewidth=2)
        marks = {"p50_ms": "#030301", "p95_ms": "#030302", "p99_ms": "#020203", "max_ms": _SOFT}
        for name, colour in marks.items():
            axes.scatter(_of(rows, name), places, color=colour, s=34, zorder=3)
        axes.set_xscale("symlog", linthresh=10)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.set_xlabel("milliseconds")
        axes.set_yticks(places, _of(rows, "gateway"))
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        _legend(figure, {name.removesuffix("_ms"): colour for name, colour in marks.items()})
        return _svg(figure, "latency")


def _axes(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    return figure, figure.add_subplot()


def _of(rows: Rows, name: str) -> list[Any]:
    return [row[name] for row in rows]


def _bars(stretches: Rows, gateway: str, state: str) -> Sequence[tuple[float, float]]:
    return [
        (_number(row["begin"]), (row["end"] - row["begin"]) / 86_400)
        for row in stretches
        if row["gateway"] == gateway and row["state"] == state
    ]


def _number(seconds: float) -> float:
    """Give the place of a time on the axis, which matplotlib counts in days since 1970."""
    return seconds / 86_400


def _times(axes: Axes) -> None:
    """Label the axis so that each tick can be read alone, and tell the days below."""
    left, right = (place * 86_400 for place in axes.get_xlim())
    right = max(right, left + _LEAST_S)
    axes.set_xlim(_number(left), _number(right))
    first, last = (datetime.fromtimestamp(at, UTC).date().isoformat() for at in (left, right))
    span = right - left
    form = next((form for most, form in _FORMATS if span < most), "%Y-%m-%d")
    if first != last and form == "%H:%M":
        form = "%m-%d %H:%M"
    locator = AutoDateLocator(tz=UTC, maxticks=8)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(DateFormatter(form, tz=UTC))  # type: ignore[no-untyped-call]
    axes.set_xlabel(f"{first}, UTC" if first == last else f"{first} to {last}, UTC")


def _legend(figure: Figure, colours: dict[str, str]) -> None:
    handles = [Patch(color=colour, label=name) for name, colour in colours.items()]
    # At the left: what a narrow screen shows of a plot before it is scrolled.
    figure.legend(handles=handles, ncols=len(handles), handlelength=1, loc="outside upper left")


def _svg(figure: Figure, name: str) -> str:
    """Write the figure without date, prologue or metadata, in the page's colours."""
    target = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": f"fieldpost-{name}"}):
        figure.savefig(target, format="svg", transparent=True, metadata={"Date": None})
    text = target.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    for colour, variable in _COLOURS.items():
        text = text.replace(colour, variable)
    return text
