"""The command `fieldpost-sim`: test a gateway with simulated devices, and print a verdict.

Subcommands import their modules when they run, so that `--help` is fast.
"""

from __future__ import annotations

import click

import fieldpost
from firmware_sim.fleet.command import fleet_command
from firmware_sim.scenarios import commands


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Test a Fieldpost gateway with simulated devices, or simulate the data of a fleet."""
    fieldpost.use_library()  # `fleet` encodes segments


@main.group("run")
def run_group() -> None:
    """Run a scenario. Exit status: 0 passed, 1 failed, 2 wrong usage."""


main.add_command(fleet_command)
main.add_command(commands.verdict_command)
run_group.add_command(commands.count_command)
run_group.add_command(commands.custody_command)
run_group.add_command(commands.attack_command)
run_group.add_command(commands.workers_command)


if __name__ == "__main__":
    main()
