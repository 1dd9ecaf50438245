"""How the commands of `fieldpost-fleet` print what strangers named or wrote."""

from __future__ import annotations

import sys

import click

from sync.common.text import printable


def tell(line: str, *, err: bool = False) -> None:
    """Print a line: nothing in it steers the terminal, and all of it is in its encoding."""
    stream = sys.stderr if err else sys.stdout
    click.echo(printable(line, stream.encoding), err=err)
