"""Print lines that contain text from outside, such as file names and gateway names."""

from __future__ import annotations

import sys

import click

from sync.common.text import printable


def print_line(line: str, *, err: bool = False) -> None:
    """Print a line; escape control characters, and characters that the terminal cannot encode."""
    stream = sys.stderr if err else sys.stdout
    click.echo(printable(line, stream.encoding), err=err)
