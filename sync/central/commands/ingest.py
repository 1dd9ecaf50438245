"""`fieldpost-fleet ingest`: takes the segments that landed into the tables."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from sync.central.folders import FleetFolder
from sync.central.options import fleet_dir
from sync.central.session import BATCH_FILES

if TYPE_CHECKING:
    from pathlib import Path

    from sync.central.ingest import Summary


@click.command()
@fleet_dir
@click.option(
    "--batch-files",
    type=click.IntRange(min=1),
    default=BATCH_FILES,
    show_default=True,
    help="Files in one batch: a crash repeats at most so many.",
)
@click.option("--json", "as_json", is_flag=True, help="Tell the result as one JSON object.")
@click.option("--verbose", is_flag=True, help="Show Spark's own messages, and each step.")
def command(folder: Path, batch_files: int, *, as_json: bool, verbose: bool) -> None:
    """Take all segments that landed into the tables, each exactly once, and file them away.

    Spark's messages of the last run are in DIR/tables/ingest.log, unless --verbose shows them.
    """
    from sync.central.ingest import run_ingest
    from sync.central.manifest import LocalCommits
    from sync.central.session import spark_session, spark_told

    fleet = FleetFolder(folder)
    fleet.require()
    commits = LocalCommits(fleet.tables)
    log = None if verbose else fleet.tables / "ingest.log"
    with spark_told(log), spark_session("fieldpost-ingest") as spark:
        on_step = _step if verbose else lambda step: None
        summary = run_ingest(spark, fleet, commits, on_step, batch_files=batch_files)
    click.echo(json.dumps(_document(summary)) if as_json else _line(summary))


def _step(step: str) -> None:
    click.echo(f"step {step}", err=True)


def _document(summary: Summary) -> dict[str, int]:
    return {"batches": summary.batches, **asdict(summary.counts), "reread": summary.reread}


def _line(summary: Summary) -> str:
    counts = summary.counts
    line = (
        f"ingested {counts.segments} segments with {counts.events} events in {summary.batches} "
        f"{'batch' if summary.batches == 1 else 'batches'}; {counts.duplicates} duplicates "
        f"skipped, {counts.quarantined} quarantined"
    )
    if summary.reread:
        line += f"; {summary.reread} files that the stream had passed over were read anew"
    return line
