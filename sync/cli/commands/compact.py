"""`fieldpost-fleet compact`: merge the many small files of the tables into few large ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from sync.cli.options import cluster_places
from sync.tables.locations import StorageOptions


@click.command()
@cluster_places
@click.option(
    "--before",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    metavar="DAYS",
    help="Compact days that are at least this many days old; 0 includes today.",
)
@click.option(
    "--day",
    type=click.DateTime(formats=["%Y-%m-%d"]),
    metavar="YYYY-MM-DD",
    help="Compact only this day (UTC) of the events.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@click.option("--verbose", is_flag=True, help="Show Spark's own messages.")
def command(
    folder: Path | None,
    landing: str | None,
    tables: str | None,
    before: int,
    day: datetime | None,
    *,
    as_json: bool,
    verbose: bool,
) -> None:
    """Merge the many small files of the tables into few large ones. No row changes.

    Waits at most 10 minutes for a running ingest. Spark's messages of the last run are in
    DIR/tables/compact.log, unless --verbose shows them.
    """
    from sync.tables.compaction import Compaction
    from sync.tables.hadoop import storage_at
    from sync.tables.maintenance import compact
    from sync.tables.manifest import Commits
    from sync.tables.spark_session import spark_errors, spark_session

    options = StorageOptions(folder, landing, tables)
    options.check()
    log = None if verbose else options.log("compact.log")
    with spark_errors(log), spark_session("fieldpost-compact") as spark:
        places = options.open(lambda uri: storage_at(spark, uri))
        commits = Commits(places.tables)
        compaction = Compaction(spark, places.tables, commits)
        done, rubbish = compact(
            compaction, places, commits, _chosen(before, day), segments=day is None
        )
    removed = len(rubbish.replaced) + len(rubbish.attempts)
    if as_json:
        click.echo(json.dumps(asdict(done) | {"removed": removed}))
        return
    click.echo(
        f"merged {done.replaced} files of {done.days} days into {done.written}; "
        f"removed {removed} files and folders that an earlier run had replaced"
    )


def _chosen(before: int, day: datetime | None) -> Callable[[str], bool]:
    if day is not None:
        wanted = day.date().isoformat()
        return lambda name: name == wanted
    last = (datetime.now(UTC) - timedelta(days=before)).date().isoformat()
    return lambda name: name <= last
