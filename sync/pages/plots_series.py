"""The plots of what goes up and down: queues, a gateway's disk and its clock, and its sensors.

Each gives SVG, or "" where there is nothing to draw. Reads no table.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from sync.pages import text
from sync.pages.drawing import (
    FIRST,
    INK,
    SERIES,
    counted,
    drawn,
    elsewhere,
    legend,
    paired,
    place,
    shortened,
    svg,
    times,
)
from sync.reports.gather import Rows
from sync.reports.window import window

if TYPE_CHECKING:
    from matplotlib.artist import Artist


AHEAD_D: Final = 400
"""Days that a forecast is drawn for, at most: no trend of some weeks tells more."""

QUEUES: Final = len(SERIES)
"""Queues that a plot has room for: the deepest ones."""


def depth_plot(depths: Rows, now: float, name: str = "queue-depth") -> str:
    """Draw how deep queues were up to `now` (seconds since 1970); the deepest of them."""
    if not depths:
        return ""
    seen = window(((row["at"], row["at"]) for row in depths), now)
    known, depths = depths, [row for row in depths if seen.has(row["at"], row["at"])]
    most: dict[tuple[str, str], float] = {}
    for row in depths:
        key = (row["queue"], row["gateway"])
        most[key] = max(most.get(key, 0), row["depth"])
    chosen = sorted(most, key=lambda key: (-most[key], key))[:QUEUES]
    alone = len({gateway for _, gateway in most}) == 1
    with drawn(1.7, legends=2 if alone else QUEUES) as (figure, axes):
        handles = []
        for key, (colour, line, mark) in zip(chosen, SERIES, strict=False):
            told = sorted(
                (row["at"], row["depth"]) for row in depths if (row["queue"], row["gateway"]) == key
            )
            look: dict[str, Any] = {"color": colour, "linestyle": line, "marker": mark}
            look["markevery"] = max(len(told) // 8, 1)
            label = shortened(key[0]) if alone else paired(key[1], key[0])
            handles += axes.plot(
                [place(at) for at, _ in told], [depth for _, depth in told], label=label, **look
            )
        axes.set_ylim(bottom=0)
        axes.set_ylabel("items")
        counted(axes.yaxis)
        times(axes)
        legend(figure, handles, columns=2 if alone else 1)
        words_told = (
            f"{len(chosen)} of {text.plural(len(most), 'queue')}. Deepest: {chosen[0][0]} at "
            f"{chosen[0][1]}, {text.count(most[chosen[0]])} items."
            f"{elsewhere(len(known) - len(depths))}"
        )
        return svg(figure, name, "Depth of queues over time", words_told)


def growth_plot(row: dict[str, Any], now: float, name: str = "disk") -> str:
    """Draw how the disk of one gateway fills from `now` (seconds since 1970) on, to its cap."""
    if row["disk_used"] is None or row["trend_day"] is None:
        return ""
    ahead = min(max(row["days_left"] or 0, 7) * 1.3, AHEAD_D)
    days = [0.0, ahead]

    def line(trend: float | None) -> list[float]:
        return [(row["disk_used"] + (trend or 0) * day) / 2**20 for day in days]

    dates = [place(now) + day for day in days]
    with drawn(1.6) as (figure, axes):
        low, high = line(row["trend_low"]), line(row["trend_high"])
        band = axes.fill_between(dates, low, high, color=FIRST, alpha=0.25, label="interval")
        handles: list[Artist] = [*axes.plot(dates, line(row["trend_day"]), color=FIRST)]
        handles[0].set_label("forecast")
        if row["cap"] is not None:
            cap = row["cap"] / 2**20
            handles.append(axes.axhline(cap, color=INK, linestyle="--", label="cap"))
        axes.set_ylim(bottom=0)
        axes.set_ylabel("MiB")
        times(axes)
        legend(figure, [*handles, band])
        told = f"{text.size(row['disk_used'])} used, {text.size(row['trend_day'])} more a day"
        cap_told = "no cap is known"
        if row["cap"] is not None:
            cap_told = f"the cap is {text.size(row['cap'])}"
        return svg(figure, name, "Disk used, and the forecast", f"{told}; {cap_told}.")


def offset_plot(offsets: Rows, name: str = "offset") -> str:
    """Draw how far the clock of one gateway was from the centre's over time."""
    told = sorted((row["at"], row["skew_s"]) for row in offsets if row["skew_s"] is not None)
    if len(told) < 2:
        return ""
    with drawn(1.5, legends=0) as (figure, axes):
        colour, line, _ = SERIES[0]
        axes.plot([place(at) for at, _ in told], [s for _, s in told], color=colour, linestyle=line)
        axes.set_ylabel("seconds ahead")
        times(axes)
        low, high = min(s for _, s in told), max(s for _, s in told)
        span = f"Between {low:+.3g} and {high:+.3g} seconds."
        return svg(figure, name, "The clock against the centre's", span)


def sparkline(series: Rows, name: str, title: str) -> str:
    """Draw the readings of one sensor small: their mean in each step, between lowest and highest.

    By hand: it has no axis, and a page may have many of them.
    """
    told = sorted((row for row in series if row["mean"] is not None), key=lambda row: row["at"])
    if len(told) < 2:
        return ""
    low, high = _of(told, "low"), _of(told, "high")
    bottom, top = min(low), max(high)
    begin, end = told[0]["at"], told[-1]["at"]

    def points(values: Sequence[float]) -> list[str]:
        across = ((row["at"] - begin) / ((end - begin) or 1) * 100 for row in told)
        # Halved first: from the lowest to the highest may be more than the largest float.
        span = top / 2 - bottom / 2
        up = ((value / 2 - bottom / 2) / span if span > 0 else 0.5 for value in values)
        return [f"{x:.2f},{38 - 36 * y:.2f}" for x, y in zip(across, up, strict=True)]

    band = " ".join([*points(high), *reversed(points(low))])
    line = " ".join(points(_of(told, "mean")))
    span = f"{text.decimal(bottom)} to {text.decimal(top)}, last {text.decimal(told[-1]['mean'])}"
    return (
        f'<svg viewBox="0 0 100 40" preserveAspectRatio="none" role="img" '
        f'aria-labelledby="{name}-title {name}-told"><title id="{name}-title">'
        f'{html.escape(title)}</title><desc id="{name}-told">{span}</desc>'
        f'<path class="band" d="M{band}Z"/><path d="M{line}"/></svg>'
    )


def _of(rows: Rows, name: str) -> list[float]:
    """Give a column; the mean where a row does not have it."""
    return [row["mean"] if row.get(name) is None else row[name] for row in rows]
