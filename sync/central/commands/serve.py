"""`fieldpost-fleet serve`: receive the segments of enrolled gateways over HTTPS."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from sync.central.folders import FleetFolder
from sync.central.options import fleet_dir

DEFAULT_LISTEN = "127.0.0.1:8443"


@click.command()
@fleet_dir
@click.option(
    "--listen",
    default=DEFAULT_LISTEN,
    show_default=True,
    metavar="HOST:PORT",
    help="Where to listen; port 0 takes a free one, 0.0.0.0 is every IPv4 address.",
)
@click.option(
    "--certificate",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A certificate of another authority, with its chain, PEM.",
)
@click.option(
    "--key",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The key of --certificate, PEM.",
)
def command(folder: Path, listen: str, certificate: Path | None, key: Path | None) -> None:
    """Receive segments over HTTPS, until SIGTERM.

    Prints one line, `ready https=HOST:PORT`, when gateways can connect.
    """
    host, port = _address(listen)
    if (certificate is None) != (key is None):
        msg = "--certificate and --key go together"
        raise click.UsageError(msg)
    from sync.central import logs, server

    fleet = FleetFolder(folder)
    fleet.require()
    logs.to_stderr()
    if certificate is None or key is None:
        chain = server.own_chain(fleet)
    else:
        chain = server.Chain(certificate, key)
    asyncio.run(server.serve(fleet, server.Listen(host, port), chain, _say_ready))


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise click.BadParameter("is not HOST:PORT", param_hint="--listen")
    return host.strip("[]"), int(port)


def _say_ready(address: tuple[str, int]) -> None:
    host, port = address
    shown = f"[{host}]" if ":" in host else host
    click.echo(f"ready https={shown}:{port}")
