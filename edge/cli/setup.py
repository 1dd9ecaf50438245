"""`fieldpost init`."""

from __future__ import annotations

from pathlib import Path

import click

from edge.cli import folder_option, report_errors
from edge.ops import setup


@click.command()
@folder_option
@click.option("--domain", required=True, help="The gateway's XMPP domain, such as gw.example.")
@click.option(
    "--listen",
    multiple=True,
    help="Where devices connect, HOST:PORT, once for each address; 127.0.0.1:5222 if not given."
    " Direct TLS is on the port after it.",
)
@report_errors
def init(folder: Path, domain: str, listen: tuple[str, ...]) -> None:
    """Make a gateway's folder: configuration, database, CA and certificate."""
    setup.init(folder, domain, *listen)
    click.echo(f"{folder} is ready for {domain}: add devices, then `fieldpost run`")
