"""The `fieldpost` command: one file for each group of commands."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ParamSpec

import click

from edge.errors import FieldpostError
from edge.ops.folder_owner import owner_to_be
from sync.common.text import os_error, printable

P = ParamSpec("P")

folder = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False, readable=False),
    envvar="FIELDPOST_DIR",
    required=True,
    help="The gateway's folder; $FIELDPOST_DIR if not given.",
)
"""The option that nearly every command has."""


def telling(command: Callable[P, None]) -> Callable[P, None]:
    """Make a command tell what went wrong in one line, and end with status 1.

    Who is not the user whose folder it is gets told that as well: it is the likeliest reason.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except FieldpostError as error:
            raise _failed(str(error), kwargs) from error
        except BrokenPipeError:
            # Whoever read our output has gone; Python must not complain again when it flushes.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except OSError as error:
            raise _failed(os_error(error), kwargs) from error

    return run


def _failed(text: str, options: Mapping[str, object]) -> click.ClickException:
    place = options.get("folder")
    owner = owner_to_be(place) if isinstance(place, Path) else None
    advice = "" if owner is None else f"; {place} is the folder of {owner}: run this as that user"
    return click.ClickException(shown(text + advice))


def shown(line: str) -> str:
    """Make a line fit for the terminal, whatever devices have written into it."""
    return printable(line, sys.stdout.encoding)
