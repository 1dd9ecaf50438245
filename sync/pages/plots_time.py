"""The plots over all the time that is reported: when gateways ran, and what happened when.

Each gives SVG, or "" where there is nothing to draw. Reads no table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from matplotlib.patches import Patch

from sync.pages import text as words
from sync.pages.drawing import (
    CALM,
    FIRST,
    GOOD,
    SECOND,
    THIRD,
    UNKNOWN,
    WRONG,
    counted,
    drawn,
    elsewhere,
    height_of,
    legend,
    place,
    rows_axis,
    shortened,
    svg,
    times,
)
from sync.reports.gather import Rows
from sync.reports.window import window

if TYPE_CHECKING:
    from matplotlib.axes import Axes


GATEWAYS: Final = 30
"""Gateways that a plot has room for: those that were out, or slow, for longest."""

_STATES: Final = {
    "running": (GOOD, 0.62, ""),
    "stopped": (CALM, 0.16, ""),
    "outage": (WRONG, 0.62, "////"),
    "unknown": (UNKNOWN, 0.62, "xxxx"),
}
"""Colour, height (of a row) and hatching of each state: each of them tells it apart."""

_LANES: Final = {"readings": (FIRST, ""), "logs": (SECOND, "////"), "system": (THIRD, "----")}


def running_plot(stretches: Rows, now: float, name: str = "running") -> str:
    """Draw when each gateway ran, was stopped, was out, up to `now` (seconds since 1970)."""
    if not stretches:
        return ""
    seen = window(((row["begin"], row["end"]) for row in stretches), now)
    known, stretches = stretches, [row for row in stretches if seen.has(row["begin"], row["end"])]
    bad: dict[str, float] = {}
    for row in stretches:
        length = (row["end"] - row["begin"]) * (row["state"] in ("outage", "unknown"))
        bad[row["gateway"]] = bad.get(row["gateway"], 0.0) + length
    chosen = sorted(sorted(bad, key=lambda gateway: (-bad[gateway], gateway))[:GATEWAYS])
    shown = [shortened(gateway) for gateway in chosen] if len(bad) > 1 else [""]
    with drawn(height_of(len(chosen)), shown) as (figure, axes):
        for at, gateway in enumerate(chosen):
            _states(axes, [row for row in stretches if row["gateway"] == gateway], at)
        rows_axis(axes, shown)
        times(axes, ticks=3)
        legend(
            figure, [_patch(state, colour, hatch) for state, (colour, _, hatch) in _STATES.items()]
        )
        return svg(
            figure,
            name,
            "When gateways ran",
            _told_of_running(bad, len(chosen)) + elsewhere(len(known) - len(stretches)),
        )


def _states(axes: Axes, stretches: Rows, at: int) -> None:
    for state, (colour, height, hatch) in _STATES.items():
        bars = [
            (place(each["begin"]), (each["end"] - each["begin"]) / 86_400)
            for each in stretches
            if each["state"] == state
        ]
        look: dict[str, Any] = (
            {"facecolors": "none", "hatch": hatch} if hatch else {"facecolors": colour}
        )
        axes.broken_barh(bars, (at - height / 2, height), edgecolors=colour, linewidth=0.4, **look)


def _told_of_running(bad: dict[str, float], shown: int) -> str:
    whole = sum(length == 0 for length in bad.values())
    text = f"{shown} of {len(bad)} gateways; {whole} of them without an outage or unknown time."
    worst = max(sorted(bad), key=lambda gateway: bad[gateway])
    if bad[worst]:
        text += f" {worst} was out or unknown for longest: {words.duration(bad[worst])}."
    return text


def activity_plot(activity: Rows, step_s: int, name: str = "activity") -> str:
    """Draw how many events happened in each step of time, by lane."""
    if not activity:
        return ""
    begins = sorted({row["begin"] for row in activity})
    below = dict.fromkeys(begins, 0)
    with drawn(1.6) as (figure, axes):
        for lane, (colour, hatch) in _LANES.items():
            heights = {row["begin"]: row["events"] for row in activity if row["lane"] == lane}
            axes.bar(
                [place(begin) for begin in heights],
                list(heights.values()),
                width=step_s / 86_400,
                bottom=[below[begin] for begin in heights],
                align="edge",
                color="none" if hatch else colour,
                edgecolor=colour,
                hatch=hatch,
                linewidth=0.4,
            )
            for begin, height in heights.items():
                below[begin] += height
        axes.set_ylabel(f"events in {words.duration(step_s)}")
        counted(axes.yaxis)
        axes.grid(visible=False, axis="x")
        times(axes)
        legend(figure, [_patch(lane, *look) for lane, look in _LANES.items()])
        most = max(below, key=lambda begin: below[begin])
        told = (
            f"{words.count(sum(below.values()))} events; most of them, {words.count(below[most])}, "
            f"in the {words.duration(step_s)} from {words.instant(most)}."
        )
        return svg(figure, name, "Events over time", told)


def _patch(label: str, colour: str, hatch: str) -> Patch:
    face = "none" if hatch else colour
    return Patch(facecolor=face, edgecolor=colour, hatch=hatch, label=label)
