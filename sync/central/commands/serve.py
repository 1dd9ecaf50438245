"""`fieldpost-fleet serve`: receive the segments of enrolled gateways over HTTPS."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sync.central.folders import FleetFolder
from sync.central.options import fleet_dir

if TYPE_CHECKING:
    from sync.central.limits import ReceiverLimits

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
@click.option(
    "--rate",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Bytes that one gateway may send in a second, in the long run.  [default: 16 MiB]",
)
@click.option(
    "--reserve",
    type=click.IntRange(min=0),
    metavar="BYTES",
    help="Bytes of the disk that stay free.  [default: 512 MiB]",
)
@click.option(
    "--landing-cap",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Bytes of segments that may wait for the ingest.  [default: what the disk has]",
)
def command(
    folder: Path,
    listen: str,
    certificate: Path | None,
    key: Path | None,
    rate: int | None,
    reserve: int | None,
    landing_cap: int | None,
) -> None:
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
    limits = _limits(bytes_per_s=rate, reserve_bytes=reserve, landing_bytes=landing_cap)
    asyncio.run(server.serve(fleet, server.Listen(host, port), chain, limits, _say_ready))


def _limits(**given: int | None) -> ReceiverLimits:
    """The receiver's limits, with those that were given in place of the defaults."""
    from sync.central.limits import ReceiverLimits

    changed: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return replace(ReceiverLimits(), **changed)


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise click.BadParameter("is not HOST:PORT", param_hint="--listen")
    return host.strip("[]"), int(port)


def _say_ready(address: tuple[str, int]) -> None:
    host, port = address
    shown = f"[{host}]" if ":" in host else host
    click.echo(f"ready https={shown}:{port}")
