"""The top of the pages: the verdict, the totals, the list of gateways and the facts of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from sync.reports.availability import TABLE as AVAILABILITY
from sync.reports.shared import formats
from sync.reports.shared.findings import Findings, Row
from sync.reports.shared.problem import Problem
from sync.reports.shared.registry import PROBLEM_KINDS, REPORTS

SHOWN: Final = 60
"""Gateways that are listed at once, those with problems first."""

FOLDED: Final = 2_000
"""Further gateways that can be unfolded; the tables have all."""

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

_TILES: Final = {
    "unexplained": "missing without explanation",
    "duplicates": "stored twice",
    "forks": "contradicting segments",
    "bad_segments": "invalid files",
}

_STATE: Final = next(column for column in AVAILABILITY.columns if column.name == "state")


class Line(NamedTuple):
    """A gateway in the list. `wrong` and `notices` count its problems."""

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


class Overview(NamedTuple):
    """The lines that are shown, those that unfold, and the number of all others."""

    shown: list[Line]
    rest: list[Line]
    left: int


class Tile(NamedTuple):
    """A number of the fleet, and whether it should be zero and is not."""

    word: str
    number: str
    alarm: bool


def find_problems(findings: Findings) -> list[Problem]:
    """Return the problems of all reports, `wrong` ones first, then by the rank of their kind."""
    ranks = {kind.name: rank for rank, kind in enumerate(PROBLEM_KINDS)}
    problems = [problem for report in REPORTS for problem in report.problems(findings)]
    return sorted(problems, key=lambda each: (each.weight != "wrong", ranks[each.kind]))


def totals(findings: Findings) -> dict[str, Any]:
    """Sum up the events by lane and kind, and the counts of completeness over all gateways."""
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
    """Return the page's first sentence, and its class: `empty`, `wrong`, `notice` or `good`."""
    weights = [problem.weight for problem in problems]
    if not events:
        return "empty", "Nothing has arrived yet."
    if "wrong" in weights:
        number = formats.plural(weights.count("wrong"), "problem needs", "problems need")
        return "wrong", f"{number} attention."
    if weights:
        return "notice", "All events are accounted for; some things are worth knowing."
    return "good", "All events are accounted for."


def overview(findings: Findings, problems: Iterable[Problem], pages: Mapping[str, str]) -> Overview:
    """List the gateways in `pages` by the number of their problems, then by name."""
    counts: dict[str, Counter[str]] = {}
    for problem in problems:
        counts.setdefault(problem.gateway, Counter())[problem.weight] += 1
    unexplained: Counter[str] = Counter()
    for row in findings["completeness"]:
        unexplained[row["gateway"]] += row["unexplained"]
    rows = {row["gateway"]: row for row in findings["availability"]}
    lines = [
        _line(
            gateway,
            page,
            rows.get(gateway, {}),
            counts.get(gateway, Counter()),
            unexplained[gateway],
            findings.as_of,
        )
        for gateway, page in pages.items()
    ]
    lines.sort(key=lambda line: (-line.wrong, -line.notices, line.gateway))
    rest = lines[SHOWN:]
    return Overview(lines[:SHOWN], rest[:FOLDED], max(len(rest) - FOLDED, 0))


def _line(
    gateway: str, page: str, row: Row, counts: Counter[str], unexplained: int, now: datetime
) -> Line:
    seen, state = row.get("last_seen"), row.get("state", "unknown")
    ago = formats.ABSENT if seen is None else formats.duration(max((now - seen).total_seconds(), 0))
    return Line(
        gateway,
        page,
        state,
        _STATE.mark(state),
        counts["wrong"],
        counts["notice"],
        unexplained,
        row.get("outages", 0),
        formats.percentage(row.get("running_share")),
        ago,
        formats.moment(seen),
    )


def tiles(findings: Findings, sums: Mapping[str, Any]) -> list[Tile]:
    """Return the numbers of the fleet: its gateways by state, its events, and what must be zero."""
    states = Counter(row["state"] for row in findings["availability"])
    return [
        Tile("gateways", formats.count(sums["gateways"]), alarm=False),
        *(
            Tile(state, formats.count(states[state]), alarm=state == "silent")
            for state in ("running", "stopped", "silent", "unknown")
            if states[state]
        ),
        Tile("events", formats.count(sums["events"]), alarm=False),
        Tile("segments", formats.count(sums["segments"]), alarm=False),
        Tile("missing events", formats.count(sums["missing"]), alarm=False),
        *(
            Tile(word, formats.count(sums[name]), alarm=sums[name] > 0)
            for name, word in _TILES.items()
        ),
    ]


def facts(own: Findings) -> list[tuple[str, str]]:
    """Return what is worth knowing of the gateway of these findings, as words and values."""
    known: list[tuple[str, str]] = []
    for row in own["availability"]:
        known += [
            ("State", row["state"]),
            ("Last seen", formats.moment_utc(row["last_seen"])),
            ("Last arrival", formats.moment_utc(row["last_arrival"])),
            ("First seen", formats.moment_utc(row["first_seen"])),
            ("Running", formats.percentage(row["running_share"])),
            ("Reachable", formats.percentage(row["reachable_share"])),
        ]
    rows = own["completeness"]
    if rows:
        for name in ("received", "missing", "unexplained"):
            total = sum(row[name] for row in rows)
            known.append((f"Events {name}", formats.count(total)))
        known.append(("Epochs", formats.count(len({row["epoch"] for row in rows}))))
    for row in own["clocks"]:
        known.append(("Clock", formats.synchronised(row["synchronised"])))
    for row in own["growth"]:
        used = f"{formats.size(row['disk_used'])} of {formats.size(row['cap'])}"
        known.append(("Storage used", used))
    return known
