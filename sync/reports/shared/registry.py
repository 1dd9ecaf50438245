"""All reports: every module of `sync.reports` declares one as `REPORT`."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Final

import sync.reports
from sync.reports.shared.report import ProblemKind, Report
from sync.tables.summaries import Summary

_FOUND: list[Report] = [
    importlib.import_module(f"sync.reports.{module.name}").REPORT
    for module in pkgutil.iter_modules(sync.reports.__path__)
    if not module.ispkg
]
REPORTS: Final = tuple(sorted(_FOUND, key=lambda report: (report.table.order, report.name)))
"""All reports, in the order of their tables."""

PROBLEM_KINDS: Final[tuple[ProblemKind, ...]] = tuple(
    sorted(
        (kind for report in REPORTS for kind in report.problem_kinds), key=lambda kind: kind.rank
    )
)
"""All kinds of problem, the gravest first."""

SUMMARIES: Final[tuple[Summary, ...]] = tuple(
    {
        each.name: each for report in REPORTS for part in report.parts for each in part.summaries
    }.values()
)
"""The summaries that the reports and their series read, each once."""
