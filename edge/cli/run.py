"""The `fieldpost run` command."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from edge.cli import folder_option, report_errors


@click.command()
@folder_option
@report_errors
def run(folder: Path) -> None:
    """Run the gateway in the foreground. SIGTERM stops it cleanly."""
    from edge import app  # heavy, and the other commands do not need it

    app.run(folder, ready=click.echo, warn=partial(click.echo, err=True))
