"""`fieldpost-fleet gateway`: enrol, list and revoke gateways."""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from sync.cli.options import fleet_dir
from sync.common.enrolment import (
    Enrolment,
    EnrolmentError,
    format_enrolment,
    is_centre_url,
    new_token,
    write_enrolment,
)
from sync.common.errors import FleetError
from sync.common.fleet_folder import FleetFolder, is_enrollable

if TYPE_CHECKING:  # heavy imports, made where they are used
    from sync.receiver.gateways import GatewayRecord, GatewayRegistry
    from sync.receiver.pki import Authority

MAX_CA_BYTES = 32 * 1024
"""Largest certificate file for `--ca`, in bytes. An enrolment file may have 64 KiB."""


@click.group()
def command() -> None:
    """Enrol, list and revoke gateways."""


@command.command()
@click.argument("gateway")
@fleet_dir
@click.option(
    "--url", required=True, help="URL at which the gateway reaches this centre: https://HOST:PORT."
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    help="Another host name or address for the receiver's certificate. Repeatable.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Enrolment file to write, readable by its owner only.  [default: standard output]",
)
@click.option(
    "--ca",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="PEM file of the authority that the gateway trusts instead of the centre's own.",
)
@click.option(
    "--certificate",
    is_flag=True,
    help="Include a client certificate and its key; the gateway renews them itself.",
)
@click.option(
    "--days",
    type=click.IntRange(1, 3_650),
    metavar="DAYS",
    help="Validity of the first certificate.  [default: 365]",
)
@click.option(
    "--no-token",
    "tokenless",
    is_flag=True,
    help="Issue no token: the gateway authenticates by its certificate only.",
)
@click.option(
    "--renew",
    is_flag=True,
    help="Replace the credentials of an enrolled gateway; the previous ones become invalid.",
)
def add(
    gateway: str,
    folder: Path,
    url: str,
    hosts: tuple[str, ...],
    out: Path | None,
    ca: Path | None,
    days: int | None,
    *,
    certificate: bool,
    tokenless: bool,
    renew: bool,
) -> None:
    """Enrol GATEWAY, named by its domain, and write its enrolment file with its credentials.

    Creates the fleet folder, its certificate authority and the receiver's certificate if they do
    not exist.
    """
    from sync.receiver.client_certificates import CLIENT_DAYS, issue_with_key
    from sync.receiver.gateways import GatewayRegistry
    from sync.receiver.pki import Authority

    if not is_enrollable(gateway):
        msg = "must be a domain in lower case of at most 240 characters"
        raise click.BadParameter(msg, param_hint="GATEWAY")
    if not is_centre_url(url):
        raise click.BadParameter("must be https://HOST or https://HOST:PORT", param_hint="--url")
    if not certificate and (tokenless or days is not None):
        raise click.UsageError("--days and --no-token require --certificate")
    fleet = FleetFolder(folder)
    fleet.create()
    registry, authority = GatewayRegistry(fleet), Authority(fleet.pki)
    with fleet.locked():
        if not renew:
            _refuse_to_overwrite(registry, gateway, out)
        ca_pem = _prepare_certificates(authority, (str(urlsplit(url).hostname), *hosts), ca)
        now_ms, token = _now_ms(), "" if tokenless else new_token()
        pem, key, expires_ms = "", "", None
        if certificate:
            since_ms = registry.first_issue(gateway, now_ms)
            issued, new_key = issue_with_key(authority, gateway, since_ms, days or CLIENT_DAYS)
            pem, key, expires_ms = issued.pem.decode(), new_key.decode(), issued.expires_ms
        try:
            enrolment = Enrolment(gateway, url, token, ca_pem, pem, key)
        except EnrolmentError as error:
            raise FleetError(str(error)) from None
        _enrol(registry, enrolment, out, now_ms, expires_ms, renew=renew)
    if out is None:
        click.echo(format_enrolment(enrolment), nl=False)
    else:
        click.echo(f"enrolled {gateway}; copy {out} to the gateway, then delete it here")


@command.command("list")
@fleet_dir
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def list_gateways(folder: Path, *, as_json: bool) -> None:
    """List all gateways with their state and credentials."""
    import msgspec

    from sync.receiver.gateways import GatewayRegistry

    fleet = FleetFolder(folder)
    fleet.require()
    survey = GatewayRegistry(fleet).survey()
    for record in survey.records:
        if as_json:
            fields = msgspec.structs.asdict(record)
            del fields["token_sha256"]
            click.echo(msgspec.json.encode(fields).decode())
        else:
            click.echo(_line(record))
    if survey.faults:
        raise FleetError("; ".join(survey.faults))


@command.command()
@click.argument("gateway")
@fleet_dir
def revoke(gateway: str, folder: Path) -> None:
    """Refuse the token and certificates of GATEWAY from now on; its segments stay."""
    from sync.receiver.gateways import GatewayRegistry

    fleet = FleetFolder(folder)
    fleet.require()
    with fleet.locked():
        GatewayRegistry(fleet).revoke(gateway, _now_ms())
    click.echo(f"revoked {gateway}")


def _refuse_to_overwrite(registry: GatewayRegistry, gateway: str, out: Path | None) -> None:
    """Raise FleetError if the gateway is enrolled or the file `out` exists."""
    from sync.receiver.gateways import already_enrolled

    if registry.get(gateway) is not None:
        raise already_enrolled(gateway)
    if out is not None and out.exists():
        raise FleetError(f"{out} already exists; choose another file, or use --renew")


def _prepare_certificates(authority: Authority, hosts: tuple[str, ...], ca: Path | None) -> str:
    """Issue the receiver's certificate for `hosts`; return the CA for the gateway to trust, in PEM.

    This is the content of the file `ca`, or the centre's own CA certificate if `ca` is None.
    """
    authority.ensure(hosts, dt.datetime.now(dt.UTC))
    path = ca or authority.ca
    with path.open("rb") as file:
        text = file.read(MAX_CA_BYTES + 1)
    if len(text) > MAX_CA_BYTES or not text.isascii():
        raise FleetError(f"{path} is not a certificate in PEM of at most {MAX_CA_BYTES} bytes")
    return text.decode("ascii")


def _enrol(
    registry: GatewayRegistry,
    enrolment: Enrolment,
    out: Path | None,
    now_ms: int,
    expires_ms: int | None,
    *,
    renew: bool,
) -> None:
    """Write the enrolment file and then the gateway's record.

    If the file cannot be written, the record does not change.
    """
    if out is not None:
        try:
            write_enrolment(out, enrolment)
        except EnrolmentError as error:
            raise FleetError(f"cannot write {out}: {error}") from None
    try:
        registry.enrol(
            enrolment.gateway,
            enrolment.url,
            enrolment.token,
            now_ms,
            renew=renew,
            certificate_ends=expires_ms,
        )
    except (FleetError, OSError):
        if out is not None:
            out.unlink(missing_ok=True)
        raise


def _line(record: GatewayRecord) -> str:
    if record.revoked is not None:
        return f"{record.gateway}  revoked {_day(record.revoked)}"
    credentials = ["token"] if record.token_sha256 else []
    if record.certificate_ends is not None:
        credentials.insert(0, f"certificate until {_day(record.certificate_ends)}")
    listed = ", ".join(credentials)
    return f"{record.gateway}  enrolled {_day(record.added)}  {record.url}  {listed}"


def _day(ms: int) -> str:
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC).strftime("%Y-%m-%d")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
