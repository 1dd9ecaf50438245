"""The group of all `fieldpost` commands."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

from edge import build_kind

COMMANDS: Final = {
    "init": "setup",
    "access": "access",
    "device": "device",
    "run": "run",
    "reload": "reload",
    "status": "status",
    "events": "events",
    "dead": "dead",
    "send": "send",
    "listen": "listen",
    "node": "node",
    "queue": "queue",
    "uplink": "uplink",
    "doctor": "doctor",
    "config": "config",
    "backup": "backup",
    "restore": "backup",
}
"""For each command, the name of its module in `edge.cli`."""


class Commands(click.Group):
    """A group that imports a command when it is used; to import all takes seconds on a Pi."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; return `None` if there is none of this name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"edge.cli.{COMMANDS[cmd_name]}"), cmd_name)
        return command


@click.group(cls=Commands)
@click.version_option(build_kind.describe(), prog_name="fieldpost")
def main() -> None:
    """Fieldpost: a message broker for field gateways."""
