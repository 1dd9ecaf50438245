"""Options that several `fieldpost-sim` commands have in common."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

import click

Decorator: TypeAlias = Callable[[Any], Any]

_DAY_S = 86_400.0


def number(
    name: str, kind: click.ParamType[Any], default: float, help_: str, metavar: str = "N"
) -> Decorator:
    """Return a decorator that adds an option with a number, shown in the help as `metavar`."""
    return click.option(
        name, type=kind, default=default, show_default=True, metavar=metavar, help=help_
    )


def seconds(
    name: str, default: float, help_: str, least: float = 0.0, most: float = _DAY_S
) -> Decorator:
    """Return a decorator that adds an option with a number of seconds."""
    return number(name, click.FloatRange(least, most), default, help_, "SECONDS")


def seed_option(help_: str = "Seed of all random choices.") -> Decorator:
    """Return a decorator that adds the option `--seed`."""
    return click.option("--seed", type=int, default=1, show_default=True, help=help_)


def json_option(help_: str = "Print the verdict as JSON.") -> Decorator:
    """Return a decorator that adds the option `--json`."""
    return click.option("--json", "as_json", is_flag=True, help=help_)


def fail(message: str) -> NoReturn:
    """Print an error to standard error in one line, and exit with status 1."""
    click.echo(f"fieldpost-sim: {message}", err=True)
    sys.exit(1)
