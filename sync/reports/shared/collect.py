"""Compute reports with Spark and collect their rows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from sync.common.progress import Progress, no_progress
from sync.reports.shared.findings import Findings, Rows
from sync.reports.shared.registry import REPORTS
from sync.reports.shared.report import ReportContext
from sync.tables.partitions import without_repartitioning

CONCURRENCY: Final = 4
"""Maximum number of reports computed at once: most are small, and mostly need planning."""


def collect(context: ReportContext, progress: Progress = no_progress) -> Findings:
    """Compute the rows of all reports and their series; `context` has all `SUMMARIES`."""
    with without_repartitioning(context.summaries.spark), ThreadPoolExecutor(CONCURRENCY) as pool:
        parts = [part for report in REPORTS for part in report.parts]
        rows: list[Rows] = []
        for each in pool.map(lambda part: part.compute(context).toArrow().to_pylist(), parts):
            progress("computing reports", len(rows), len(parts))
            rows.append(each)
        return Findings(
            as_of=context.as_of,
            tables={part.name: each for part, each in zip(parts, rows, strict=True)},
            since=context.since,
            gateways=context.gateways,
            days=context.summaries.days._asdict(),
        )
