"""`fieldpost-fleet serve`: receive the segments of enrolled gateways over HTTPS."""

from __future__ import annotations

import asyncio
import ipaddress
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sync.cli.options import fleet_dir
from sync.common.fleet_folder import FleetFolder

if TYPE_CHECKING:
    from sync.receiver.limits import ReceiverLimits
    from sync.receiver.proxy import ReverseProxy

DEFAULT_LISTEN = "127.0.0.1:8443"
_HEADER = re.compile(r"[A-Za-z0-9-]+", re.ASCII)


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
@click.option(
    "--behind-proxy",
    is_flag=True,
    help="Speak plain HTTP, with a proxy on this machine that ends TLS.",
)
@click.option(
    "--trust-proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="The proxy's address, or a network, where it is another machine. Repeatable.",
)
@click.option(
    "--client-certificate-header",
    metavar="NAME",
    help="The header in which the proxy gives its client's certificate, PEM escaped as in a URL.",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Where to tell what is counted: /metrics for Prometheus, and /health, over plain HTTP.",
)
def command(
    folder: Path,
    listen: str,
    certificate: Path | None,
    key: Path | None,
    rate: int | None,
    reserve: int | None,
    landing_cap: int | None,
    proxies: tuple[str, ...],
    client_certificate_header: str | None,
    metrics: str | None,
    *,
    behind_proxy: bool,
) -> None:
    """Receive segments over HTTPS, until SIGTERM.

    Prints one line, `ready https=HOST:PORT`, when gateways can connect; `http=` behind a proxy.
    """
    at = _address(listen, "--listen")
    counts_at = None if metrics is None else _address(metrics, "--metrics")
    chain = _pair(certificate, key)
    proxy = None
    if behind_proxy:
        proxy = _proxy(at[0], proxies, client_certificate_header)
    if (proxies or client_certificate_header) and proxy is None:
        msg = "--trust-proxy and --client-certificate-header go with --behind-proxy"
        raise click.UsageError(msg)
    if proxy is not None and chain is not None:
        msg = "behind a proxy the certificate is the proxy's"
        raise click.UsageError(msg)
    from sync.common import json_log
    from sync.receiver import server, tls

    fleet = FleetFolder(folder)
    fleet.require()
    json_log.log_to_stderr()
    road = proxy or (tls.CertificateFiles(*chain) if chain else tls.ensure_own_certificate(fleet))
    limits = _limits(bytes_per_s=rate, reserve_bytes=reserve, landing_bytes=landing_cap)
    where = server.ListenAddress(*at)
    told = server.ListenAddress(*counts_at) if counts_at else None
    asyncio.run(server.serve(fleet, where, road, limits, _say_ready, told))


def _pair(certificate: Path | None, key: Path | None) -> tuple[Path, Path] | None:
    if certificate is not None and key is not None:
        return certificate, key
    if certificate is None and key is None:
        return None
    msg = "--certificate and --key go together"
    raise click.UsageError(msg)


def _proxy(host: str, addresses: tuple[str, ...], header: str | None) -> ReverseProxy:
    """The proxy that is trusted. Plain HTTP on an open address would show tokens to the network."""
    from sync.receiver.proxy import LOOPBACK_NETWORKS, ReverseProxy, is_loopback

    if not addresses and not is_loopback(host):
        msg = "plain HTTP is for a loopback address, or --trust-proxy names the proxy's"
        raise click.BadParameter(msg, param_hint="--listen")
    if header is not None and _HEADER.fullmatch(header) is None:
        raise click.BadParameter("is no header", param_hint="--client-certificate-header")
    try:
        networks = tuple(map(ipaddress.ip_network, addresses))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--trust-proxy") from None
    return ReverseProxy(networks or LOOPBACK_NETWORKS, header)


def _limits(**given: int | None) -> ReceiverLimits:
    """The receiver's limits, with those that were given in place of the defaults."""
    from sync.receiver.limits import ReceiverLimits

    changed: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return replace(ReceiverLimits(), **changed)


def _address(text: str, option: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise click.BadParameter("is not HOST:PORT", param_hint=option)
    return host.strip("[]"), int(port)


def _say_ready(addresses: dict[str, tuple[str, int]]) -> None:
    words = (f"{name}={_shown(*address)}" for name, address in addresses.items())
    click.echo(" ".join(("ready", *words)))


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
