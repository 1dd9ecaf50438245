"""The top of the pages: verdict, totals and list of gateways, or the facts of one gateway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from sync.pages.plausible import only_plausible
from sync.pages.trends import UNREMARKABLE, figure_trends, fleet_trends
from sync.reports.availability import TABLE as AVAILABILITY
from sync.reports.shared import formats
from sync.reports.shared.findings import Findings, Row
from sync.reports.shared.plausible import LONGEST_S
from sync.reports.shared.registry import PROBLEM_KINDS, REPORTS
from sync.reports.shared.report import Problem
from sync.reports.shared.window import AHEAD_S

SHOWN: Final = 60
"""Number of gateways that are listed without unfolding, those with problems first."""

LISTED: Final = 500
"""Maximum number of gateways that a page lists; the list of a larger fleet has pages of its own."""

SUMMED: Final = (
    "expected",
    "received",
    "missing",
    "declared",
    "unexplained",
    "duplicates",
    "repeated_segments",
    "forks",
    "chain_breaks",
)
"""Columns of `completeness` whose sums over the fleet are part of the totals."""

ALARMS: Final = {
    "unexplained": "missing without explanation",
    "duplicates": "stored twice",
    "forks": "contradicting segments",
    "bad_segments": "invalid files",
}
"""Totals that should be zero, in the words of the fleet's page."""

_STATE: Final = next(column for column in AVAILABILITY.columns if column.name == "state")


class Line(NamedTuple):
    """A gateway in the list. `wrong` and `notices` count its problems by weight.

    `page` is the path of its page, "" if it has none. `ran` is the share of the time in which it
    ran, `ago` the time since `last_seen`, all as text.
    """

    gateway: str
    page: str
    state: str
    mark: str
    wrong: int
    notices: int
    unexplained: int
    outages: int
    ran: str
    ago: str
    last_seen: str
    trends: Mapping[str, str]


class Part(NamedTuple):
    """A page of the list of a large fleet, sorted by name: its file name and its lines."""

    page: str
    lines: list[Line]

    @property
    def counts(self) -> tuple[int, int, int]:
        """The numbers of gateways with problems, with notices, and that are silent."""
        return (
            sum(line.wrong > 0 for line in self.lines),
            sum(line.notices > 0 for line in self.lines),
            sum(line.state == "silent" for line in self.lines),
        )


class Overview(NamedTuple):
    """The list of gateways: the shown lines, and the others either folded or in parts."""

    shown: list[Line]
    rest: list[Line]
    parts: list[Part]


class Figure(NamedTuple):
    """A value of the fleet or a gateway, its trend, and whether it should be zero and is not."""

    word: str
    value: str
    trend: str = ""
    alarm: bool = False


def find_problems(findings: Findings) -> list[Problem]:
    """Return the problems of all reports, `wrong` ones first, then by the rank of their kind.

    Values that are not plausible are treated as unknown.
    """
    plausible = only_plausible(findings)
    ranks = {kind.name: rank for rank, kind in enumerate(PROBLEM_KINDS)}
    problems = [problem for report in REPORTS for problem in report.problems(plausible)]
    return sorted(problems, key=lambda each: (each.weight != "wrong", ranks[each.kind]))


def totals(findings: Findings) -> dict[str, Any]:
    """Sum up over all gateways: events by lane and kind, segments, completeness and outages."""
    lanes: dict[str, dict[str, int]] = {}
    for row in findings["totals"]:
        lanes.setdefault(row["lane"], {})[row["kind"]] = row["events"]
    files = {row["fate"]: row["files"] for row in findings["files_by_fate"]}
    return {
        "gateways": len({row["gateway"] for row in findings["availability"]}),
        "segments": files.get("accepted", 0),
        "events": sum(row["events"] for row in findings["totals"]),
        "lanes": lanes,
        **{name: sum(row[name] for row in findings["completeness"]) for name in SUMMED},
        "bad_segments": files.get("bad", 0),
        "outages": sum(row["outages"] for row in findings["availability"]),
    }


def verdict(problems: Iterable[Problem], events: int) -> tuple[str, str]:
    """Return class (`empty`, `wrong`, `notice` or `good`) and text of the page's first sentence."""
    if not events:
        return "empty", "Nothing has arrived yet."
    counts = Counter(problem.weight for problem in problems)
    return attention(counts["wrong"], counts["notice"], "All events are accounted for")


def attention(wrong: int, notices: int, fine: str, place: str = "") -> tuple[str, str]:
    """Return class and text of a verdict by the numbers of problems; `fine` is said without any."""
    after = f"; {formats.plural(notices, 'notice')}" if notices else ""
    if wrong:
        number = formats.plural(wrong, "problem needs", "problems need")
        return "wrong", f"{number} attention{place}{after}."
    return ("notice" if notices else "good"), f"{fine}{after}."


def overview(findings: Findings, problems: Iterable[Problem], pages: Mapping[str, str]) -> Overview:
    """List the gateways in `pages` by the number of their problems, then by name.

    `pages` has for each gateway the path of its page, "" if it has none. More than `LISTED`
    gateways are listed in parts, by name.
    """
    counts = Counter((problem.gateway, problem.weight) for problem in problems)
    unexplained: Counter[str] = Counter()
    for row in findings["completeness"]:
        unexplained[row["gateway"]] += row["unexplained"]
    rows = {row["gateway"]: row for row in only_plausible(findings)["availability"]}
    trends = {row["gateway"]: figure_trends([row], findings) for row in findings["trends"]}
    lines = []
    for gateway, page in pages.items():
        row = rows.get(gateway, {})
        seen, state = _seen(row), row.get("state", "unknown")
        ago = None if seen is None else max((findings.as_of - seen).total_seconds(), 0)
        changes = trends.get(gateway, {}).items()
        lines.append(
            Line(
                gateway,
                page,
                state,
                _STATE.mark(state),
                counts[gateway, "wrong"],
                counts[gateway, "notice"],
                unexplained[gateway],
                row.get("outages", 0),
                formats.percentage(row.get("running_share")),
                formats.UNKNOWN if ago is None else formats.duration(ago),
                formats.UNKNOWN if seen is None else formats.moment(seen, findings.zone),
                {name: text for name, text in changes if text not in UNREMARKABLE},
            )
        )
    lines.sort(key=lambda line: (-line.wrong, -line.notices, line.gateway))
    if len(lines) <= LISTED:
        return Overview(lines[:SHOWN], lines[SHOWN:], [])
    named = sorted(lines, key=lambda line: line.gateway)
    starts = range(0, len(named), LISTED)
    parts = [named[at : at + LISTED] for at in starts]
    return Overview(
        lines[:SHOWN],
        [],
        [Part(f"gateways-{number}.html", part) for number, part in enumerate(parts, 1)],
    )


def _seen(row: Row) -> datetime | None:
    """Return `last_seen` (by the gateway's clock), or None if the last arrival contradicts it."""
    seen, arrived = row.get("last_seen"), row.get("last_arrival")
    if seen is None or arrived is None:
        return seen
    return seen if -AHEAD_S <= (arrived - seen).total_seconds() <= LONGEST_S else None


def _time(value: datetime | None, findings: Findings) -> str:
    return formats.UNKNOWN if value is None else formats.named_moment(value, findings.zone)


def summary(findings: Findings) -> str:
    """Summarise in one sentence how many gateways run, and for how much of the time they did."""
    rows = findings["availability"]
    if not rows:
        return ""
    running = formats.count(sum(row["state"] == "running" for row in rows))
    text = f"{running} of {formats.plural(len(rows), 'gateway is', 'gateways are')} running now"
    share = _running_share(findings)
    past = "" if share is None else f"; the fleet ran {formats.percentage(share)} of the time"
    return f"{text}{past}."


def tiles(findings: Findings, sums: Mapping[str, Any]) -> list[Figure]:
    """Return the fleet's figures: gateways by state, and the `sums` that `totals` has returned."""
    states = Counter(row["state"] for row in findings["availability"])
    trends = fleet_trends(findings)
    share = formats.percentage(_running_share(findings))

    def tile(name: str, word: str, number: int, *, alarm: bool = False) -> Figure:
        return Figure(word, formats.count(number), trends.get(name, ""), alarm and number > 0)

    return [
        tile("gateways", "gateways", sums["gateways"]),
        *(
            tile(state, state, states[state], alarm=state == "silent")
            for state in ("running", "stopped", "silent", "unknown")
            if states[state] or trends.get(state, "") not in UNREMARKABLE
        ),
        Figure("of the time running", share, trends.get("running_share", "")),
        tile("outages", "outages", sums["outages"]),
        *(tile(name, name, sums[name]) for name in ("events", "segments")),
        tile("missing", "missing events", sums["missing"]),
        *(tile(name, word, sums[name], alarm=True) for name, word in ALARMS.items()),
    ]


def _running_share(findings: Findings) -> float | None:
    """Return the share of the time with known state in which gateways ran, as in `availability`."""
    known, running = 0.0, 0.0
    for row in findings["availability"]:
        running += row["running_s"] or 0.0
        known += sum(row[name] or 0.0 for name in ("running_s", "stopped_s", "outage_s"))
    return running / known if known else None


def facts(own: Findings) -> list[Figure]:
    """Return the main values of the gateway whose findings are `own`."""
    known: list[Figure] = []
    trends = figure_trends(own["trends"], own)
    for row in only_plausible(own)["availability"]:
        before = {trend["state_before"] for trend in own["trends"]} - {None, row["state"]}
        known += [
            Figure("State", row["state"], "".join(f"before: {state}" for state in before)),
            Figure("Last seen", _time(_seen(row), own)),
            Figure("Last arrival", _time(row["last_arrival"], own)),
            Figure("First seen", _time(row["first_seen"], own)),
            Figure(
                "Running", formats.percentage(row["running_share"]), trends.get("running_share", "")
            ),
            Figure("Outages", formats.count(row["outages"]), trends.get("outages", "")),
            Figure("Reachable", formats.percentage(row["reachable_share"])),
        ]
    rows = own["completeness"]
    if rows:
        for name in ("received", "missing", "unexplained"):
            total = formats.count(sum(row[name] for row in rows))
            known.append(Figure(f"Events {name}", total, trends.get(name, "")))
        known.append(Figure("Epochs", formats.count(len({row["epoch"] for row in rows}))))
    for row in own["clocks"]:
        known.append(Figure("Clock", formats.synchronised(row["synchronised"])))
    for row in own["growth"]:
        used = f"{formats.size(row['disk_used'])} of {formats.size(row['cap'])}"
        known.append(Figure("Storage used", used))
    return known
