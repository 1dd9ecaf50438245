"""Compute reports with Spark and collect their rows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame

from sync.common.progress import Progress, no_progress
from sync.reports.shared.by_gateway import SpreadRows, Visit, is_divisible
from sync.reports.shared.findings import Findings, Rows
from sync.reports.shared.registry import REPORTS
from sync.reports.shared.report import Report, ReportContext, Series
from sync.tables.partitions import without_repartitioning

CONCURRENCY: Final = 4
"""Maximum number of reports computed at once: most are small, and mostly need planning."""


def collect(
    context: ReportContext, visit: Visit | None = None, progress: Progress = no_progress
) -> Findings:
    """Compute the rows of all reports and their series; `context` has all `SUMMARIES`.

    With `visit`, the fleet is large: rows that only the page of one gateway shows are not
    collected, and `visit` gets all rows as they are divided among Spark's tasks. The rows that are
    collected are kept on the executors' disks until it returns, so that nothing is computed twice.
    """
    parts = [part for report in REPORTS for part in report.parts]
    frames: dict[str, DataFrame] = {}

    def compute(part: Report | Series) -> Rows:
        rows = part.compute(context)
        if visit is None:
            return _rows(rows)
        of_fleet = part.of_fleet if isinstance(part, Series) else _all
        if is_divisible(part, rows):
            frames[part.name] = rows = rows.persist(StorageLevel.DISK_ONLY) if of_fleet else rows
        return _rows(of_fleet(rows)) if of_fleet else []

    with without_repartitioning(context.summaries.spark), ThreadPoolExecutor(CONCURRENCY) as pool:
        found: list[Rows] = []
        for each in pool.map(compute, parts):
            progress("computing reports", len(found), len(parts))
            found.append(each)
        findings = Findings(
            as_of=context.as_of,
            tables={part.name: each for part, each in zip(parts, found, strict=True)},
            since=context.since,
            gateways=context.gateways,
            days=context.summaries.days._asdict(),
        ).finite()
        if visit is None:
            return findings
        try:
            visit(findings, SpreadRows(context.summaries.spark, frames))
        finally:
            for frame in frames.values():
                frame.unpersist()
        return replace(findings, is_of_fleet=True)


def _all(rows: DataFrame) -> DataFrame:
    return rows


def _rows(frame: DataFrame) -> Rows:
    rows: Rows = frame.toArrow().to_pylist()
    return rows
