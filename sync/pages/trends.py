"""The trends beside the figures of the pages: this period against the one before, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from sync.reports.shared import formats
from sync.reports.shared.findings import Findings, Rows
from sync.reports.trends import FIGURES, periods_of

NONE: Final = "no comparison"

SAME: Final = "unchanged"

UNREMARKABLE: Final = ("", NONE, SAME)
"""Trends that are left out where there is little room."""

LARGE: Final = 100
"""Smallest count in the earlier period from which the change is given in per cent."""

_NEW: Final = ("segments", "missing", "unexplained", "duplicates", "forks", "bad_segments")
"""Figures that are totals since a gateway's first event: the trend is what each period added."""

_STATES: Final = ("running", "stopped", "silent", "unknown")


def note(findings: Findings) -> str:
    """Describe which periods the trends compare, or why they compare none."""
    periods = periods_of(findings.since, findings.as_of)
    if periods is None:
        return (
            "The figures are of all days, so there is no comparison: with `--since 7d` the report "
            "compares seven days with the seven before."
        )
    before, begin = (
        formats.named_moment(datetime.fromtimestamp(at, UTC), findings.zone) for at in periods
    )
    if not _is_covered(findings["trends"], findings):
        return f"No comparison: data is missing in the earlier period, from {before} to {begin}."
    return (
        "The small print compares each figure with the equally long period before, from "
        f"{before} to {begin}. The numbers of gateways are compared with those at {begin}."
    )


def fleet_trends(findings: Findings) -> Mapping[str, str]:
    """Describe the change of each figure and of each state's count, by name; {} without `since`."""
    rows = findings["trends"]
    texts = figure_trends(rows, findings)
    if not texts:
        return {}
    now = Counter(row["state"] for row in findings["availability"])
    before = Counter(row["state_before"] for row in rows if row["state_before"])
    changes = {state: change(now[state], before[state]) for state in _STATES}
    changes["gateways"] = change(now.total(), before.total())
    return texts | (changes if _is_covered(rows, findings) else dict.fromkeys(changes, NONE))


def figure_trends(rows: Rows, findings: Findings) -> dict[str, str]:
    """Describe the trend of each figure, summed over `rows`; {} if the report is of all days."""
    if periods_of(findings.since, findings.as_of) is None:
        return {}
    if not _is_covered(rows, findings):
        return dict.fromkeys((*FIGURES, "running_share"), NONE)
    now, before = (
        {name: sum(row[f"{name}{suffix}"] for row in rows) for name in FIGURES}
        for suffix in ("", "_before")
    )
    return {
        **{name: new(now[name], before[name]) for name in _NEW},
        "received": new(now["events"], before["events"]),
        "events": change(now["events"], before["events"]),
        "outages": change(now["outages"], before["outages"]),
        "running_share": points(running_share(rows), running_share(rows, "_before")),
    }


def running_share(rows: Rows, suffix: str = "") -> float | None:
    """Return the running time as a share of the time with known state; None if no state is known.

    `suffix` is `_before` for the earlier period.
    """
    judged = sum(row[f"judged_s{suffix}"] for row in rows)
    return sum(row[f"running_s{suffix}"] for row in rows) / judged if judged else None


def change(now: int, before: int) -> str:
    """Describe the change of a count, such as `2 fewer` or `12 % more`."""
    if now == before:
        return SAME
    more, difference = "more" if now > before else "fewer", abs(now - before)
    if before < LARGE:
        return f"{formats.count(difference)} {more}"
    return f"{formats.decimal(difference / before * 100)} % {more}"


def new(now: int, before: int) -> str:
    """Describe what was added to a growing count in both periods, such as `3 new, 0 before`."""
    return f"{formats.count(now)} new, {formats.count(before)} before" if now or before else SAME


def points(now: float | None, before: float | None) -> str:
    """Describe the change of a share (0 to 1) in percentage points."""
    if now is None or before is None:
        return NONE
    difference = round((now - before) * 100, 2)
    if not difference:
        return SAME
    return f"{abs(difference):g} points {'more' if difference > 0 else 'less'}"


def _is_covered(rows: Rows, findings: Findings) -> bool:
    """Return whether at least one of these gateways has data of the whole earlier period."""
    periods = periods_of(findings.since, findings.as_of)
    known: list[Any] = [row["known_since"] for row in rows if row["known_since"] is not None]
    return bool(known) and periods is not None and min(known).timestamp() <= periods.before
