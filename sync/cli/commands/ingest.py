"""`fieldpost-fleet ingest`: move landed segments into the tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sync.cli.options import cluster_places
from sync.tables.locations import StorageOptions
from sync.tables.spark_session import BATCH_FILES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sync.ingest.ingest import IngestResult


@click.command()
@cluster_places
@click.option(
    "--batch-files",
    type=click.IntRange(min=1),
    default=BATCH_FILES,
    show_default=True,
    help="Most files in one batch. After a crash, one batch is repeated.",
)
@click.option(
    "--continuous", is_flag=True, help="Run until SIGTERM; then finish the current batch and stop."
)
@click.option(
    "--every",
    type=click.IntRange(min=1, max=86_400),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="With --continuous: time from the start of one run to the start of the next.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@click.option("--verbose", is_flag=True, help="Show Spark's messages and each step.")
def command(
    folder: Path | None,
    landing: str | None,
    tables: str | None,
    batch_files: int,
    every: int,
    *,
    continuous: bool,
    as_json: bool,
    verbose: bool,
) -> None:
    """Add all landed segments to the tables, each exactly once, and move them to the archive.

    Spark's messages of the last run are in DIR/tables/ingest.log, unless --verbose shows them. With
    --continuous, each run that found segments prints a line, and ingest.log is rotated to
    ingest.log.1 at 4 MiB.
    """
    from sync.tables.spark_session import spark_errors, spark_session

    named = StorageOptions(folder, landing, tables)
    named.check()

    def tell(summary: IngestResult) -> None:
        click.echo(json.dumps(_document(summary)) if as_json else _line(summary))

    with (
        spark_errors(None if verbose else _log(named)),
        spark_session("fieldpost-ingest") as spark,
    ):
        if continuous:
            _go_on(spark, named, batch_files, every, tell, verbose=verbose)
        else:
            tell(_once(spark, named, batch_files, verbose=verbose))


def _log(named: StorageOptions) -> Path | None:
    return named.log("ingest.log")


def _once(
    spark: SparkSession, named: StorageOptions, batch_files: int, *, verbose: bool
) -> IngestResult:
    from sync.ingest.ingest import IngestControl, run_ingest
    from sync.tables.hadoop import storage_at
    from sync.tables.manifest import Commits

    places = named.open(lambda uri: storage_at(spark, uri))
    watch = IngestControl(_step) if verbose else IngestControl()
    return run_ingest(spark, places, Commits(places.tables), batch_files=batch_files, control=watch)


def _go_on(
    spark: SparkSession,
    named: StorageOptions,
    batch_files: int,
    every: int,
    tell: Callable[[IngestResult], None],
    *,
    verbose: bool,
) -> None:
    from sync.ingest.continuous import run_continuously, stopped_by_signals
    from sync.ingest.ingest import IngestControl
    from sync.tables.hadoop import storage_at
    from sync.tables.manifest import Commits

    places = named.open(lambda uri: storage_at(spark, uri))
    watch = IngestControl(_step) if verbose else IngestControl()

    def read(summary: IngestResult) -> None:
        if summary.batches:
            tell(summary)

    with stopped_by_signals(watch.stopping):
        run_continuously(
            *(spark, places, Commits(places.tables), watch, read),
            every_s=every,
            batch_files=batch_files,
            log=None if verbose else _log(named),
        )


def _step(step: str) -> None:
    click.echo(f"step {step}", err=True)


def _document(summary: IngestResult) -> dict[str, int]:
    return {"batches": summary.batches, **asdict(summary.counts), "reread": summary.reread}


def _line(summary: IngestResult) -> str:
    counts = summary.counts
    line = (
        f"ingested {counts.segments} segments with {counts.events} events in {summary.batches} "
        f"{'batch' if summary.batches == 1 else 'batches'}; {counts.duplicates} duplicates "
        f"skipped, {counts.quarantined} quarantined"
    )
    if summary.reread:
        line += f"; {summary.reread} files that the stream had skipped were read again"
    return line
