"""The plots above the reports' tables.

Each function returns SVG, or "" if there is nothing to draw. If there is not room for all rows, the
worst are drawn.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, tzinfo
from functools import partial
from typing import Any, Final

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from sync.pages.drawing import (
    CALM,
    FIRST,
    GOOD,
    INK,
    LINE,
    SECOND,
    SERIES,
    SOFT,
    THIRD,
    UNKNOWN,
    WRONG,
    label_counts,
    label_numbers,
    label_times,
    legend,
    new_plot,
    omitted,
    paired,
    place,
    row_plot,
    set_reach,
    shortened,
    svg,
)
from sync.pages.plot_cache import CachedPlots, draw
from sync.reports.shared import formats
from sync.reports.shared.findings import Findings, Row, Rows
from sync.reports.shared.thresholds import FORECAST_D
from sync.reports.shared.window import Window, window

ROWS: Final = 20
"""Maximum number of rows of a plot: a phone has no room for more."""

GATEWAYS: Final = 30
"""Maximum number of gateways in the plot of availability."""

QUEUES: Final = len(SERIES)
"""Maximum number of queues in the plot of depths: one for each style of line in `SERIES`."""

MIN_SENSORS: Final = 6
"""Sensors that the plot of silence always shows; further ones only above half their limit."""

_PERCENTILES: Final = ("p50", "p95", "p99", "max")
_ITEMS: Final = (
    ("ready", "ready", FIRST, ""),
    ("locked", "in progress", CALM, "xxxx"),
    ("delayed", "delayed", THIRD, "\\\\\\\\"),
    ("dead", "dead", WRONG, "////"),
)
_STATES: Final = {
    "running": (GOOD, 0.62, ""),
    "stopped": (CALM, 0.16, ""),
    "outage": (WRONG, 0.62, "////"),
    "unknown": (UNKNOWN, 0.62, "xxxx"),
}
"""Colour, height (1: a row) and hatching of each state; each of the three identifies the state."""

_LANES: Final = {"readings": (FIRST, ""), "logs": (SECOND, "////"), "system": (THIRD, "----")}


def latency_plot(delivery: Rows) -> str:
    """Draw the time to assured delivery by gateway, p50 to maximum, the slowest first."""
    rows = [row for row in delivery if row["qos"] == 2]
    return _percentiles(rows, "ms", "milliseconds", 10, ("latency", "Time until assured delivery"))


def lag_plot(lag: Rows) -> str:
    """Draw the time from event to arrival by gateway, p50 to maximum, for synchronised clocks."""
    rows = [row for row in lag if row["clock"]]
    return _percentiles(rows, "s", "seconds", 1, ("lag-plot", "Upstream lag"))


def _percentiles(
    rows: Rows, suffix: str, unit: str, linear: float, name_and_title: tuple[str, str]
) -> str:
    rows = [
        row for row in rows if all(row[f"{each}_{suffix}"] is not None for each in _PERCENTILES)
    ]
    chosen = sorted(rows, key=lambda row: (-row[f"p99_{suffix}"], row["gateway"]))[:ROWS]
    if not chosen:
        return ""
    with row_plot(_names(chosen, "gateway"), unit) as (figure, axes):
        places = range(len(chosen))
        low, high = (_values(chosen, f"{each}_{suffix}") for each in ("p50", "max"))
        axes.hlines(places, low, high, color=LINE, linewidth=2)
        for each, (colour, _, marker) in zip(_PERCENTILES, SERIES, strict=True):
            values = _values(chosen, f"{each}_{suffix}")
            axes.scatter(values, places, color=colour, marker=marker, s=22, zorder=3)
        axes.set_xscale("symlog", linthresh=linear)
        axes.set_xlim(left=min(low) / 2 if min(low) > linear else min(0, *low))
        label_numbers(axes.xaxis)
        looks = zip(_PERCENTILES, SERIES, strict=True)
        legend(figure, [_marker(label, look) for label, look in looks])
        worst = chosen[0]
        description = (
            f"{len(chosen)} of {formats.plural(len(rows), 'gateway')}. Slowest: "
            f"{worst['gateway']}, p50 {worst[f'p50_{suffix}']:,}, p99 {worst[f'p99_{suffix}']:,}, "
            f"maximum {worst[f'max_{suffix}']:,} {unit}."
        )
        return svg(figure, *name_and_title, description)


def queues_plot(queues: Rows) -> str:
    """Draw the number of items in each queue as last reported, the greatest first."""
    filled = [row for row in queues if (row["depth"] or 0) + (row["dead"] or 0)]
    filled.sort(key=lambda row: (-(row["depth"] or 0) - (row["dead"] or 0), _queue(row)))
    chosen = filled[:ROWS]
    if not chosen:
        return ""
    names = _names(chosen, "queue", alone=_is_of_one_gateway(queues))
    with row_plot(names, "items") as (figure, axes):
        left = [0] * len(chosen)
        for column, _, colour, hatch in _ITEMS:
            widths = [row[column] or 0 for row in chosen]
            filled_places = [at for at, width in enumerate(widths) if width]
            axes.barh(
                filled_places,
                [widths[at] for at in filled_places],
                left=[left[at] for at in filled_places],
                height=0.6,
                **_fill(colour, hatch),
            )
            left = [at + width for at, width in zip(left, widths, strict=True)]
        label_counts(axes.xaxis)
        legend(
            figure, [Patch(label=word, **_fill(colour, hatch)) for _, word, colour, hatch in _ITEMS]
        )
        description = (
            f"{len(chosen)} of {formats.plural(len(filled), 'queue')} with items. Most: "
            f"{_queue(chosen[0])}, {formats.count(left[0])} items."
        )
        return svg(figure, "queue-items", "Items in the queues", description)


def silence_plot(sensors: Rows) -> str:
    """Draw how long sensors have been silent, as multiples of their limit, the longest first."""
    known = [row for row in sensors if row["limit_s"] and row["silence_s"] is not None]
    known = [row | {"times": row["silence_s"] / row["limit_s"]} for row in known]
    order = sorted(known, key=lambda row: (-row["times"], _sensor(row)))[:ROWS]
    chosen = [row for at, row in enumerate(order) if at < MIN_SENSORS or row["times"] > 0.5]
    if not chosen:
        return ""
    names = _names(chosen, "sensor", alone=_is_of_one_gateway(sensors))
    looks = {"silent": (WRONG, "////"), "not silent": (CALM, "")}
    with row_plot(names, "times the limit of silence") as (figure, axes):
        for at, row in enumerate(chosen):
            look = looks["silent" if row["state"] == "silent" else "not silent"]
            axes.barh(at, row["times"], height=0.6, **_fill(*look))
        axes.axvline(1, color=INK, linewidth=1.2, linestyle="--")
        axes.set_xscale("symlog", linthresh=1)
        axes.set_xlim(left=0)
        label_numbers(axes.xaxis)
        handles: list[Artist] = [Patch(label=word, **_fill(*look)) for word, look in looks.items()]
        legend(figure, [*handles, Line2D([], [], color=INK, linestyle="--", label="limit")])
        silent = sum(row["state"] == "silent" for row in sensors)
        description = (
            f"{formats.plural(silent, 'sensor is', 'sensors are')} silent, of {len(sensors)}. "
            f"Longest relative to its limit: {_sensor(chosen[0])}, "
            f"{formats.duration(chosen[0]['silence_s'])}."
        )
        return svg(figure, "silence", "How long sensors have been silent", description)


def skew_plot(clocks: Rows) -> str:
    """Draw how far each clock is from the centre's, the farthest first."""
    return _clock_plot(clocks, "skew_s", "seconds ahead of the centre's clock", 1.0, "skew")


def drift_plot(clocks: Rows) -> str:
    """Draw how much too fast each clock runs, the worst first."""
    return _clock_plot(clocks, "drift_ppm", "parts per million too fast", 10.0, "drift")


def _clock_plot(rows: Rows, column: str, unit: str, linear: float, name: str) -> str:
    known = [row for row in rows if row[column] is not None]
    chosen = sorted(known, key=lambda row: (-abs(row[column]), row["gateway"]))[:ROWS]
    if not chosen:
        return ""
    looks = {"ok": SERIES[0], "wrong": SERIES[3]}
    with row_plot(_names(chosen, "gateway"), unit) as (figure, axes):
        for word, (colour, _, marker) in looks.items():
            is_ok = word == "ok"
            places = [at for at, row in enumerate(chosen) if (row["state"] == "ok") == is_ok]
            values = [chosen[at][column] for at in places]
            axes.hlines(places, 0, values, color=colour, linewidth=1.4)
            axes.scatter(values, places, color=colour, marker=marker, s=24, zorder=3)
        axes.axvline(0, color=SOFT, linewidth=1)
        known_values = _values(chosen, column)
        set_reach(axes, linear, min(*known_values, -linear), max(*known_values, linear))
        legend(figure, [_marker(word, look) for word, look in looks.items()])
        description = (
            f"{len(chosen)} of {formats.plural(len(known), 'gateway')}. Farthest: "
            f"{chosen[0]['gateway']}, {chosen[0][column]:+,.3g} {unit}."
        )
        return svg(figure, name, f"Clocks: {unit}", description)


def versions_plot(versions: Rows) -> str:
    """Draw how many gateways run each version now."""
    rows = [row for row in versions if row["current"]]
    if not rows:
        return ""
    chosen = sorted(rows, key=lambda row: (-row["current"], row["version"]))[:ROWS]
    unit = "gateways now; hatched: more errors than the version before"
    with row_plot(_names(chosen, "version"), unit, legends=0) as (figure, axes):
        for at, row in enumerate(chosen):
            look = _fill(WRONG, "////") if row["worse"] else _fill(FIRST, "")
            axes.barh(at, row["current"], height=0.6, **look)
        label_counts(axes.xaxis)
        description = ", ".join(f"{row['version']}: {row['current']}" for row in chosen)
        return svg(figure, "version-share", "Gateways by version", f"{description}.")


def forecast_plot(growth: Rows) -> str:
    """Draw in how many days storage will be full, with the 90 % interval, the soonest first."""
    forecasts = [row for row in growth if row["days_left"] is not None]
    known = [row for row in forecasts if row["days_left"] <= FORECAST_D]
    chosen = sorted(known, key=lambda row: (row["days_left"], row["gateway"]))[:ROWS]
    if not chosen:
        return ""
    unit = "days until full, with 90 % interval; diamond: soon"
    with row_plot(_names(chosen, "gateway"), unit, legends=0) as (figure, axes):
        for at, row in enumerate(chosen):
            colour, _, marker = SERIES[0] if row["state"] == "ok" else SERIES[3]
            ends = [row["days_low"], min(row["days_high"] or row["days_left"], FORECAST_D)]
            axes.plot(ends, [at, at], color=colour, linewidth=3, alpha=0.4)
            axes.plot(row["days_left"], at, color=colour, marker=marker)
        set_reach(axes, 10, 0, max(row["days_left"] for row in chosen))
        first = chosen[0]
        description = (
            f"{formats.plural(len(known), 'gateway')} of {len(forecasts)} with a forecast, of at "
            f"most {FORECAST_D} days. Soonest: {first['gateway']}, in "
            f"{formats.days(first['days_left'])} "
            f"({formats.days(first['days_low'])} to {formats.days(first['days_high'])})."
        )
        return svg(figure, "forecast", "Days until storage is full", description)


def running_plot(stretches: Rows, seen: Window | None, zone: tzinfo = UTC) -> str:
    """Draw the states of each gateway over the period `seen`; return "" if `seen` is None.

    A row of `stretches` is a time in which a gateway's state (see `_STATES`) did not change.
    """
    if seen is None:
        return ""
    drawn = [row for row in stretches if seen.contains(row["begin"], row["end"])]
    bad: dict[str, float] = {}
    for row in drawn:
        length = (row["end"] - row["begin"]) * (row["state"] in ("outage", "unknown"))
        bad[row["gateway"]] = bad.get(row["gateway"], 0.0) + length
    chosen = sorted(sorted(bad, key=lambda gateway: (-bad[gateway], gateway))[:GATEWAYS])
    names = [shortened(gateway) for gateway in chosen] if len(bad) > 1 else [""]
    with row_plot(names) as (figure, axes):
        for at, gateway in enumerate(chosen):
            _draw_states(axes, [row for row in drawn if row["gateway"] == gateway], at)
        label_times(axes, zone)
        legend(
            figure,
            [
                Patch(label=state, **_fill(colour, hatch))
                for state, (colour, _, hatch) in _STATES.items()
            ],
        )
        description = _running_description(bad, len(chosen)) + omitted(len(stretches) - len(drawn))
        return svg(figure, "running", "When gateways ran", description)


def _draw_states(axes: Axes, stretches: Rows, at: int) -> None:
    for state, (colour, height, hatch) in _STATES.items():
        bars = [
            (place(each["begin"]), (each["end"] - each["begin"]) / 86_400)
            for each in stretches
            if each["state"] == state
        ]
        axes.broken_barh(bars, (at - height / 2, height), **_fill(colour, hatch, 0.4))


def _running_description(bad: dict[str, float], drawn: int) -> str:
    whole = sum(length == 0 for length in bad.values())
    text = f"{drawn} of {len(bad)} gateways; {whole} of them without an outage or unknown time."
    worst = max(sorted(bad), key=lambda gateway: bad[gateway])
    if bad[worst]:
        text += f" Most outages and unknown time: {worst}, {formats.duration(bad[worst])}."
    return text


def activity_plot(activity: Rows, zone: tzinfo = UTC) -> str:
    """Draw how many events happened in each step of time, by lane; each has one row."""
    if not activity:
        return ""
    step_s = activity[0]["step_s"]
    below = dict.fromkeys(sorted({row["begin"] for row in activity}), 0)
    with new_plot(1.6) as (figure, axes):
        for lane, (colour, hatch) in _LANES.items():
            heights = {row["begin"]: row["events"] for row in activity if row["lane"] == lane}
            axes.bar(
                [place(begin) for begin in heights],
                list(heights.values()),
                width=step_s / 86_400,
                bottom=[below[begin] for begin in heights],
                align="edge",
                **_fill(colour, hatch, 0.4),
            )
            for begin, height in heights.items():
                below[begin] += height
        axes.set_ylabel(f"events in {formats.duration(step_s)}")
        label_counts(axes.yaxis)
        axes.grid(visible=False, axis="x")
        label_times(axes, zone)
        legend(figure, [Patch(label=lane, **_fill(*look)) for lane, look in _LANES.items()])
        most = max(below, key=lambda begin: below[begin])
        description = (
            f"{formats.count(sum(below.values()))} events; most of them, "
            f"{formats.count(below[most])}, in the {formats.duration(step_s)} from "
            f"{formats.named_moment(datetime.fromtimestamp(most, UTC), zone)}."
        )
        return svg(figure, "activity", "Events over time", description)


def depth_plot(depths: Rows, seen: Window | None, zone: tzinfo = UTC) -> str:
    """Draw the depths of the deepest queues over the period `seen`; return "" if `seen` is None."""
    if seen is None:
        return ""
    shown = [row for row in depths if seen.contains(row["at"], row["at"])]
    most: dict[tuple[str, str], float] = {}
    for row in shown:
        key = (row["queue"], row["gateway"])
        most[key] = max(most.get(key, 0), row["depth"])
    chosen = sorted(most, key=lambda key: (-most[key], key))[:QUEUES]
    alone = len({gateway for _, gateway in most}) == 1
    with new_plot(1.7, legends=2 if alone else QUEUES) as (figure, axes):
        handles = []
        for key, (colour, line, marker) in zip(chosen, SERIES, strict=False):
            points = sorted(
                (row["at"], row["depth"]) for row in shown if (row["queue"], row["gateway"]) == key
            )
            handles += axes.plot(
                [place(at) for at, _ in points],
                [depth for _, depth in points],
                label=shortened(key[0]) if alone else paired(key[1], key[0]),
                color=colour,
                linestyle=line,
                marker=marker,
                markevery=max(len(points) // 8, 1),
            )
        axes.set_ylim(bottom=0)
        axes.set_ylabel("items")
        label_counts(axes.yaxis)
        label_times(axes, zone)
        legend(figure, handles, columns=2 if alone else 1)
        description = (
            f"{len(chosen)} of {formats.plural(len(most), 'queue')}. Deepest: {chosen[0][0]} at "
            f"{chosen[0][1]}, {formats.count(most[chosen[0]])} items."
            f"{omitted(len(depths) - len(shown))}"
        )
        return svg(figure, "queue-depth", "Depth of queues over time", description)


def growth_plot(row: Row) -> str:
    """Draw how the storage of one gateway fills in the days after the report."""
    if row["trend_day"] is None:
        return ""
    ahead = min(max(row["days_left"] or 0, 7) * 1.3, FORECAST_D)
    days = [0.0, ahead]

    def line(trend: float | None) -> list[float]:
        return [(row["disk_used"] + (trend or 0) * day) / 2**20 for day in days]

    with new_plot(1.6) as (figure, axes):
        low, high = line(row["trend_low"]), line(row["trend_high"])
        band = axes.fill_between(days, low, high, color=FIRST, alpha=0.25, label="interval")
        forecast = axes.plot(days, line(row["trend_day"]), color=FIRST, label="forecast")
        limit = axes.axhline(row["cap"] / 2**20, color=INK, linestyle="--", label="limit")
        axes.set_ylim(bottom=0)
        axes.set_ylabel("MiB")
        axes.margins(x=0.01)
        label_numbers(axes.xaxis)
        axes.set_xlabel("days from this report on")
        legend(figure, [*forecast, limit, band])
        used, more, cap = (formats.size(row[name]) for name in ("disk_used", "trend_day", "cap"))
        description = f"{used} used, {more} more a day; the limit is {cap}."
        return svg(figure, "disk", "Storage used, and forecast", description)


def offset_plot(offsets: Rows, zone: tzinfo = UTC) -> str:
    """Draw how far the clock of one gateway was from the centre's over time."""
    points = sorted((row["at"], row["skew_s"]) for row in offsets if row["skew_s"] is not None)
    if len(points) < 2:
        return ""
    with new_plot(1.5, legends=0) as (figure, axes):
        colour, line, _ = SERIES[0]
        axes.plot(
            [place(at) for at, _ in points], [s for _, s in points], color=colour, linestyle=line
        )
        axes.set_ylabel("seconds ahead")
        label_times(axes, zone)
        low, high = min(s for _, s in points), max(s for _, s in points)
        span = f"Between {low:+.3g} and {high:+.3g} seconds."
        return svg(figure, "offset", "The gateway's clock against the centre's", span)


def sparkline(series: Rows, name: str, title: str) -> str:
    """Draw the readings of one sensor as a small plot without axes: mean, lowest and highest."""
    rows = sorted((row for row in series if row["mean"] is not None), key=lambda row: row["at"])
    if len(rows) < 2:
        return ""
    low, high = _values_or_mean(rows, "low"), _values_or_mean(rows, "high")
    bottom, top = min(low), max(high)
    begin, end = rows[0]["at"], rows[-1]["at"]

    def points(values: Sequence[float]) -> list[str]:
        across = ((row["at"] - begin) / ((end - begin) or 1) * 100 for row in rows)
        # Halved first, because the full range may exceed the largest float.
        span = top / 2 - bottom / 2
        up = ((value / 2 - bottom / 2) / span if span > 0 else 0.5 for value in values)
        return [f"{x:.2f},{38 - 36 * y:.2f}" for x, y in zip(across, up, strict=True)]

    band = " ".join([*points(high), *reversed(points(low))])
    line = " ".join(points(_values_or_mean(rows, "mean")))
    last = formats.decimal(rows[-1]["mean"])
    description = f"{formats.decimal(bottom)} to {formats.decimal(top)}, last {last}"
    return (
        f'<svg viewBox="0 0 100 40" preserveAspectRatio="none" role="img" '
        f'aria-labelledby="{name}-title {name}-description"><title id="{name}-title">'
        f'{html.escape(title)}</title><desc id="{name}-description">{description}</desc>'
        f'<path class="band" d="M{band}Z"/><path d="M{line}"/></svg>'
    )


def _fill(colour: str, hatch: str, linewidth: float = 0.6) -> dict[str, Any]:
    return {
        "facecolor": "none" if hatch else colour,
        "edgecolor": colour,
        "hatch": hatch,
        "linewidth": linewidth,
    }


def _marker(label: str, look: tuple[str, str, str]) -> Artist:
    colour, _, marker = look
    return Line2D([], [], color=colour, marker=marker, linestyle="none", label=label)


def _values(rows: Rows, name: str) -> list[Any]:
    return [row[name] for row in rows]


def _values_or_mean(rows: Rows, name: str) -> list[float]:
    return [row["mean"] if row.get(name) is None else row[name] for row in rows]


def _is_of_one_gateway(rows: Rows) -> bool:
    return len({row["gateway"] for row in rows}) == 1


def _names(rows: Rows, name: str, *, alone: bool = True) -> list[str]:
    """Return labels of rows: their column `name`, after the gateway's name unless `alone`."""
    if alone:
        return [shortened(row[name]) for row in rows]
    return [paired(row["gateway"], row[name]) for row in rows]


def _queue(row: Row) -> str:
    return f"{row['queue']} at {row['gateway']}"


def _sensor(row: Row) -> str:
    return f"{row['sensor']} at {row['gateway']}"


def period(rows: Rows, begin: str, end: str, now: float) -> Window | None:
    """Choose the period to show, as of `now`, from columns `begin` and `end` (see `window`)."""
    return window(((row[begin], row[end]) for row in rows), now)


def fleet_activity(activity: Rows) -> Rows:
    """Add up the activity of all gateways by time and lane; several rows may be of one of these."""
    sums: dict[tuple[int, str, int], int] = {}
    for row in activity:
        key = (row["begin"], row["lane"], row["step_s"])
        sums[key] = sums.get(key, 0) + row["events"]
    return [
        {"begin": begin, "lane": lane, "step_s": step_s, "events": sums[begin, lane, step_s]}
        for begin, lane, step_s in sorted(sums)
    ]


def _running(found: Findings) -> Plot:
    rows = found["stretches"]
    return Plot(
        running_plot, rows, period(rows, "begin", "end", found.as_of.timestamp()), found.zone
    )


def _depths(found: Findings) -> Plot:
    rows = found["queue_depths"]
    return Plot(depth_plot, rows, period(rows, "at", "at", found.as_of.timestamp()), found.zone)


Plot = partial[str]
"""A function that draws a plot, with its arguments."""

Plots = Callable[[Findings], list[Plot]]

_ON_EVERY_PAGE: Final[dict[str, Plots]] = {
    "queues": lambda found: [_depths(found), Plot(queues_plot, found["queues"])],
    "sensors": lambda found: [Plot(silence_plot, found["sensors"])],
}
_ON_FLEET_PAGE: Final[dict[str, Plots]] = _ON_EVERY_PAGE | {
    "availability": lambda found: [_running(found)],
    "delivery": lambda found: [Plot(latency_plot, found["delivery"])],
    "lag": lambda found: [Plot(lag_plot, found["lag"])],
    "clocks": lambda found: [Plot(skew_plot, found["clocks"]), Plot(drift_plot, found["clocks"])],
    "versions": lambda found: [Plot(versions_plot, found["versions"])],
    "growth": lambda found: [Plot(forecast_plot, found["growth"])],
    "totals": lambda found: [Plot(activity_plot, fleet_activity(found["activity"]), found.zone)],
}
_ON_GATEWAY_PAGE: Final[dict[str, Plots]] = _ON_EVERY_PAGE | {
    "availability": lambda found: [
        _running(found),
        Plot(activity_plot, found["activity"], found.zone),
    ],
    "clocks": lambda found: [Plot(offset_plot, found["clock_offsets"], found.zone)],
    "growth": lambda found: [Plot(growth_plot, row) for row in found["growth"]],
}


def plots_of(
    report: str, findings: Findings, cached: CachedPlots, *, of_gateway: bool = False
) -> list[str]:
    """Return the plots above a report's table, on the fleet's page or on a gateway's own.

    Plots that are in `cached` are not drawn again.
    """
    plots = (_ON_GATEWAY_PAGE if of_gateway else _ON_FLEET_PAGE).get(report)
    drawings = (draw(plot, cached) for plot in plots(findings)) if plots else ()
    return [plot for plot in drawings if plot]
