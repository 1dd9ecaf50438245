"""`fieldpost-fleet convert`: convert the tables of an older version to Delta Lake."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from sync.cli.options import fleet_dir
from sync.common.fleet_folder import FleetFolder


@click.command()
@fleet_dir
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def command(folder: Path, *, as_json: bool) -> None:
    """Convert the tables of an older version to Delta Lake tables.

    Data files are kept as they are. Back up DIR/tables first: older versions cannot read the
    result. Does nothing if the tables are converted.
    """
    from sync.tables.convert import convert
    from sync.tables.storage import LocalStorage

    fleet = FleetFolder(folder)
    fleet.require()
    done = convert(LocalStorage(fleet.tables.resolve()))
    if as_json:
        click.echo(json.dumps(asdict(done)))
        return
    click.echo(
        f"converted {done.events} files of {done.days} days of events, and {done.segments} files "
        "of segments"
    )
