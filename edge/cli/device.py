"""`fieldpost device`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from edge.admin import devices
from edge.cli import folder as folder_option
from edge.cli import telling

if TYPE_CHECKING:
    from pathlib import Path


@click.group()
def device() -> None:
    """Provision devices."""


@device.command()
@click.argument("name")
@folder_option
@click.option("--password", help="Its password; others on this machine may see it here.")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@click.option("--no-trust", is_flag=True, help="Let it log in, but take no messages from it.")
@telling
def add(
    name: str, folder: Path, password: str | None, password_stdin: bool, no_trust: bool
) -> None:
    """Provision device NAME; prints its JID, and its password if one was made up, once."""
    if password is not None and password_stdin:
        raise click.UsageError("--password and --password-stdin exclude each other")
    if password_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    if password == "":
        raise click.UsageError("the password is empty")
    jid, made_up = devices.add(folder, name, password, trusted=not no_trust)
    click.echo(jid)
    if made_up is not None:
        click.echo(made_up)
