"""`fieldpost run`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from edge.cli import folder as folder_option
from edge.cli import telling


@click.command()
@folder_option
@telling
def run(folder: Path) -> None:
    """Run the gateway in the foreground; SIGTERM stops it cleanly."""
    from edge import app  # what the other commands have no use for

    app.run(folder, ready=click.echo, warn=partial(click.echo, err=True))
