"""How every plot is drawn: its size, its colours, its axes of time, and the SVG that it becomes.

Colours are the page's variables, so that light and dark are the page's business; states differ in
shape too, for whoever sees no colours. The same rows give the same bytes. Knows no report.
"""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from math import ceil, floor
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from sync.pages import text as words

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

WIDTH: Final = 4.7
"""Inches, of 72 points: a phone shows 338 points nearly as they are, a desktop larger."""

ROW: Final = 0.23
"""Inches that a gateway, a sensor or a queue takes where each has a row of its own."""

_PAIR: Final = 14
"""Letters of each of two names that make one label."""

_LETTER: Final = 0.078
"""Inches that a letter takes at most, in the middle of a word."""

_FIGURES: Final = 9
"""Letters that there is room for at the left of a plot without names: figures and their unit."""

_LEGEND: Final = 0.2
"""Inches that a line of a legend takes."""

NAME: Final = 20
"""Characters of a name that a plot has room for; the table behind it has all of it."""

INK, SOFT, LINE, CARD = "#010101", "#010102", "#010103", "#010104"
GOOD, CALM, WRONG, UNKNOWN = "#020201", "#020202", "#020203", "#020204"
FIRST, SECOND, THIRD = "#030301", "#030302", "#030303"

_VARIABLES: Final = {
    INK: "var(--ink)",
    SOFT: "var(--soft)",
    LINE: "var(--line)",
    CARD: "var(--card)",
    GOOD: "var(--good)",
    CALM: "var(--calm)",
    WRONG: "var(--wrong)",
    UNKNOWN: "var(--unknown)",
    FIRST: "var(--first)",
    SECOND: "var(--second)",
    THIRD: "var(--third)",
}
"""Colours that nobody would choose, each for a variable of the page."""

SERIES: Final = ((FIRST, "-", "o"), (SECOND, "--", "s"), (THIRD, ":", "^"), (WRONG, "-.", "D"))
"""Colour, line and mark of each series of a plot: any one of them tells the series apart."""

_FIRST_S: Final = -62_135_596_800
_LAST_S: Final = 253_402_300_799
"""Seconds since 1970: the years 1 to 9999, which have a date. A gateway may tell any of them."""

_LEAST_S: Final = 6
"""Seconds that an axis of time spans at least: its ticks are whole seconds then."""

_STEPS_S: Final = (
    *(1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 1_800),
    *(3_600, 7_200, 10_800, 21_600, 43_200),
    *(86_400 * days for days in (1, 2, 4, 7, 14, 28, 56, 112, 224, 448, 896, 1_792, 3_584)),
)
"""Seconds between two ticks of an axis of time."""

_YEAR_S: Final = 300 * 86_400
"""Seconds from which on a day is written with its year: below, the line under the axis has it."""

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
def drawn(
    body: float, names: Sequence[str] = (), legends: int = 1
) -> Iterator[tuple[Figure, Axes]]:
    """Give a figure in the page's style, with axes `body` inches high.

    `names` are those of its rows, short enough, for which there is room at the left; `legends` are
    lines of the legend above it. Where everything stands is reckoned: to measure it takes as long
    again as to draw.
    """
    longest = max((len(name) for name in names), default=_FIGURES)
    left = _LETTER * longest + 0.15
    top, bottom = _LEGEND * legends + 0.06, 0.44
    height = top + body + bottom
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH, height))
        place_in = (left / WIDTH, bottom / height, 1 - (left + 0.16) / WIDTH, body / height)
        yield figure, figure.add_axes(place_in)


def rows_axis(axes: Axes, names: Sequence[str]) -> None:
    """Label a row of the plot with each name, the first one at the top."""
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")


def height_of(rows: int) -> float:
    """Give the inches that so many rows need."""
    return 0.1 + ROW * rows


def shortened(name: str, most: int = NAME) -> str:
    """Leave the middle out of a name of more than `most` letters: its ends tell it apart."""
    if len(name) <= most:
        return name
    return f"{name[: most // 2]}…{name[-(most // 2 - 1) :]}"


def paired(gateway: str, name: str) -> str:
    """Name what is at a gateway, both parts short enough for the label of a row."""
    return f"{shortened(gateway, _PAIR)} {shortened(name, _PAIR)}"


def elsewhere(number: int) -> str:
    """Say that so much lies at times that are not drawn; "" where nothing does."""
    return f" Not drawn, as clocks put it at other times: {words.count(number)}." if number else ""


def place(seconds: float) -> float:
    """Give the place of a time on the axis, which matplotlib counts in days since 1970."""
    return seconds / 86_400


def counted(axis: Axis) -> None:
    """Have whole numbers alone on an axis."""
    axis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    figures(axis)


def figures(axis: Axis) -> None:
    """Write the figures of an axis as the tables do."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: words.figure(value)))


def times(axes: Axes, ticks: int = 4) -> None:
    """Label the axis with `ticks` times, at most, and tell its days in full below."""
    axes.margins(x=0.01)
    left, right = (min(max(at * 86_400, _FIRST_S), _LAST_S) for at in axes.get_xlim())
    right = max(right, left + _LEAST_S)
    left = min(left, _LAST_S - _LEAST_S)
    right = min(right, _LAST_S)
    axes.set_xlim(place(left), place(right))
    step = next((step for step in _STEPS_S if (right - left) / step < ticks), _STEPS_S[-1])
    while (right - left) / step >= ticks:
        step *= 2
    marked = [at * step for at in range(ceil(left / step), floor(right / step) + 1)]
    first, last = (datetime.fromtimestamp(at, UTC).date().isoformat() for at in (left, right))
    form = "%H:%M:%S" if step < 60 else "%H:%M"
    if first != last:
        form = "%m-%d" if step >= 86_400 else "%m-%d %H:%M"
    if right - left >= _YEAR_S:
        form = "%Y-%m-%d"
    labels = [datetime.fromtimestamp(at, UTC).strftime(form) for at in marked]
    axes.set_xticks([place(at) for at in marked], labels)
    axes.set_xlabel(f"{first}, UTC" if first == last else f"{first} to {last}, UTC")


def legend(figure: Figure, handles: Sequence[Artist], columns: int = 4) -> None:
    """Tell what the marks mean, above the plot and from the left, where reading begins."""
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


def svg(figure: Figure, name: str, title: str, told: str) -> str:
    """Write the figure as SVG to be set into a page, under a `name` that is the page's only one.

    `title` and `told` are its alternative in words. It has no date, no prologue and no metadata.
    """
    target = io.StringIO()
    with mpl.rc_context(_STYLE | {"svg.hashsalt": f"fieldpost-{name}"}), warnings.catch_warnings():
        # Letters are drawn in the page's font: which ones there are in ours is no matter.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        figure.savefig(target, format="svg", transparent=True, metadata={"Date": None})
    text = target.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    used = set(re.findall(r'<[^>]*(?:xlink:href="|url\()#([^")]+)[^>]*>', text))
    # Nothing but tags is changed: what is between them may be a name from outside.
    text = re.sub(r"<[^>]*>", lambda tag: _in_page(tag[0], name, used), text)
    box = re.search(r'viewBox="[^"]*"', text)
    head = (
        f'<svg {box[0] if box else ""} role="img" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'aria-labelledby="{name}-title {name}-told">'
        f'<title id="{name}-title">{html.escape(title)}</title>'
        f'<desc id="{name}-told">{html.escape(told)}</desc>'
    )
    return head + text[text.index(">") + 1 :].rstrip()


def _in_page(tag: str, name: str, used: set[str]) -> str:
    """Give a tag the page's colours and ids of its own, and shorten its path.

    Letters are the page's. Paths are rounded to hundredths of a point: no screen shows more. An id
    that nothing refers to goes; the others get the plot's name before them, as a page has many.
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
