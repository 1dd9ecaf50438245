"""Options that several `fieldpost-fleet` commands share, so that they read alike everywhere."""

from __future__ import annotations

from pathlib import Path

import click

from sync.central.folders import FLEET_DIR_VARIABLE

fleet_dir = click.option(
    "--dir",
    "folder",
    envvar=FLEET_DIR_VARIABLE,
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The fleet folder.",
    show_envvar=True,
)
