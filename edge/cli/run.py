"""The `fieldpost run` command."""

from __future__ import annotations

from pathlib import Path

import click

from edge.cli import folder_option
from edge.journal import DEFAULT_LEVEL, FORMATS, LEVEL_NAMES, Journal


@click.command()
@folder_option
@click.option(
    "--log-level",
    type=click.Choice(LEVEL_NAMES, case_sensitive=False),
    default=DEFAULT_LEVEL,
    show_default=True,
    help="Level from which events are written to standard error.",
)
@click.option(
    "--log-format",
    type=click.Choice(FORMATS, case_sensitive=False),
    default=FORMATS[0],
    show_default=True,
    help="Format of standard error: lines for people, or a JSON object per line.",
)
def run(folder: Path, log_level: str, log_format: str) -> None:
    """Run the gateway in the foreground. SIGTERM stops it cleanly.

    Events from --log-level upwards are also written to standard error.
    """
    from edge import app  # heavy, and the other commands do not need it

    app.run(folder, Journal(log_level, log_format))
