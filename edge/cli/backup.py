"""`fieldpost backup` and `fieldpost restore`."""

from __future__ import annotations

import datetime
from pathlib import Path

import click

from edge.cli import folder_option, report_errors
from edge.ops import backup as admin

_NOT_IN_IT = (
    "What happened since is not in it: messages, devices that were added or revoked, readings.\n"
    "The next start counts events in a new epoch. Never run this and the gateway that it is a copy"
    " of: both would be {gateway}."
)


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@folder_option
@report_errors
def backup(file: Path, folder: Path) -> None:
    """Write a backup of the gateway to the new FILE, also while it runs.

    In it are the database, the configuration and the keys: keep it as you keep those.
    """
    about = admin.write(folder, file)
    click.echo(f"{file} has all of {about.gateway}: {file.stat().st_size} bytes")


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@folder_option
@report_errors
def restore(file: Path, folder: Path) -> None:
    """Make a gateway's folder, new or empty, out of the backup FILE."""
    about = admin.restore(file, folder)
    made = datetime.datetime.fromtimestamp(about.made / 1000, datetime.UTC)
    stamp = made.isoformat(timespec="seconds").replace("+00:00", "Z")
    click.echo(f"{folder} is {about.gateway} as it was at {stamp}")
    click.echo(_NOT_IN_IT.format(gateway=about.gateway))
