"""The `fieldpost` command."""

from __future__ import annotations

import click

from edge import __version__
from edge.cli.backup import backup, restore
from edge.cli.config import config
from edge.cli.dead import dead
from edge.cli.device import device
from edge.cli.doctor import doctor
from edge.cli.events import events
from edge.cli.queue import queue
from edge.cli.run import run
from edge.cli.setup import init
from edge.cli.status import status
from edge.cli.uplink import uplink


@click.group()
@click.version_option(__version__, prog_name="fieldpost")
def main() -> None:
    """Fieldpost: a broker for field gateways."""


COMMANDS = (
    *(init, device, run, status, events, dead, queue, uplink),
    *(doctor, config, backup, restore),
)

for command in COMMANDS:
    main.add_command(command)

if __name__ == "__main__":
    main()
