"""`fieldpost-fleet ingest`: load segments that have arrived into the tables."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from sync.cli.gather import Selection, gather, report_session
from sync.cli.options import storage_options
from sync.common.progress import progress_line
from sync.common.text import plural
from sync.storage.locations import StorageOptions, open_storage
from sync.tables.spark_session import BATCH_FILES

if TYPE_CHECKING:  # a heavy import, made where it is used
    from pyspark.sql import SparkSession

    from sync.ingest.ingest import IngestResult


@click.command()
@storage_options
@click.option(
    "--batch-files",
    type=click.IntRange(min=1),
    default=BATCH_FILES,
    show_default=True,
    metavar="N",
    help="Maximum number of files in one batch. After a crash, one batch is repeated.",
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
@click.option(
    "--report",
    "out",
    type=click.Path(file_okay=False),
    metavar="DIR|URI",
    help="After the ingest, write the report into this folder, in the same Spark session.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@click.option("--verbose", is_flag=True, help="Show Spark's messages and each step.")
def command(
    options: StorageOptions,
    batch_files: int,
    every: int,
    out: str | None,
    *,
    continuous: bool,
    as_json: bool,
    verbose: bool,
) -> None:
    """Load all arrived segments into the tables.

    Each segment is added exactly once, and its file is moved to the archive. Spark (and Java) is
    started only if more than 2,000 files or 32 MiB wait, or for --report.

    Spark's messages of the last run are in DIR/tables/ingest.log, unless --verbose shows them. With
    --continuous, each run that found segments prints a line, and ingest.log is rotated to
    ingest.log.1 at 4 MiB.
    """
    if out is not None and continuous:
        raise click.UsageError("--report and --continuous exclude each other")
    from sync.ingest.continuous import run_continuously, stopped_by_signals
    from sync.ingest.ingest import IngestControl, ingest_waiting
    from sync.tables.spark_session import (
        require_java,
        spark_errors,
        spark_on_demand,
        spark_session,
    )

    places = options.open()
    report = None
    if out is not None:
        from sync.pages.files import prepare_report

        report = open_storage(out, public=True)
        prepare_report(report)
        require_java()
    log = None if verbose else options.log("ingest.log")

    def start() -> AbstractContextManager[SparkSession]:
        progress("starting Spark", 0, 0)
        if report is None:
            return spark_session("fieldpost-ingest")
        return report_session("fieldpost-ingest", places)

    def print_result(result: IngestResult) -> None:
        if result.batches or not continuous:
            document = {"batches": result.batches, **asdict(result.counts)}
            click.echo(json.dumps(document) if as_json else _line(result))

    with (
        progress_line(shown=not (verbose or continuous)) as progress,
        spark_errors(log),
        spark_on_demand(start) as session,
    ):
        control = IngestControl(progress=progress)
        if verbose:
            control = IngestControl(lambda step: click.echo(f"step {step}", err=True), progress)
        if not continuous:
            result = ingest_waiting(session, places, batch_files=batch_files, control=control)
            progress("", 0, 0)
            print_result(result)
            if report is not None:
                from sync.pages.files import write_report

                found = gather(session(), places, Selection(), report, progress)
                write_report(found, report, progress=progress)
            return
        with stopped_by_signals(control.stopping):
            run_continuously(
                *(session, places, control, print_result),
                every_s=every,
                batch_files=batch_files,
                log=log,
            )


def _line(result: IngestResult) -> str:
    counts = result.counts
    wrong = (
        f"; {plural(counts.misdated, 'event')} with an implausible time under the day of arrival"
        if counts.misdated
        else ""
    )
    return (
        f"ingested {counts.segments} segments with {counts.events} events in "
        f"{plural(result.batches, 'batch', 'batches')}; {counts.duplicates} duplicates skipped, "
        f"{counts.quarantined} quarantined{wrong}"
    )
