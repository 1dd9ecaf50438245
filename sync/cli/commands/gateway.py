"""`fieldpost-fleet gateway`: enrol gateways at the centre, list them, revoke them."""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
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

if TYPE_CHECKING:
    from sync.receiver.gateways import GatewayRecord

MAX_CA_BYTES = 32 * 1024
"""Bytes of a foreign authority's certificates: an enrolment file has 64 KiB."""


@click.group()
def command() -> None:
    """Enrol gateways, list them, revoke them."""


@command.command()
@click.argument("gateway")
@fleet_dir
@click.option(
    "--url", required=True, help="Where the gateway reaches the centre: https://HOST:PORT."
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    help="Another name or address that the receiver's certificate shall have. Repeatable.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The enrolment file to write, for the owner alone. Without it, standard output.",
)
@click.option(
    "--ca",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The authority that the gateway shall trust instead of the centre's own, PEM.",
)
@click.option(
    "--certificate",
    is_flag=True,
    help="Put a certificate and its key into the file too: the gateway shows it, and renews it.",
)
@click.option(
    "--days",
    type=click.IntRange(1, 3_650),
    help="Days that the first certificate is valid.  [default: 365]",
)
@click.option(
    "--no-token",
    "tokenless",
    is_flag=True,
    help="Leave the token out: the certificate alone counts, and has to be renewed in time.",
)
@click.option(
    "--renew",
    is_flag=True,
    help="Replace token and certificate of a gateway that is enrolled: those before end.",
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
    """Enrol GATEWAY, named by its domain, and write its enrolment file, which holds its secrets.

    Makes the fleet folder, its authority and the receiver's certificate when they are missing.
    """
    _check(gateway, url)
    if not certificate and (tokenless or days is not None):
        msg = "--days and --no-token go with --certificate"
        raise click.UsageError(msg)
    fleet = FleetFolder(folder)
    fleet.create()
    with fleet.changing():
        _refuse_to_overwrite(fleet, gateway, out, renew=renew)
        trusted = _prepare_certificates(fleet, (str(urlsplit(url).hostname), *hosts), ca)
        now_ms, ends_ms = _now_ms(), None
        enrolment = _new_enrolment(gateway, url, trusted)
        if certificate:
            enrolment, ends_ms = _certified(fleet, enrolment, now_ms, days)
        if tokenless:
            enrolment = replace(enrolment, token="")
        _enrol(fleet, enrolment, out, Enrolling(now_ms, ends_ms, renew))
    if out is None:
        click.echo(format_enrolment(enrolment), nl=False)
    else:
        click.echo(f"enrolled {gateway}: bring {out} to the gateway, then delete it here")


@command.command("list")
@fleet_dir
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_gateways(folder: Path, *, as_json: bool) -> None:
    """Name every gateway that was enrolled, its state, and by what it is known."""
    import msgspec

    from sync.receiver.gateways import GatewayRegistry

    fleet = FleetFolder(folder)
    fleet.require()
    survey = GatewayRegistry(fleet).survey()
    for record in survey.records:
        if as_json:
            shown = msgspec.structs.asdict(record)
            del shown["token_sha256"]
            click.echo(msgspec.json.encode(shown).decode())
        else:
            click.echo(_line(record))
    if survey.faults:
        raise FleetError("; ".join(survey.faults))


@command.command()
@click.argument("gateway")
@fleet_dir
def revoke(gateway: str, folder: Path) -> None:
    """Refuse token and certificates of GATEWAY from now on. What has landed stays."""
    from sync.receiver.gateways import GatewayRegistry

    fleet = FleetFolder(folder)
    fleet.require()
    with fleet.changing():
        GatewayRegistry(fleet).revoke(gateway, _now_ms())
    click.echo(f"revoked {gateway}")


def _check(gateway: str, url: str) -> None:
    if not is_enrollable(gateway):
        msg = "is not a domain in lower case, of at most 240 characters"
        raise click.BadParameter(msg, param_hint="GATEWAY")
    if not is_centre_url(url):
        raise click.BadParameter("is not https://HOST:PORT", param_hint="--url")


def _refuse_to_overwrite(
    fleet: FleetFolder, gateway: str, out: Path | None, *, renew: bool
) -> None:
    """Refuse before anything is changed, so that a mistake leaves all as it was."""
    from sync.receiver.gateways import GatewayRegistry

    if renew:
        return
    if GatewayRegistry(fleet).get(gateway) is not None:
        msg = f"{gateway} is enrolled already; --renew gives it a new token"
        raise FleetError(msg)
    if out is not None and out.exists():
        msg = f"{out} exists; name another file, or use --renew"
        raise FleetError(msg)


def _prepare_certificates(fleet: FleetFolder, hosts: tuple[str, ...], ca: Path | None) -> str:
    """Make the certificates fit `hosts`, and return what the gateway shall trust, PEM."""
    from sync.receiver.pki import Authority

    authority = Authority(fleet.pki)
    authority.ensure(hosts, dt.datetime.now(dt.UTC))
    trusted = ca or authority.ca
    with trusted.open("rb") as file:
        text = file.read(MAX_CA_BYTES + 1)
    if len(text) > MAX_CA_BYTES or not text.isascii():
        msg = f"{trusted} is not a certificate in PEM of at most {MAX_CA_BYTES} bytes"
        raise FleetError(msg)
    return text.decode("ascii")


def _new_enrolment(gateway: str, url: str, ca: str) -> Enrolment:
    try:
        return Enrolment(gateway, url, new_token(), ca)
    except EnrolmentError as error:
        raise FleetError(str(error)) from None


def _certified(
    fleet: FleetFolder, enrolment: Enrolment, now_ms: int, days: int | None
) -> tuple[Enrolment, int]:
    """Add a certificate and its key; the moment it ends comes with it, in ms since 1970 UTC."""
    from sync.receiver.client_certificates import CLIENT_DAYS, issue_with_key
    from sync.receiver.gateways import GatewayRegistry
    from sync.receiver.pki import Authority

    gateway = enrolment.gateway
    issued_ms = GatewayRegistry(fleet).first_issue(gateway, now_ms)
    made, key = issue_with_key(Authority(fleet.pki), gateway, issued_ms, days or CLIENT_DAYS)
    return replace(enrolment, certificate=made.pem.decode(), key=key.decode()), made.ends_ms


class Enrolling(NamedTuple):
    """How a gateway is enrolled: when, until when its certificate is valid, and whether anew."""

    now_ms: int
    ends_ms: int | None
    renew: bool


def _enrol(fleet: FleetFolder, enrolment: Enrolment, out: Path | None, how: Enrolling) -> None:
    """Write the file, then the record: a token that nobody has would lock the gateway out."""
    from sync.receiver.gateways import GatewayRegistry

    if out is not None:
        _write(out, enrolment)
    try:
        GatewayRegistry(fleet).enrol(
            enrolment.gateway,
            enrolment.url,
            enrolment.token,
            how.now_ms,
            renew=how.renew,
            certificate_ends=how.ends_ms,
        )
    except (FleetError, OSError):
        if out is not None:
            out.unlink(missing_ok=True)
        raise


def _write(out: Path, enrolment: Enrolment) -> None:
    try:
        write_enrolment(out, enrolment)
    except EnrolmentError as error:
        msg = f"{out} would be {error}"
        raise FleetError(msg) from None


def _line(record: GatewayRecord) -> str:
    if record.revoked is not None:
        return f"{record.gateway}  revoked {_day(record.revoked)}"
    known_by = ["token"] if record.token_sha256 else []
    if record.certificate_ends is not None:
        known_by.insert(0, f"certificate until {_day(record.certificate_ends)}")
    by = ", ".join(known_by)
    return f"{record.gateway}  enrolled {_day(record.added)}  {record.url}  {by}"


def _day(ms: int) -> str:
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC).strftime("%Y-%m-%d")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
