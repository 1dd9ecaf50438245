"""Compute the content of a report from the tables of a fleet."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, NamedTuple

from sync.common.progress import Progress, no_progress
from sync.storage.locations import FleetStorage

if TYPE_CHECKING:  # heavy imports, made where they are used
    from pyspark.sql import SparkSession

    from sync.reports.shared.findings import Findings
    from sync.tables.delta import Snapshot


class Selection(NamedTuple):
    """The choice of a report's content.

    `since` is the first day (UTC; None for all days), `gateways` the gateways (None for all),
    `as_of` the point in time that the report describes (None for now), and `cap` the quota of a
    gateway's folder in bytes (None for the quota that the gateway reports).
    """

    since: date | None = None
    gateways: tuple[str, ...] | None = None
    as_of: datetime | None = None
    cap: int | None = None


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
    progress: Progress = no_progress,
) -> Findings:
    """Bring the daily summaries up to date, and compute all reports."""
    from sync.reports.shared.collect import collect
    from sync.reports.shared.registry import SUMMARIES
    from sync.reports.shared.report import ReportContext
    from sync.tables.spark_session import without_overflow_errors
    from sync.tables.summaries import summarise
    from sync.tables.tables import read_segments

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
        return collect(context, progress=progress).finite()


def _snapshot(places: FleetStorage, as_of: datetime | None = None) -> Snapshot:
    from sync.tables.delta import FleetTables

    return FleetTables(places.tables, places.segments).snapshot(as_of)
