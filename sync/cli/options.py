"""Options that several `fieldpost-fleet` commands share, so that they read alike everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from sync.common.fleet_folder import FLEET_DIR_VARIABLE

fleet_dir = click.option(
    "--dir",
    "folder",
    envvar=FLEET_DIR_VARIABLE,
    required=True,
    type=click.Path(path_type=Path, file_okay=False, readable=False),
    help="The fleet folder.",
    show_envvar=True,
)


def cluster_places(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--dir`, `--landing` and `--tables`, which say where a command reads and writes."""
    for option in (
        click.option(
            "--tables",
            metavar="URI",
            help="Where the tables are, if not in the fleet folder: such as s3a://BUCKET/tables.",
        ),
        click.option(
            "--landing",
            metavar="URI",
            help="The landing, if not the fleet folder's; archive and quarantine lie beside it.",
        ),
        click.option(
            "--dir",
            "folder",
            envvar=FLEET_DIR_VARIABLE,
            type=click.Path(path_type=Path, file_okay=False, readable=False),
            help="The fleet folder. Not needed with both of the others.",
            show_envvar=True,
        ),
    ):
        command = option(command)
    return command
