"""The `fieldpost-fleet` command: finds its subcommands and turns errors into one line.

Does nothing itself; each subcommand is a module of `sync.cli.commands` that exports `command`.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Sequence
from typing import Any

import click

from sync.cli import commands
from sync.common.errors import FleetError
from sync.common.text import os_error, printable


class CommandFolder(click.Group):
    """A group whose commands are the modules of `sync.cli.commands`, imported when named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name every module of the folder, in order."""
        del ctx
        return sorted(module.name for module in pkgutil.iter_modules(commands.__path__))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module called `cmd_name` and give its command; None when there is none."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"{commands.__name__}.{cmd_name}").command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a subcommand; what the centre cannot do becomes one line and exit status 1."""
        try:
            return super().invoke(ctx)
        except FleetError as error:
            text = printable(str(error), sys.stderr.encoding)
            raise click.ClickException(text) from error
        except OSError as error:
            raise click.ClickException(printable(os_error(error), sys.stderr.encoding)) from error


@click.group(cls=CommandFolder)
@click.version_option(package_name="fieldpost")
def cli() -> None:
    """Look after the centre: enrol gateways, receive their segments, make tables and reports."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit: 0 done, 1 it failed and said why in one line, 2 wrong usage."""
    cli.main(args=arguments, prog_name="fieldpost-fleet")
