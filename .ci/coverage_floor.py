"""Enforces the floors of coverage, by branch, on the JSON report of `coverage`.

Usage: coverage_floor.py REPORT.json. What other parts rest on has to be covered whole; the rest
together has to reach a lower floor. It runs no test and measures nothing itself.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

WHOLE = (
    "edge/xmpp/",
    "edge/features/custody/rules.py",
    "edge/features/outbox/rules.py",
    "edge/features/messages/rules.py",
    "edge/features/eventlog/rules/",
    "edge/features/presence/rules/",
    "edge/features/pubsub/rules/",
    "edge/features/queues/rules/",
    "sync/segment/",
    "sync/uplink/batcher.py",
)
"""Covered to 100 %: what reads bytes of strangers, decides, or writes what is kept for years."""

REST_FLOOR = 90.0
"""Percent, for all the other files together."""


class Tally(NamedTuple):
    """Lines and branches: how many there are, and how many were run."""

    there: int = 0
    run: int = 0

    def plus(self, summary: dict[str, Any]) -> Tally:
        """Add one file's summary, as coverage writes it."""
        return Tally(
            self.there + summary["num_statements"] + summary.get("num_branches", 0),
            self.run + summary["covered_lines"] + summary.get("covered_branches", 0),
        )

    @property
    def percent(self) -> float:
        """What was run, in percent; nothing to run is 100."""
        return 100.0 * self.run / self.there if self.there else 100.0


def _gaps(file: dict[str, Any]) -> str:
    lines = ", ".join(map(str, file["missing_lines"]))
    branches = ", ".join(f"{start}->{end}" for start, end in file.get("missing_branches", []))
    return "; ".join(
        f"{what} {where}" for what, where in (("lines", lines), ("branches", branches)) if where
    )


def _whole_faults(files: dict[str, Any]) -> list[str]:
    faults = []
    for prefix in WHOLE:
        under = {name: file for name, file in files.items() if name.startswith(prefix)}
        if not under:
            faults.append(f"{prefix}: no such file in the report, so its floor guards nothing")
        faults += [
            f"{name}: {_gaps(file)} not run; the floor of {prefix} is 100 %"
            for name, file in sorted(under.items())
            if Tally().plus(file["summary"]).percent < 100.0
        ]
    return faults


def _rest(files: dict[str, Any]) -> Tally:
    tally = Tally()
    for name, file in files.items():
        if not name.startswith(WHOLE):
            tally = tally.plus(file["summary"])
    return tally


def faults(report: dict[str, Any]) -> list[str]:
    """List what is below its floor, one line each; an empty list is a pass."""
    if not report["meta"]["branch_coverage"]:
        return ["the report was made without branches"]
    files = report["files"]
    found = _whole_faults(files)
    rest = _rest(files)
    if rest.percent < REST_FLOOR:
        found.append(f"the rest: {rest.percent:.2f} %, the floor is {REST_FLOOR:.0f} %")
    return found


def main(argv: list[str]) -> int:
    """Print the verdict; exit status 0 for a pass, 1 for a fault, 2 for wrong usage."""
    if len(argv) != 2:
        sys.stderr.write("usage: coverage_floor.py REPORT.json\n")
        return 2
    report = json.loads(Path(argv[1]).read_text(encoding="utf-8"))
    found = faults(report)
    for fault in found:
        sys.stderr.write(f"coverage: {fault}\n")
    if not found:
        rest = _rest(report["files"]).percent
        sys.stdout.write(f"coverage: 100 % of {', '.join(WHOLE)}; {rest:.1f} % of the rest\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
