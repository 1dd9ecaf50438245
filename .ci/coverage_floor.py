"""Check the minimum branch coverage in the JSON report of slipcover.

Usage: coverage_floor.py REPORT.json. The critical parts must be covered completely; the other files
together must reach a lower minimum.
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
    "edge/jid.py",
    "edge/precis.py",
    "edge/topics.py",
    "sync/segment/",
    "sync/uplink/batcher.py",
)
"""Prefixes covered to 100 %: parsers of untrusted bytes, pure rules, and the segment format."""

SLOW = (
    "edge/app.py",
    "edge/cli/network.py",
    "edge/reload.py",
    "edge/server/",
    "edge/status_page.py",
    "edge/uplink/",
    "firmware_sim/__main__.py",
    "firmware_sim/attackers/",
    "firmware_sim/device/",
    "firmware_sim/scenarios/",
    "sync/cli/",
    "sync/ingest/",
    "sync/receiver/",
    "sync/reports/",
    "sync/tables/",
    "sync/uplink/",
)
"""Prefixes that mostly run in the processes and Spark sessions of the slow tests, which are not
measured."""

REST_FLOOR = 97.0
"""Percent, for all other files together."""

SLOW_FLOOR = 55.0
"""Percent, for the files of `SLOW` together, from the fast tests alone."""


class Tally(NamedTuple):
    """The numbers of existing and of executed lines and branches."""

    there: int = 0
    run: int = 0

    def plus(self, summary: dict[str, Any]) -> Tally:
        """Add the summary of one file from the report."""
        run = summary["covered_lines"] + summary["covered_branches"]
        missing = summary["missing_lines"] + summary["missing_branches"]
        return Tally(self.there + run + missing, self.run + run)

    @property
    def percent(self) -> float:
        """The executed part in percent; 100 if there is nothing to execute."""
        return 100.0 * self.run / self.there if self.there else 100.0


def _gaps(file: dict[str, Any]) -> str:
    lines = ", ".join(map(str, file["missing_lines"]))
    branches = ", ".join(f"{start}->{end}" for start, end in file["missing_branches"])
    return "; ".join(
        f"{what} {where}" for what, where in (("lines", lines), ("branches", branches)) if where
    )


def _whole_faults(files: dict[str, Any]) -> list[str]:
    faults = []
    for prefix in WHOLE:
        under = {name: file for name, file in files.items() if name.startswith(prefix)}
        if not under:
            faults.append(f"{prefix}: no such file in the report, so its minimum checks nothing")
        faults += [
            f"{name}: {_gaps(file)} not run; {prefix} must be covered to 100 %"
            for name, file in sorted(under.items())
            if Tally().plus(file["summary"]).percent < 100.0
        ]
    return faults


def _together(files: dict[str, Any], *, slow: bool) -> Tally:
    tally = Tally()
    for name, file in files.items():
        if not name.startswith(WHOLE) and name.startswith(SLOW) is slow:
            tally = tally.plus(file["summary"])
    return tally


def faults(report: dict[str, Any]) -> list[str]:
    """Return one line for each file or group below its minimum; an empty list is a pass."""
    if not report["meta"]["branch_coverage"]:
        return ["the report has no branch coverage"]
    files = report["files"]
    found = _whole_faults(files)
    for what, slow, floor in (("other files", False, REST_FLOOR), ("slow files", True, SLOW_FLOOR)):
        percent = _together(files, slow=slow).percent
        if percent < floor:
            found.append(f"{what}: {percent:.2f} %, at least {floor:.0f} % are required")
    return found


def main(argv: list[str]) -> int:
    """Print the result; return 0 for a pass, 1 for a failure, 2 for wrong usage."""
    if len(argv) != 2:
        sys.stderr.write("usage: coverage_floor.py REPORT.json\n")
        return 2
    report = json.loads(Path(argv[1]).read_text(encoding="utf-8"))
    found = faults(report)
    for fault in found:
        sys.stderr.write(f"coverage: {fault}\n")
    if not found:
        rest, slow = (_together(report["files"], slow=slow).percent for slow in (False, True))
        sys.stdout.write(
            f"coverage: 100 % of {', '.join(WHOLE)}; {rest:.1f} % of the other files;"
            f" {slow:.1f} % of those that slow tests run\n"
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
