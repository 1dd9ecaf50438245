"""The `fieldpost init` command."""

from __future__ import annotations

from pathlib import Path

import click

from edge.cli import folder_option
from edge.ops import setup


@click.command()
@folder_option
@click.option("--domain", required=True, help="XMPP domain of the gateway, such as gw.example.")
@click.option(
    "--listen",
    multiple=True,
    help="HOST:PORT for devices that use STARTTLS; may be repeated. Default: 127.0.0.1:5222."
    " Direct TLS uses the next port.",
)
def init(folder: Path, domain: str, listen: tuple[str, ...]) -> None:
    """Create the folder of a gateway.

    It contains the configuration, the database, a private CA and the server certificate.
    """
    setup.init(folder, domain, *listen)
    click.echo(f"created {domain} in {folder}; next: `fieldpost device add`, `fieldpost run`")
