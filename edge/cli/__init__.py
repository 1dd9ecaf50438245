"""The `fieldpost` command: one file for each group of commands."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

import click

from edge.errors import FieldpostError

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")

folder = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="FIELDPOST_DIR",
    required=True,
    help="The gateway's folder; $FIELDPOST_DIR if not given.",
)
"""The option that nearly every command has."""


def telling(command: Callable[P, None]) -> Callable[P, None]:
    """Make a command tell what went wrong in one line, and end with status 1."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except FieldpostError as error:
            raise click.ClickException(str(error)) from error
        except BrokenPipeError:
            # Whoever read our output has gone; Python must not complain again when it flushes.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except OSError as error:
            raise click.ClickException(str(error)) from error

    return run


def shown(line: str) -> str:
    """Escape what is not printable, so that no device can forge a line or steer the terminal, and
    what the terminal's encoding does not have."""
    printable = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in line
    )
    encoding = sys.stdout.encoding
    return printable.encode(encoding, "backslashreplace").decode(encoding)
