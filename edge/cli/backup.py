"""The `fieldpost backup` and `fieldpost restore` commands."""

from __future__ import annotations

from pathlib import Path

import click

from edge.cli import folder_option
from edge.ops.data import backup as ops
from sync.common.text import utc_time

_AFTER_RESTORE = (
    "Messages, readings and changes to devices after that time are not restored. The next start"
    " begins a new epoch.\nNever run this gateway and the original one at the same time: both would"
    " be {gateway}."
)


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@folder_option
def backup(file: Path, folder: Path) -> None:
    """Write a backup of the gateway to FILE, which must not exist.

    The gateway may be running. The backup contains the database, the configuration and the private
    keys: store it as safely as these keys.
    """
    manifest = ops.write(folder, file)
    click.echo(f"{file} is a backup of {manifest.gateway}: {file.stat().st_size} bytes")


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@folder_option
def restore(file: Path, folder: Path) -> None:
    """Restore a gateway from the backup FILE.

    The folder must be new or empty.
    """
    manifest = ops.restore(file, folder)
    click.echo(f"{folder} is {manifest.gateway} as of {utc_time(manifest.made)}")
    click.echo(_AFTER_RESTORE.format(gateway=manifest.gateway))
