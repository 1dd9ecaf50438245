"""Parts shared by the `fieldpost` commands; each group of commands has its own module."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import ParamSpec

import click

from edge.command_errors import CommandError, report_as_line, to_terminal
from edge.ops import component_mode

P = ParamSpec("P")

_folder_option = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False, readable=False),
    envvar="FIELDPOST_DIR",
    required=True,
    show_envvar=True,
    help="Folder of the gateway.",
)


def report_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Make a command print an error as one line and exit with status 1."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        folder = kwargs.get("folder")
        try:
            with report_as_line(folder if isinstance(folder, Path) else None):
                if isinstance(folder, Path) and kwargs.get("jid") is None:
                    words = click.get_current_context().command_path.partition(" ")[2]
                    component_mode.refuse_command(folder, words)
                command(*args, **kwargs)
        except CommandError as error:
            raise click.ClickException(str(error)) from error
        except (UnicodeDecodeError, UnicodeEncodeError) as error:  # of input, or of an argument
            raise click.ClickException("an argument or the input is not UTF-8") from error

    return run


def folder_option(command: Callable[P, None]) -> Callable[P, None]:
    """Add the option `--dir` to a command, and make it report errors as `report_errors` does."""
    return _folder_option(report_errors(command))


def json_option(help_: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Return a decorator that adds the option `--json`, with this help text."""
    return click.option("--json", "as_json", is_flag=True, help=help_)


yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def echo_found(found: Iterable[object], lines: Iterable[str], *, as_json: bool) -> None:
    """Print each found object as one line of JSON, or `lines` for people; only one is iterated."""
    echo_lines(map(json.dumps, found) if as_json else lines)


def echo_lines(lines: Iterable[str]) -> None:
    """Print lines without terminal control characters."""
    for line in lines:
        click.echo(to_terminal(line))
