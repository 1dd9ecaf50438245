"""The HTML pages of a report: one for the fleet, one for each gateway, and lists of gateways.

A page needs no other file, no JavaScript and no network, and the same findings give the same bytes.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from typing import Any, Final, NamedTuple

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from sync.pages import overview, sections, trends
from sync.pages.plot_cache import CachedPlots
from sync.reports.shared import formats
from sync.reports.shared.by_gateway import by_gateway
from sync.reports.shared.findings import Findings
from sync.reports.shared.registry import PROBLEM_KINDS
from sync.reports.shared.report import Problem
from sync.segment.identity import is_gateway

_NONE: Final[CachedPlots] = {}

PAGES: Final = "gateways"
"""The folder of the gateways' pages, beside the fleet's page."""

SHOWN: Final = 6
"""Number of problems of a group that are shown without unfolding."""

FOLDED: Final = 200
"""Maximum number of problems in the folded part of a group; `files.SUMMARY` has all problems."""

TERMS: Final = {
    "custody": "The gateway's responsibility for a message that it has accepted, until it is "
    "delivered.",
    "epoch": "The period in which a gateway numbers its events in one sequence. It begins a new "
    "epoch, counting from 1 again, when its database is new or was restored.",
    "heartbeat": "An event that a running gateway records at regular intervals, usually once a "
    "minute.",
    "lane": "A sequence of events that a gateway numbers separately: readings, logs, or system "
    "events.",
    "segment": "A file of consecutive events of one lane, which a gateway sends to the centre.",
}
"""Terms of Fieldpost that the pages use, with the explanations that they show."""

_TEMPLATES: Final = (
    *("base.html.jinja", "fleet.html.jinja", "fleets.html.jinja", "gateway.html.jinja"),
    *("list.html.jinja", "parts.jinja"),
)

_TERM: Final = re.compile(rf"\b({'|'.join(TERMS)})(s?)\b", re.IGNORECASE)

_HEADLINES: Final = {kind.name: kind.headline for kind in PROBLEM_KINDS}

_CONTROLS: Final = {
    code: chr(code).encode("unicode_escape").decode()
    for code in (
        *(*range(9), 11, 12, *range(14, 32), *range(127, 160)),
        *(0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)),
    )
}
"""Control characters, and characters that change the direction of text, mapped to escapes: a name
from outside may contain them."""

_CONTROL: Final = re.compile(f"[{re.escape(''.join(map(chr, _CONTROLS)))}]")


class Group(NamedTuple):
    """Problems with the same weight, kind and remedy.

    `title` is the problem in a few words, with the number of gateways if there are several. `shown`
    is visible, `rest` unfolds, and `left` counts the problems that only `files.SUMMARY` has.
    """

    weight: str
    title: str
    remedy: str
    shown: list[Problem]
    rest: list[Problem]
    left: int


def fleet_page(
    findings: Findings, cached: CachedPlots = _NONE, *, only_problems: bool = False
) -> str:
    """Render the fleet's page: the problems first, then the gateways and the reports.

    `cached` has the plots of the page that this page replaces. With `only_problems`, the page links
    to the pages of gateways with problems only.
    """
    problems = overview.find_problems(findings)
    sums = overview.totals(findings)
    pages = _paths(findings, only_problems=only_problems)
    return render(
        "fleet.html.jinja",
        findings,
        verdict=overview.verdict(problems, sums["events"]),
        groups=grouped(problems),
        sections=sections.sections_of(findings, cached),
        overview=overview.overview(findings, problems, pages),
        summary=overview.summary(findings),
        tiles=overview.tiles(findings, sums),
        note=trends.note(findings),
        pages=pages,
        root="",
    )


def list_pages(findings: Findings, *, only_problems: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the file name and the content of each page of the list of gateways of a large fleet.

    `only_problems` is that of `fleet_page`.
    """
    problems = overview.find_problems(findings)
    pages = _paths(findings, only_problems=only_problems)
    parts = overview.overview(findings, problems, pages).parts
    for number, part in enumerate(parts):
        yield (
            part.page,
            render(
                "list.html.jinja",
                findings,
                part=part,
                before=parts[number - 1] if number else None,
                after=parts[number + 1] if number + 1 < len(parts) else None,
            ),
        )


def gateway_page(
    own: Findings, gateway: str, gateways: Sequence[str], cached: CachedPlots = _NONE
) -> str:
    """Render the page of a gateway, whose findings are `own`.

    It links to those before and after it in `gateways`, the sorted names of all that have a page.
    `cached` has the plots of the page that this page replaces.
    """
    at = bisect_left(gateways, gateway)
    problems = overview.find_problems(own)
    received = sum(row["received"] for row in own["completeness"])
    return render(
        "gateway.html.jinja",
        own,
        verdict=overview.verdict(problems, received),
        gateway=gateway,
        groups=grouped(problems),
        sections=sections.sections_of(own, cached, of_gateway=True),
        facts=overview.facts(own),
        summary="",
        note=trends.note(own),
        before=gateways[at - 1] if at else "",
        after=gateways[at + 1] if at + 1 < len(gateways) else "",
        pages={},
        root="../",
    )


def with_page(findings: Findings, *, only_problems: bool) -> list[str]:
    """Return the gateways that have a page, sorted: all, or those with problems (`wrong`)."""
    gateways = list(by_gateway(findings))
    if not only_problems:
        return gateways
    problems = overview.find_problems(findings)
    wrong = {problem.gateway for problem in problems if problem.weight == "wrong"}
    return [gateway for gateway in gateways if gateway in wrong]


def _paths(findings: Findings, *, only_problems: bool) -> dict[str, str]:
    """Return the path of the page of each gateway, "" if it has none."""
    paths = {
        gateway: f"{PAGES}/{page_name(gateway)}"
        for gateway in with_page(findings, only_problems=only_problems)
    }
    return {gateway: paths.get(gateway, "") for gateway in by_gateway(findings)}


def page_name(gateway: str) -> str:
    """Return the file name of a gateway's page.

    A name that is not a valid gateway name could be a path; it is replaced by a name that no
    gateway can have.
    """
    if is_gateway(gateway):
        return f"{gateway}.html"
    return f"_{hashlib.sha256(gateway.encode()).hexdigest()[:32]}.html"


def grouped(problems: Iterable[Problem]) -> list[Group]:
    """Group problems with the same weight, kind and remedy; keep their order."""
    groups: dict[tuple[str, str, str], list[Problem]] = {}
    for problem in problems:
        groups.setdefault((problem.weight, problem.kind, problem.remedy), []).append(problem)
    return [_group(*key, each) for key, each in groups.items()]


def _group(weight: str, kind: str, remedy: str, problems: list[Problem]) -> Group:
    gateways = {problem.gateway for problem in problems if problem.gateway}
    title = _HEADLINES.get(kind, kind)  # a report of several fleets may have newer kinds
    if len(gateways) > 1:
        title = f"{formats.plural(len(gateways), 'gateway')}: {title}"
    left = max(len(problems) - SHOWN - FOLDED, 0)
    title = title[0].upper() + title[1:]
    return Group(weight, title, remedy, problems[:SHOWN], problems[SHOWN : SHOWN + FOLDED], left)


def explained(text: str) -> Markup:
    """Escape a text, mark up code between backticks, and add tooltips to the words of `TERMS`."""
    parts = str(escape(text)).split("`")
    marked = [
        f"<code>{part}</code>" if at % 2 else _TERM.sub(_tooltip, part)
        for at, part in enumerate(parts)
    ]
    return Markup("".join(marked))  # noqa: S704 - escaped above


def _tooltip(found: re.Match[str]) -> str:
    return f'<abbr title="{escape(TERMS[found[1].lower()])}">{found[0]}</abbr>'


def breakable(name: str) -> Markup:
    """Escape a name, and allow a line break after each of its dots."""
    return Markup(".<wbr>").join(name.split("."))


def render(template: str, findings: Findings, **more: Any) -> str:
    """Render a page as of the time and in the time zone of `findings`."""
    as_of, zone = findings.as_of, findings.zone
    page = _ENVIRONMENT.get_template(template).render(
        as_of=formats.named_moment(as_of, zone),
        zone=formats.zone_name(zone),
        head=lambda column: column.head(zone),
        show=lambda column, value: column.show(value, as_of, zone),
        since=findings.since.isoformat() if findings.since else "",
        terms=TERMS,
        words={"wrong": "problem", "notice": "notice"},
        **more,
    )
    return _CONTROL.sub(lambda found: _CONTROLS[ord(found[0])], page)


def check_templates() -> None:
    """Load all templates and the style sheet. Raises OSError if one cannot be read."""
    for name in (*_TEMPLATES, "page.css"):
        _ENVIRONMENT.get_template(name)


def _template(name: str) -> str:
    """Read a template, also if this package is in a zip, as on a Spark cluster."""
    return files("sync.pages").joinpath("templates", name).read_text(encoding="utf-8")


_ENVIRONMENT: Final = Environment(
    loader=FunctionLoader(_template),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.globals.update(
    breakable=breakable, count=formats.count, explained=explained, page_name=page_name
)
