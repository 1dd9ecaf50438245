"""Print lines that contain foreign text, such as file names and gateway names."""

from __future__ import annotations

import sys

import click

from sync.common.text import printable


def print_line(line: str, *, err: bool = False) -> None:
    """Print a line with control characters, and those the terminal cannot encode, escaped."""
    stream = sys.stderr if err else sys.stdout
    click.echo(printable(line, stream.encoding), err=err)
