"""Entry point of `fieldpost-fleet`: find the subcommands and report errors in one line."""

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
    """A group whose subcommands are the modules of `sync.cli.commands`, imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the subcommands, sorted."""
        del ctx
        return sorted(module.name for module in pkgutil.iter_modules(commands.__path__))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module `cmd_name` and return its command; None if it does not exist."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"{commands.__name__}.{cmd_name}").command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a subcommand; report an error in one line with exit status 1."""
        try:
            return super().invoke(ctx)
        except FleetError as error:
            text = printable(str(error), sys.stderr.encoding)
            raise click.ClickException(text) from error
        except OSError as error:
            raise click.ClickException(printable(os_error(error), sys.stderr.encoding)) from error
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package in ("", "sync"):
                raise
            raise click.ClickException(
                f"{package} is not installed; run `pip install 'fieldpost[fleet]'` with the pip of"
                f" {sys.prefix}"
            ) from error


@click.group(cls=CommandFolder)
@click.version_option(package_name="fieldpost")
def cli() -> None:
    """Operate the centre: enrol gateways, receive their segments, write tables and reports."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit: 0 for success, 1 after an error message, 2 for wrong usage."""
    cli.main(args=arguments, prog_name="fieldpost-fleet")
