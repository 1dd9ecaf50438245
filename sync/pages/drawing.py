"""The style of all plots: size, colours, time axes, and conversion to SVG.

Colours are CSS variables of the page, so that the page chooses between light and dark. States
differ in shape too, for readers who see no colours. The same rows give the same bytes.
"""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, tzinfo
from math import ceil, floor
from typing import Any, Final

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from sync.reports.shared import formats

WIDTH: Final = 4.7
"""Width of a plot in inches of 72 points. A phone shows its 338 points nearly in full size; a
desktop enlarges them."""

ROW: Final = 0.23
"""Height in inches of the row of a gateway, sensor or queue."""

NAME: Final = 20
"""Maximum number of characters of a name in a plot; a longer name is shortened."""

_PAIR: Final = 14
"""Maximum characters of each name in a label with two names (gateway and queue or sensor)."""

_LETTER: Final = 0.078
"""Greatest width of a letter, in inches."""

_FIGURES: Final = 9
"""Room at the left of a plot without row names, in characters: for the axis' numbers and unit."""

_LEGEND: Final = 0.2
"""Height in inches of a line of the legend."""

INK, SOFT, LINE = "#010101", "#010102", "#010103"
GOOD, CALM, WRONG, UNKNOWN = "#020201", "#020202", "#020203", "#020204"
FIRST, SECOND, THIRD = "#030301", "#030302", "#030303"

_VARIABLES: Final = {
    INK: "var(--ink)",
    SOFT: "var(--soft)",
    LINE: "var(--line)",
    GOOD: "var(--good)",
    CALM: "var(--calm)",
    WRONG: "var(--wrong)",
    UNKNOWN: "var(--unknown)",
    FIRST: "var(--first)",
    SECOND: "var(--second)",
    THIRD: "var(--third)",
}
"""Placeholder colours, each of which becomes a CSS variable of the page."""

SERIES: Final = ((FIRST, "-", "o"), (SECOND, "--", "s"), (THIRD, ":", "^"), (WRONG, "-.", "D"))
"""Colour, line and marker of each series of a plot. Each of the three differs between series."""

_FIRST_S: Final = -62_135_596_800
_LAST_S: Final = 253_402_300_799
"""`_FIRST_S` and `_LAST_S` are the first and last second, since 1970, of the years 1 to 9999.
Python's dates have no other years, but a gateway can send any time."""

_DAY_S: Final = 86_400

_MIN_SPAN_S: Final = 6
"""Minimum seconds of a time axis, so that its ticks are whole seconds."""

_STEPS_S: Final = (
    *(1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 1_800),
    *(3_600, 7_200, 10_800, 21_600, 43_200),
    *(86_400 * days for days in (1, 2, 4, 7, 14, 28, 56, 112, 224, 448, 896, 1_792, 3_584)),
)
"""Possible intervals between two ticks of a time axis, in seconds."""

_TICKS: Final = 4
"""Maximum labels of a time axis: dates are long, and the names of rows can halve its length."""

_YEAR_S: Final = 300 * 86_400
"""Length of a time axis in seconds from which the labels of its ticks include the year."""

_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": LINE,
    "axes.labelcolor": SOFT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "hatch.linewidth": 1.2,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
}


@contextmanager
def new_plot(
    body: float, names: Sequence[str] = (), legends: int = 1
) -> Iterator[tuple[Figure, Axes]]:
    """Create a figure in the page's style, with axes `body` inches high.

    `names` are the shortened names of the plot's rows, for which room is left at its left side;
    `legends` is the number of lines of the legend above the plot. The layout is computed rather
    than measured, because measuring takes as long as drawing.
    """
    longest = max((len(name) for name in names), default=_FIGURES)
    left = _LETTER * longest + 0.15
    top, bottom = _LEGEND * legends + 0.06, 0.44
    height = top + body + bottom
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH, height))
        rectangle = (left / WIDTH, bottom / height, 1 - (left + 0.16) / WIDTH, body / height)
        yield figure, figure.add_axes(rectangle)


@contextmanager
def row_plot(
    names: Sequence[str], unit: str = "", legends: int = 1
) -> Iterator[tuple[Figure, Axes]]:
    """Create a figure with a row for each of `names`, the first at the top; see `new_plot`.

    `unit` is the label of the horizontal axis.
    """
    with new_plot(0.1 + ROW * len(names), names, legends) as (figure, axes):
        axes.set_xlabel(unit)
        axes.set_yticks(range(len(names)), names)
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        yield figure, axes


def shortened(name: str, most: int = NAME) -> str:
    """Leave out the middle of a name of more than `most` characters."""
    if len(name) <= most:
        return name
    return f"{name[: most // 2]}…{name[-(most // 2 - 1) :]}"


def paired(gateway: str, name: str) -> str:
    """Return a label with the shortened names of a gateway and of one of its queues or sensors."""
    return f"{shortened(gateway, _PAIR)} {shortened(name, _PAIR)}"


def omitted(number: int) -> str:
    """Return a sentence about `number` values outside the plotted period; "" for 0."""
    return (
        " Values not shown, because a wrong clock dates them outside this period: "
        f"{formats.count(number)}."
        if number
        else ""
    )


def place(seconds: float) -> float:
    """Convert seconds since 1970 to days since 1970, in which matplotlib counts on a time axis."""
    return seconds / 86_400


def label_counts(axis: Axis) -> None:
    """Label an axis with whole numbers."""
    axis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    label_numbers(axis)


def label_numbers(axis: Axis) -> None:
    """Label an axis with numbers, formatted as in the report's tables."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: formats.axis_number(value)))


def set_reach(axes: Axes, linear: float, low: float, high: float) -> None:
    """Limit a horizontal axis to `low` and `high`; it is linear up to `linear`, then logarithmic.

    There is room for markers at both ends. If there are values above zero, the axis reaches at
    least to `linear`, and likewise below zero, so that an axis of small values has plain ticks.
    """
    axes.set_xscale("symlog", linthresh=linear)
    left, right = (1.5 * max(reach, linear) if reach else 0.0 for reach in (-low, high))
    axes.set_xlim(-left, right)
    label_numbers(axes.xaxis)


def label_times(axes: Axes, zone: tzinfo = UTC) -> None:
    """Label the horizontal axis with a few times in `zone` and, below, its first and last day."""
    axes.margins(x=0.01)
    left, right = (min(max(at * 86_400, _FIRST_S), _LAST_S) for at in axes.get_xlim())
    right = max(right, left + _MIN_SPAN_S)
    left = min(left, _LAST_S - _MIN_SPAN_S)
    right = min(right, _LAST_S)
    axes.set_xlim(place(left), place(right))
    step = next((step for step in _STEPS_S if (right - left) / step < _TICKS), _STEPS_S[-1])
    while (right - left) / step >= _TICKS:
        step *= 2
    ahead = {at: _ahead_s(at, zone) for at in (left, right)}
    begin, end = (at + ahead[at] for at in (left, right))
    marked = [at * step for at in range(ceil(begin / step), floor(end / step) + 1)]
    first, last = (_wall(at).date().isoformat() for at in (begin, end))
    form = "%H:%M:%S" if step < 60 else "%H:%M"
    day = "%Y-%m-%d" if right - left >= _YEAR_S else "%m-%d"
    # A tick at midnight has its day, so that the others need none.
    labels = [_wall(at).strftime(form if first == last or at % _DAY_S else day) for at in marked]
    axes.set_xticks([place(at - _ahead_s(at - ahead[left], zone)) for at in marked], labels)
    days = first if first == last else f"{first} to {last}"
    axes.set_xlabel(f"{days}, {formats.zone_name(zone)}")


def _wall(seconds: float) -> datetime:
    """Return the date and time of `seconds` since 1970, limited to the years 1 to 9999."""
    return datetime.fromtimestamp(min(max(seconds, _FIRST_S), _LAST_S), UTC)


def _ahead_s(seconds: float, zone: tzinfo) -> float:
    """Return how many seconds a zone is ahead of UTC at the time `seconds` since 1970."""
    inside = min(max(seconds, _FIRST_S + _DAY_S), _LAST_S - _DAY_S)
    ahead = datetime.fromtimestamp(inside, UTC).astimezone(zone).utcoffset()
    return ahead.total_seconds() if ahead else 0.0


def legend(figure: Figure, handles: Sequence[Artist], columns: int = 4) -> None:
    """Draw a legend above the plot, from the left."""
    columns = min(len(handles), columns)
    figure.legend(
        handles=list(handles),
        ncols=columns,
        handlelength=1.8,
        columnspacing=1.2,
        labelspacing=0.2,
        borderpad=0.1,
        borderaxespad=0.2,
        loc="upper left",
    )


def svg(figure: Figure, name: str, title: str, description: str) -> str:
    """Return the figure as SVG for a page in which no other plot has this `name`.

    `title` and `description` are the plot's text alternative. The SVG has no date and no metadata.
    """
    target = io.StringIO()
    with mpl.rc_context(_STYLE | {"svg.hashsalt": f"fieldpost-{name}"}), warnings.catch_warnings():
        # Text is drawn in the page's font, so it does not matter what matplotlib's font lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        figure.savefig(target, format="svg", transparent=True, metadata={"Date": None})
    text = target.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    used = set(re.findall(r'<[^>]*(?:xlink:href="|url\()#([^")]+)[^>]*>', text))
    # Only tags are changed, because the text between them may be a name from outside.
    text = re.sub(r"<[^>]*>", lambda tag: _adapted(tag[0], name, used), text)
    box = re.search(r'viewBox="[^"]*"', text)
    head = (
        f'<svg {box[0] if box else ""} role="img" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'aria-labelledby="{name}-title {name}-description">'
        f'<title id="{name}-title">{html.escape(title)}</title>'
        f'<desc id="{name}-description">{html.escape(description)}</desc>'
    )
    return head + text[text.index(">") + 1 :].rstrip()


def _adapted(tag: str, name: str, used: set[str]) -> str:
    """Adapt a tag to the page: its colours and font, unique ids, and shorter paths.

    Paths are rounded to hundredths of a point, which no screen resolves. Ids that are not in
    `used` are removed; the others get the plot's name as prefix, because a page has many plots.
    """
    tag = re.sub(r' d="[^"]*"', lambda path: _rounded(path[0]), tag)
    tag = re.sub(r"font-family: [^;]*; ", "", tag)
    tag = re.sub(
        r' id="([^"]*)"', lambda found: f' id="{name}-{found[1]}"' if found[1] in used else "", tag
    )
    tag = re.sub(r'(xlink:href="|url\()#([^")]+)', rf"\1#{name}-\2", tag)
    for colour, variable in _VARIABLES.items():
        tag = tag.replace(colour, variable)
    return tag


def _rounded(path: str) -> str:
    return re.sub(r"(\.\d\d)\d+", r"\1", path.replace("\n", ""))
