"""The fleet at a glance: a line for each gateway, figures for all; and a gateway's own figures.

Pure functions of rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from sync.pages import text
from sync.pages.layout import rows_of
from sync.pages.problem import Problem
from sync.reports.gather import Findings

SHOWN: Final = 60
"""Gateways that are listed at once: those with something wrong first."""

FOLDED: Final = 2_000
"""Gateways that can be unfolded; the tables have all."""


class Line(NamedTuple):
    """A gateway in the overview. `wrong` and `notices` count its problems."""

    gateway: str
    page: str
    state: str
    wrong: int
    notices: int
    unexplained: int
    outages: int
    ran: str
    ago: str
    last_seen: str


class Overview(NamedTuple):
    """The lines that are shown, those that unfold, and how many more there are."""

    shown: list[Line]
    rest: list[Line]
    left: int


class Tile(NamedTuple):
    """A figure of the fleet, and whether it should be zero and is not."""

    word: str
    number: str
    alarm: bool


def overview(found: Findings, told: Iterable[Problem], pages: Mapping[str, str]) -> Overview:
    """List the gateways: by how much is wrong with them, then by name."""
    counts: dict[str, Counter[str]] = {}
    for problem in told:
        counts.setdefault(problem.gateway, Counter())[problem.weight] += 1
    unexplained: Counter[str] = Counter()
    for row in found.completeness:
        unexplained[row["gateway"]] += row["unexplained"]
    known = {row["gateway"]: row for row in found.availability}
    lines = [
        _line(
            gateway,
            page,
            known.get(gateway, {}),
            counts.get(gateway, Counter()),
            unexplained,
            found.as_of,
        )
        for gateway, page in pages.items()
    ]
    lines.sort(key=lambda line: (-line.wrong, -line.notices, line.gateway))
    rest = lines[SHOWN:]
    return Overview(lines[:SHOWN], rest[:FOLDED], max(len(rest) - FOLDED, 0))


def _line(
    gateway: str,
    page: str,
    row: dict[str, Any],
    counted: Counter[str],
    unexplained: Counter[str],
    now: datetime,
) -> Line:
    seen = row.get("last_seen")
    return Line(
        gateway,
        page,
        row.get("state", "unknown"),
        counted["wrong"],
        counted["notice"],
        unexplained[gateway],
        row.get("outages", 0),
        text.share(row.get("running_share")),
        text.ABSENT if seen is None else text.duration(max((now - seen).total_seconds(), 0)),
        text.moment(seen),
    )


def tiles(found: Findings, sums: Mapping[str, Any]) -> list[Tile]:
    """Give the figures of the fleet: its gateways by state, and what must be zero."""
    states = Counter(row["state"] for row in found.availability)
    return [
        Tile("gateways", text.count(sums["gateways"]), alarm=False),
        *(
            Tile(state, text.count(states[state]), alarm=state == "silent")
            for state in ("running", "stopped", "silent", "unknown")
            if states[state]
        ),
        Tile("events", text.count(sums["events"]), alarm=False),
        Tile("segments", text.count(sums["segments"]), alarm=False),
        Tile("missing", text.count(sums["missing"]), alarm=False),
        *(
            Tile(name.replace("_", " "), text.count(sums[name]), alarm=sums[name] > 0)
            for name in ("unexplained", "duplicates", "forks", "bad_segments")
        ),
    ]


def facts(own: Findings) -> list[tuple[str, str]]:
    """Give what is worth knowing of one gateway, in words."""
    told: list[tuple[str, str]] = []
    for row in own.availability:
        told += [
            ("State", row["state"]),
            ("Last seen", _utc(row["last_seen"])),
            ("Last arrival", _utc(row["last_arrival"])),
            ("First seen", _utc(row["first_seen"])),
            ("Running", text.share(row["running_share"])),
            ("Reachable", text.share(row["reachable_share"])),
        ]
    if own.completeness:
        for name in ("received", "missing", "unexplained"):
            total = sum(row[name] for row in own.completeness)
            told.append((f"Events {name}", text.count(total)))
        told.append(("Epochs", text.count(len({row["epoch"] for row in own.completeness}))))
    for row in rows_of(own, "clocks"):
        told.append(("Clock", text.synchronised(row["synchronised"])))
    for row in rows_of(own, "growth"):
        told.append(("Disk used", f"{text.size(row['disk_used'])} of {text.size(row['cap'])}"))
    return told


def _utc(value: Any) -> str:
    return text.ABSENT if value is None else f"{text.moment(value)} UTC"
