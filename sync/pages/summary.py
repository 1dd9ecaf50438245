"""Sums up the reports' rows, gathers what is wrong of all of them, and gives the verdict.

Pure functions of rows: no file, no page, no Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from sync.pages.layout import rows_of
from sync.pages.problem import Problem, ordered
from sync.pages.problems_gateways import (
    of_availability,
    of_clocks,
    of_growth,
    of_versions,
)
from sync.pages.problems_lanes import (
    of_completeness,
    of_lag,
    of_notices,
    of_refused,
)
from sync.pages.problems_work import (
    of_anomalies,
    of_duplicates,
    of_queues,
    of_refusals,
    of_sensors,
)
from sync.pages.text import plural
from sync.reports.gather import Findings, Rows

_SUMMED: Final = (
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

_RULES: Final[dict[str, Callable[[Rows], Iterator[Problem]]]] = {
    "completeness": of_completeness,
    "availability": of_availability,
    "growth": of_growth,
    "lag": of_lag,
    "notices": of_notices,
    "queues": of_queues,
    "sensors": of_sensors,
    "anomalies": of_anomalies,
    "refusals": of_refusals,
    "versions": of_versions,
    "clocks": of_clocks,
    "duplicates": of_duplicates,
}
"""What is read out of the rows of each report."""


def totals(found: Findings) -> dict[str, Any]:
    """Sum up: events by lane and kind, and every count of completeness over all gateways."""
    lanes: dict[str, dict[str, int]] = {}
    for row in found.totals:
        lanes.setdefault(row["lane"], {})[row["kind"]] = row["events"]
    return {
        "gateways": len({row["gateway"] for row in found.availability}),
        "segments": found.segments,
        "events": sum(row["events"] for row in found.totals),
        "lanes": lanes,
        **{name: sum(row[name] for row in found.completeness) for name in _SUMMED},
        "bad_segments": found.refused.get("bad", 0),
        "outages": sum(row["outages"] for row in found.availability),
    }


def problems(found: Findings) -> list[Problem]:
    """Tell what is wrong, and after it what should be known, the gravest kinds first."""
    told = list(of_refused(found.refused))
    for name, rule in _RULES.items():
        told += rule(rows_of(found, name))
    return ordered(told)


def verdict(told: Iterable[Problem], events: int) -> tuple[str, str]:
    """Give the page's first words: a class (`empty`, `wrong`, `notice`, `good`) and a sentence."""
    weights = [problem.weight for problem in told]
    if not events:
        return "empty", "Nothing has arrived yet."
    if "wrong" in weights:
        number = weights.count("wrong")
        return "wrong", f"{plural(number, 'thing is', 'things are')} wrong."
    if weights:
        return "notice", "All events are accounted for; something is worth knowing."
    return "good", "All events are accounted for."
