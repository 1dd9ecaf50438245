"""`fieldpost-fleet serve`: receive the segments of enrolled gateways over HTTPS."""

from __future__ import annotations

import asyncio
import ipaddress
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sync.cli.options import fleet_dir, landing_uri, tables_uri
from sync.common.fleet_folder import FleetFolder
from sync.storage.local import LocalStorage
from sync.storage.locations import StorageOptions, open_storage
from sync.storage.storage import check_writable

if TYPE_CHECKING:  # a heavy import, made where it is used
    from sync.receiver.proxy import ReverseProxy

DEFAULT_LISTEN = "127.0.0.1:8443"
_HEADER = re.compile(r"[A-Za-z0-9-]+", re.ASCII)


@click.command()
@fleet_dir
@landing_uri
@click.option(
    "--spool",
    "spool_bytes",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="With --landing: maximum bytes of segments that are kept in the fleet folder, and "
    "acknowledged, while the landing is away.  [default: none; gateways keep them]",
)
@tables_uri
@click.option(
    "--listen",
    default=DEFAULT_LISTEN,
    show_default=True,
    metavar="HOST:PORT",
    help="Address to listen on. Port 0 selects a free port; 0.0.0.0 is every IPv4 address.",
)
@click.option(
    "--certificate",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="PEM file of a certificate from another authority, with its chain. Needs --key.",
)
@click.option(
    "--key",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="PEM file of the key of --certificate.",
)
@click.option(
    "--rate",
    "bytes_per_s",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Rate limit of each gateway in bytes per second.  [default: 16 MiB]",
)
@click.option(
    "--unauthenticated-per-address",
    type=click.IntRange(min=1),
    metavar="N",
    help="Maximum connections of one address (IPv6: /64 network) on which no gateway has been "
    "authenticated; a further one closes the oldest.  [default: 64]",
)
@click.option(
    "--connections-per-address",
    "connections_per_address_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Maximum new connections per second of one address, averaged over a minute.  "
    "[default: 10]",
)
@click.option(
    "--reserve",
    "reserve_bytes",
    type=click.IntRange(min=0),
    metavar="BYTES",
    help="Bytes of the disk to keep free. With less free space, segments are refused."
    "  [default: 512 MiB]",
)
@click.option(
    "--landing-cap",
    "landing_quota_bytes",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Maximum bytes of segments that wait for the ingest.  [default: the whole disk]",
)
@click.option(
    "--behind-proxy",
    is_flag=True,
    help="Serve plain HTTP to a reverse proxy that terminates TLS.",
)
@click.option(
    "--trust-proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Address or network of the proxy.  [default: this machine] Repeatable.",
)
@click.option(
    "--client-certificate-header",
    metavar="NAME",
    help="Header in which the proxy passes the client certificate (PEM, URL-escaped).",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Address that serves /metrics (Prometheus), /health and /live over plain HTTP.",
)
@click.option(
    "--ingest-every",
    type=click.IntRange(min=1, max=86_400),
    metavar="SECONDS",
    help="Interval at which a separate process ingests the segments that have arrived.  "
    "[default: never]",
)
@click.option(
    "--report",
    type=click.Path(file_okay=False),
    metavar="DIR|URI",
    help="With --ingest-every: place of the report, which is made at the start and after an "
    "ingest, at most every 15 minutes.",
)
def command(
    folder: Path,
    landing: str | None,
    tables: str | None,
    listen: str,
    certificate: Path | None,
    key: Path | None,
    proxies: tuple[str, ...],
    client_certificate_header: str | None,
    metrics: str | None,
    ingest_every: int | None,
    report: str | None,
    *,
    behind_proxy: bool,
    **changed_limits: float | None,
) -> None:
    """Receive segments over HTTPS, until SIGTERM.

    With --ingest-every and --report, this command is a whole centre for a small fleet.

    Prints one line, `ready https=HOST:PORT`, when gateways can connect; `http=` behind a proxy.
    """
    address = _parse_address(listen, "--listen")
    metrics_address = None if metrics is None else _parse_address(metrics, "--metrics")
    if (certificate is None) is not (key is None):
        raise click.UsageError("--certificate and --key must be given together")
    files = (certificate, key) if certificate and key else None
    proxy = None
    if behind_proxy:
        proxy = _reverse_proxy(address[0], proxies, client_certificate_header)
    if (proxies or client_certificate_header) and proxy is None:
        msg = "--trust-proxy and --client-certificate-header require --behind-proxy"
        raise click.UsageError(msg)
    for option, value, needed, present in (
        ("--report", report, "--ingest-every", ingest_every),
        ("--tables", tables, "--ingest-every", ingest_every),
        ("--spool", changed_limits["spool_bytes"], "--landing", landing),
    ):
        if value is not None and present is None:
            raise click.UsageError(f"{option} requires {needed}")
    if proxy is not None and files is not None:
        msg = "--certificate cannot be combined with --behind-proxy: the proxy terminates TLS"
        raise click.UsageError(msg)
    from sync.common import json_log
    from sync.receiver import server, tls
    from sync.receiver.limits import ReceiverLimits
    from sync.receiver.periodic_ingest import COMMAND, IngestPlan
    from sync.tables.spark_session import require_java

    fleet = FleetFolder(folder)
    fleet.require()
    options = StorageOptions(folder, landing, tables)
    options.check()
    if report is not None:
        out = open_storage(report, public=True)  # an object store may be away for a while
        if isinstance(out, LocalStorage):
            check_writable(out, "")
        require_java()
    json_log.log_to_stderr()
    frontend = proxy or (
        tls.CertificateFiles(*files) if files else tls.ensure_own_certificate(fleet)
    )
    given: dict[str, Any] = {name: it for name, it in changed_limits.items() if it is not None}
    limits = replace(ReceiverLimits(), **given)
    patience = timedelta(seconds=limits.store_patience_s)
    remote = options.open_segments(patience) if landing else None
    metrics_listen = server.ListenAddress(*metrics_address) if metrics_address else None
    asyncio.run(
        server.serve(
            fleet,
            server.ListenAddress(*address),
            frontend,
            limits,
            _print_ready,
            metrics_listen,
            IngestPlan((*COMMAND, *options.words()), ingest_every, report)
            if ingest_every
            else None,
            remote,
        )
    )


def _reverse_proxy(host: str, addresses: tuple[str, ...], header: str | None) -> ReverseProxy:
    """Return the trusted reverse proxy at `addresses`, by default on this machine.

    Without `addresses`, refuses to listen on another `host` than this machine, because plain HTTP
    would expose tokens.
    """
    from sync.receiver.proxy import LOOPBACK_NETWORKS, ReverseProxy
    from sync.uplink.proxies import is_this_machine

    if not addresses and not is_this_machine(host):
        msg = "plain HTTP needs a loopback address, or --trust-proxy with the proxy's address"
        raise click.BadParameter(msg, param_hint="--listen")
    if header is not None and _HEADER.fullmatch(header) is None:
        msg = "must be the name of an HTTP header"
        raise click.BadParameter(msg, param_hint="--client-certificate-header")
    try:
        networks = tuple(map(ipaddress.ip_network, addresses))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--trust-proxy") from None
    return ReverseProxy(networks or LOOPBACK_NETWORKS, header)


def _parse_address(text: str, option: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise click.BadParameter("must be HOST:PORT", param_hint=option)
    return host.strip("[]"), int(port)


def _print_ready(addresses: dict[str, tuple[str, int]]) -> None:
    fields = (f"{name}={_format_address(*address)}" for name, address in addresses.items())
    click.echo(" ".join(("ready", *fields)))


def _format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
