"""`fieldpost-fleet compact`: merge the many small files of the tables into few large ones."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime, timedelta

import click

from sync.cli.options import DAYS, storage_options
from sync.common.progress import progress_line
from sync.storage.locations import StorageOptions


@click.command()
@storage_options
@click.option(
    "--before",
    type=click.IntRange(min=0, max=DAYS.max),
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
def command(
    options: StorageOptions,
    before: int,
    day: datetime | None,
    *,
    as_json: bool,
) -> None:
    """Merge the many small files of the tables into few large ones. No row changes.

    Waits at most 10 minutes for a running ingest. Needs no Java.
    """
    from sync.tables.delta import FleetTables
    from sync.tables.maintenance import compact

    places = options.open()
    chosen = "<=", (datetime.now(UTC) - timedelta(days=before)).date().isoformat()
    if day is not None:
        chosen = "=", day.date().isoformat()
    with progress_line() as progress:
        fleet = FleetTables(places.tables, places.segments)
        done = compact(fleet, chosen, segments=day is None, progress=progress)
    if as_json:
        click.echo(json.dumps(asdict(done)))
        return
    click.echo(
        f"merged {done.replaced} files of {done.days} days into {done.written}; "
        f"removed {done.removed} files that were replaced or abandoned"
    )
