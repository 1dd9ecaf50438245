"""Writes the report: a page for the fleet, one for each gateway, a CSV for each table, one JSON.

Every page needs no other file to be read, no JavaScript and no network. Every file is replaced
whole, and the same rows give the same bytes. Computes nothing but text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from sync.common.durable_files import replace_file
from sync.pages import sections
from sync.pages import text as words
from sync.pages.by_gateway import PAGES, by_gateway, page_name
from sync.pages.column import look
from sync.pages.files import report_document, report_json, table_csv
from sync.pages.layout import LAYOUTS, rows_of
from sync.pages.overview import facts, overview, tiles
from sync.pages.problem import Group, Problem, grouped
from sync.pages.summary import problems, totals, verdict
from sync.reports.gather import Findings

__all__ = ["report_document", "write_report"]

READABLE: Final = 0o644
"""A report is for others to read: it holds names and figures, no key and no message."""

SHOWN: Final = 6
"""Problems of a group that are told at once."""

FOLDED: Final = 200
"""Problems of a group that can be unfolded: nobody reads more; report.json has all."""


_STEERING: Final = {
    code: chr(code).encode("unicode_escape").decode()
    for code in (
        *(*range(9), 11, 12, *range(14, 32), *range(127, 160)),
        *(0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)),
    )
}
"""Characters that have no place on a page, each as it is written there: controls, and what turns
round the text that follows. A name from outside may have them."""


class Item(NamedTuple):
    """A problem in its group: the page of its gateway, or "", and the rest of its place."""

    problem: Problem
    page: str
    rest: str


@dataclass(frozen=True, slots=True)
class Told:
    """A group of problems as a page tells it. `left` counts those that are in the JSON alone."""

    weight: str
    title: str
    remedy: Markup
    shown: list[Item]
    rest: list[Item]
    left: int


class Neighbour(NamedTuple):
    """Another gateway's page, by its file name."""

    gateway: str
    page: str


def write_report(found: Findings, folder: Path) -> Path:
    """Write all files of the report into `folder`, made when missing; gives the fleet's page.

    Pages of gateways of which there is no row any more stay as they are, and nothing leads there.
    Raises OSError when the disk refuses.
    """
    (folder / PAGES).mkdir(parents=True, exist_ok=True)
    for layout in LAYOUTS:
        _write(folder / f"{layout.name}.csv", table_csv(layout, rows_of(found, layout.name)))
    _write(folder / "report.json", report_json(found))
    for name, page in gateway_pages(found):
        _write(folder / PAGES / name, page)
    index = folder / "index.html"
    _write(index, fleet_page(found))
    return index


def fleet_page(found: Findings) -> str:
    """Write the fleet's page: what is wrong first, then the gateways, the plots and the tables."""
    told = problems(found)
    sums = totals(found)
    pages = {gateway: f"{PAGES}/{page_name(gateway)}" for gateway in by_gateway(found)}
    return _render(
        "fleet.html.jinja",
        found,
        verdict(told, sums["events"]),
        groups=[_told(group, pages) for group in grouped(told)],
        sections=sections.of_fleet(found),
        overview=overview(found, told, pages),
        tiles=tiles(found, sums),
        pages=pages,
        root="",
    )


def gateway_pages(found: Findings) -> Iterator[tuple[str, str]]:
    """Write the page of each gateway, in the order of their names: its file name, and the page."""
    each = by_gateway(found)
    neighbours = [Neighbour(gateway, page_name(gateway)) for gateway in each]
    for at, (gateway, own) in enumerate(each.items()):
        told = problems(own)
        received = sum(row["received"] for row in own.completeness)
        yield (
            neighbours[at].page,
            _render(
                "gateway.html.jinja",
                found,
                verdict(told, received),
                gateway=gateway,
                groups=[_told(group, {}) for group in grouped(told)],
                sections=sections.of_gateway(own),
                facts=facts(own),
                before=neighbours[at - 1] if at else None,
                after=neighbours[at + 1] if at + 1 < len(neighbours) else None,
                pages={},
                root="../",
            ),
        )


def coded(text: str) -> Markup:
    """Escape a text, and set what stands between two backticks as code."""
    parts = str(escape(text)).split("`")
    code = [f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts)]
    return Markup("".join(code))  # noqa: S704 - escaped above


def breakable(name: str) -> Markup:
    """Escape a name, and let a line end after each of its dots."""
    return Markup(".<wbr>").join(name.split("."))


def _told(group: Group, pages: Mapping[str, str]) -> Told:
    items = [_item(problem, pages) for problem in group.problems]
    return Told(
        group.problems[0].weight,
        group.title if pages else group.headline,
        coded(group.problems[0].remedy),
        items[:SHOWN],
        items[SHOWN : SHOWN + FOLDED],
        max(len(items) - SHOWN - FOLDED, 0),
    )


def _item(problem: Problem, pages: Mapping[str, str]) -> Item:
    page = pages.get(problem.gateway, "")
    rest = problem.where
    if problem.gateway:
        rest = rest.removeprefix(problem.gateway)
    return Item(problem, page, rest if page else rest.removeprefix(", "))


def _render(template: str, found: Findings, said: tuple[str, str], **more: Any) -> str:
    kind, sentence = said
    page = _ENVIRONMENT.get_template(template).render(
        as_of=words.moment(found.as_of),
        since=words.day(found.since) if found.since else "",
        kind=kind,
        sentence=sentence,
        **more,
    )
    return page.translate(_STEERING)


def _write(path: Path, text: str) -> None:
    replace_file(path, text.encode(), READABLE)


_ENVIRONMENT: Final = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.globals.update(breakable=breakable, count=words.count, look=look)
