"""The page of several fleets: the totals and the problems of each, from its own report."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any, Final, NamedTuple

from sync.common.errors import FleetError
from sync.pages.files import SUMMARY, VERSION
from sync.pages.overview import ALARMS, attention
from sync.pages.page import grouped, render
from sync.reports.shared import formats
from sync.reports.shared.findings import Findings
from sync.reports.shared.report import Problem
from sync.reports.trends import COUNTS
from sync.storage.storage import Storage

FIGURES: Final = {"gateways": "Gateways", **COUNTS}
"""The totals of a fleet that the page shows, with their headings."""

OLD_S: Final = 36 * 3_600.0
"""Age of a report in seconds from which it is a problem: reports are made every day."""

_ABSENT: Final = "There is no report of this fleet."
_DAMAGED: Final = "The report of this fleet is damaged; make it again."
_OTHER: Final = "The report of this fleet is of another version of Fieldpost; update the older one."


class Fleet(NamedTuple):
    """A fleet, as its report describes it; `lack` says why it cannot be read, "" if it can.

    `name` is the fleet's name and the folder of its report.
    """

    name: str
    lack: str = ""
    as_of: datetime | None = None
    totals: Mapping[str, int] = {}
    problems: Sequence[Problem] = ()


class Line(NamedTuple):
    """A fleet on the page. `wrong` and `notices` count its problems; `is_old` is of its report.

    `totals` has each figure and whether it should be zero and is not. `problems` has the weight and
    title of each group of problems.
    """

    fleet: Fleet
    as_of: str
    age: str
    is_old: bool
    wrong: int
    notices: int
    totals: list[tuple[str, bool]]
    problems: list[tuple[str, str]]


def check_folder(out: Storage) -> None:
    """Raise FleetError if `out` has a fleet's report, whose page would be replaced."""
    if out.exists(SUMMARY):
        raise FleetError(
            f"{out.uri()} has the report of one fleet; choose another --out, and make the report "
            "of each fleet in a folder in it"
        )


def read_fleet(out: Storage, name: str) -> Fleet:
    """Read the summary of the report in the folder `name`. Raises OSError if `out` fails."""
    try:
        document = json.loads(out.read(f"{name}/{SUMMARY}"))
        if document["version"] != VERSION:
            return Fleet(name, _OTHER)
        return Fleet(
            name,
            as_of=datetime.fromisoformat(document["as_of"]).astimezone(UTC),
            totals={figure: int(document["totals"][figure]) for figure in FIGURES},
            problems=[_problem(each) for each in document["problems"]],
        )
    except FileNotFoundError:
        return Fleet(name, _ABSENT)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
        return Fleet(name, _DAMAGED)


def _problem(fields: Mapping[str, Any]) -> Problem:
    problem = Problem(*(fields[name] for name in Problem._fields))
    if problem.weight not in ("wrong", "notice") or not all(isinstance(it, str) for it in problem):
        raise ValueError(fields)
    return problem


def fleets_page(fleets: Iterable[Fleet], now: datetime, zone: tzinfo = UTC) -> str:
    """Render the page of several fleets as of `now`, those with most problems first."""
    lines = [_line(fleet, now, zone) for fleet in fleets]
    lines.sort(key=lambda line: (-line.wrong, -line.notices, line.fleet.name))
    sums: Counter[str] = Counter()
    for line in lines:
        sums.update(line.fleet.totals)
    return render(
        "fleets.html.jinja",
        Findings(now, zone=zone),
        verdict=_verdict(lines),
        lines=lines,
        heads=FIGURES.values(),
        sums=_totals(sums),
    )


def _line(fleet: Fleet, now: datetime, zone: tzinfo) -> Line:
    age_s = 0.0 if fleet.as_of is None else max((now - fleet.as_of).total_seconds(), 0.0)
    age = formats.duration(age_s)
    old = f"The report is {age} old; check the timer that makes it." if age_s > OLD_S else ""
    weights = Counter(problem.weight for problem in fleet.problems)
    own = [("wrong", text) for text in (fleet.lack, old) if text]
    return Line(
        fleet,
        formats.UNKNOWN if fleet.as_of is None else formats.moment(fleet.as_of, zone),
        formats.UNKNOWN if fleet.as_of is None else age,
        bool(old),
        weights["wrong"] + len(own),
        weights["notice"],
        _totals(fleet.totals) if fleet.totals else [(formats.UNKNOWN, False)] * len(FIGURES),
        [*own, *((group.weight, group.title) for group in grouped(fleet.problems))],
    )


def _totals(totals: Mapping[str, int]) -> list[tuple[str, bool]]:
    return [(formats.count(totals[name]), name in ALARMS and totals[name] > 0) for name in FIGURES]


def _verdict(lines: Sequence[Line]) -> tuple[str, str]:
    wrong, notices = (sum(getattr(line, name) for line in lines) for name in ("wrong", "notices"))
    troubled = formats.count(sum(line.wrong > 0 for line in lines))
    fleets = formats.plural(len(lines), "fleet")
    return attention(wrong, notices, f"No problems in {fleets}", f", in {troubled} of {fleets}")
