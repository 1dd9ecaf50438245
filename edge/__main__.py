"""The `fieldpost` command."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

from edge import __version__

COMMANDS: Final = {
    "init": "setup",
    "device": "device",
    "run": "run",
    "status": "status",
    "events": "events",
    "dead": "dead",
    "queue": "queue",
    "uplink": "uplink",
    "doctor": "doctor",
    "config": "config",
    "backup": "backup",
    "restore": "backup",
}
"""The module of `edge.cli` that has each command."""


class Commands(click.Group):
    """Imports a command when it is asked for: to import all takes a small board seconds."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name all commands, in order."""
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None when there is none of this name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"edge.cli.{COMMANDS[cmd_name]}"), cmd_name)
        return command


@click.group(cls=Commands)
@click.version_option(__version__, prog_name="fieldpost")
def main() -> None:
    """Fieldpost: a broker for field gateways."""


if __name__ == "__main__":
    main()
