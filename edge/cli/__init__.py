"""Parts shared by the `fieldpost` commands; each group of commands has its own module."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ParamSpec

import click

from edge.errors import FieldpostError
from edge.ops.folder_owner import other_owner
from sync.common.text import os_error, printable

P = ParamSpec("P")

folder_option = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False, readable=False),
    envvar="FIELDPOST_DIR",
    required=True,
    help="Folder of the gateway. Default: $FIELDPOST_DIR.",
)


def report_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Make a command print an error as one line and exit with status 1.

    If the user does not own the gateway's folder, the line says so, as that is the likely cause.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except FieldpostError as error:
            raise _to_click(str(error), kwargs) from error
        except BrokenPipeError:
            # The reader of the output has gone; Python must not complain again when it flushes.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except OSError as error:
            raise _to_click(os_error(error), kwargs) from error

    return run


def to_terminal(line: str) -> str:
    """Make a line safe to print, whatever devices have written into it."""
    return printable(line, sys.stdout.encoding)


def _to_click(text: str, options: Mapping[str, object]) -> click.ClickException:
    folder = options.get("folder")
    owner = other_owner(folder) if isinstance(folder, Path) else None
    advice = "" if owner is None else f"; {folder} belongs to {owner}: run this as that user"
    return click.ClickException(to_terminal(text + advice))
