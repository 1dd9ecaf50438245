"""Compute the content of a report from the tables of a fleet, and draw a large fleet's pages."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, date, datetime, tzinfo
from typing import TYPE_CHECKING, Final, NamedTuple

from sync.common.progress import Progress, no_progress
from sync.storage.local import LocalStorage
from sync.storage.locations import FleetStorage
from sync.storage.storage import Storage

if TYPE_CHECKING:  # heavy imports, made where they are used
    from pyspark.sql import SparkSession

    from sync.reports.shared.by_gateway import SpreadRows
    from sync.reports.shared.findings import Findings
    from sync.reports.shared.report import ReportContext
    from sync.tables.delta import Snapshot


LARGE_FLEET: Final = 100
"""Gateways above which Spark's tasks draw the gateways' pages, and the driver does not hold the
rows that only these show: at most 1.4 MB of a gateway, so that those of fewer fit into it."""

FEW_EVENTS: Final = 100_000
"""Events up to which a fleet is not large, however many gateways it has: counting these takes a
Spark job, which is noticeable in a small report."""


class Selection(NamedTuple):
    """The choice of a report's content.

    `since` is the first day (UTC; None for all days), `gateways` the gateways (None for all),
    `as_of` the point in time that the report describes (None for the present), and `cap` the quota
    of a gateway's folder in bytes (None for the quota that the gateway reports). `zone` is the time
    zone of the pages. With `only_problems`, only gateways with problems have a page.
    """

    since: date | None = None
    gateways: tuple[str, ...] | None = None
    as_of: datetime | None = None
    cap: int | None = None
    zone: tzinfo = UTC
    only_problems: bool = False


def report_session(name: str, places: FleetStorage) -> AbstractContextManager[SparkSession]:
    """Return a Spark session for a report from the tables in `places`."""
    from sync.reports.shared.registry import SUMMARIES
    from sync.tables.spark_session import spark_for
    from sync.tables.summaries import events_to_summarise

    snapshot = _snapshot(places)
    return spark_for(name, snapshot.rows, events_to_summarise(snapshot, SUMMARIES))


def gather(
    spark: SparkSession,
    places: FleetStorage,
    selection: Selection,
    out: Storage,
    progress: Progress = no_progress,
) -> Findings:
    """Bring the daily summaries up to date, and compute all reports.

    The pages of a large fleet's gateways are written into `out` by Spark's tasks; the result then
    has `is_of_fleet`.
    """
    from sync.pages.files import draw_pages
    from sync.reports.shared.collect import collect
    from sync.reports.shared.registry import SUMMARIES
    from sync.reports.shared.report import ReportContext
    from sync.tables.spark_session import without_overflow_errors
    from sync.tables.summaries import summarise
    from sync.tables.tables import read_segments

    def draw(found: Findings, rows: SpreadRows) -> None:
        found = replace(found, zone=selection.zone)
        draw_pages(found, rows, out, only_problems=selection.only_problems, progress=progress)

    snapshot = _snapshot(places, selection.as_of)
    with without_overflow_errors(spark):
        past = selection.as_of is not None
        kept = summarise(spark, snapshot, SUMMARIES, past=past, progress=progress)
        segments = read_segments(spark, snapshot)
        moment = selection.as_of or datetime.now(UTC)
        context = ReportContext(
            kept, segments, moment, selection.since, selection.gateways, selection.cap
        )
        if selection.as_of is not None:
            context = context.restricted_to_past()
        is_large = snapshot.rows > FEW_EVENTS and _can_write(spark, out) and _is_large(context)
        found = collect(context, draw if is_large else None, progress)
        return replace(found, zone=selection.zone)


def _can_write(spark: SparkSession, out: Storage) -> bool:
    """Return whether Spark's tasks can write into `out`: no local disk is that of a cluster."""
    return not isinstance(out, LocalStorage) or str(spark.sparkContext.master).startswith("local")


def _is_large(context: ReportContext) -> bool:
    return context.segments().select("gateway").distinct().count() > LARGE_FLEET


def _snapshot(places: FleetStorage, as_of: datetime | None = None) -> Snapshot:
    from sync.tables.delta import FleetTables

    return FleetTables(places.tables, places.segments).snapshot(as_of)
