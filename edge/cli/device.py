"""`fieldpost device`."""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from edge.cli import folder_option, report_errors
from edge.features.accounts.store.accounts import PendingMessages
from edge.ops import devices
from edge.ops.devices import Device
from sync.common.text import plural

_password = click.option("--password", help="Its password; others on this machine may see it here.")
_password_stdin = click.option(
    "--password-stdin", is_flag=True, help="Read the password from standard input."
)


@click.group()
def device() -> None:
    """Provision devices."""


@device.command()
@click.argument("name")
@folder_option
@_password
@_password_stdin
@click.option("--certificate", is_flag=True, help="Issue a certificate to log in with.")
@click.option("--no-trust", is_flag=True, help="Let it log in, but take no messages from it.")
@click.option(
    "--downgrade", is_flag=True, help="Send it plain messages where it knows no quality of service."
)
@report_errors
def add(
    name: str,
    folder: Path,
    password: str | None,
    password_stdin: bool,
    certificate: bool,
    no_trust: bool,
    downgrade: bool,
) -> None:
    """Provision device NAME.

    Prints its JID; then its password if one was made up, once; then the folder of its certificate
    if it gets one. With --certificate it has no password, unless you give one.
    """
    given = _given(password, password_stdin)
    made = devices.add(
        folder,
        name,
        given,
        trusted=not no_trust,
        certificate=certificate,
        downgrade=downgrade,
    )
    click.echo(made.jid)
    if made.password is not None:
        click.echo(made.password)
    if made.certificate is not None:
        click.echo(made.certificate)


@device.command()
@click.argument("name")
@folder_option
@click.option(
    "--revoke-old", is_flag=True, help="End its sessions, and refuse its older certificates."
)
@report_errors
def certificate(name: str, folder: Path, revoke_old: bool) -> None:
    """Issue a new certificate to device NAME; prints the folder that it is in.

    The older ones are valid until they run out. If NAME was revoked, it is no longer, and has this
    certificate and no password.
    """
    made = devices.renew(folder, name, revoke_old=revoke_old)
    click.echo(made.folder)
    _tell_restored(name, made.restored)


@device.command()
@click.argument("name")
@folder_option
@_password
@_password_stdin
@report_errors
def passwd(name: str, folder: Path, password: str | None, password_stdin: bool) -> None:
    """Give device NAME a new password; prints it if it was made up, once.

    If NAME was revoked, it is no longer; its revoked certificates still are.
    """
    changed = devices.set_password(folder, name, _given(password, password_stdin))
    if changed.password is not None:
        click.echo(changed.password)
    _tell_restored(name, changed.restored)


@device.command()
@click.argument("name")
@click.argument("switch", type=click.Choice(["on", "off"]))
@folder_option
@report_errors
def downgrade(name: str, switch: str, folder: Path) -> None:
    """Send device NAME plain messages where it knows no quality of service, or let them wait.

    With `on`, a message that was sent with a guarantee may arrive without one. With `off`, it waits
    until the device knows quality of service, or the message expires.
    """
    changed = devices.set_downgrade(folder, name, switch == "on")
    click.echo(f"downgrade of {name} is {switch}{'' if changed else ' already'}")


@device.command()
@click.argument("name")
@folder_option
@report_errors
def revoke(name: str, folder: Path) -> None:
    """Refuse the password and the certificates of device NAME from now on."""
    count = devices.revoke(folder, name)
    click.echo(f"{name} is revoked, with {plural(count, 'certificate')}")


@device.command()
@click.argument("name")
@folder_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@report_errors
def remove(name: str, folder: Path, yes: bool) -> None:
    """Forget device NAME: its account, its roster, and the messages that wait for it.

    Those that a gateway has in custody for it become dead letters, and their senders are told.
    """
    if not yes:
        click.confirm(f"Forget {name} and what waits for it?", abort=True, err=True)
    waited = devices.remove(folder, name)
    click.echo(f"{name} is removed, with {plural(waited.total, 'message')} that waited for it")
    for line in _fates(waited):
        click.echo(line)


@device.command("list")
@folder_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line; times in ms.")
@report_errors
def list_(folder: Path, as_json: bool) -> None:
    """Print all devices, and how each may log in."""
    for found in devices.listed(folder):
        click.echo(json.dumps(found._asdict()) if as_json else _text(found))


def _given(password: str | None, password_stdin: bool) -> str | None:
    """Return the password of one's own, if there is one; raises `UsageError`."""
    if password is not None and password_stdin:
        raise click.UsageError("--password and --password-stdin exclude each other")
    if password_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    if password == "":
        raise click.UsageError("the password is empty")
    return password


def _fates(waited: PendingMessages) -> Iterator[str]:
    """Say what becomes of the messages that waited for a device."""
    fates = (
        (waited.offline, "plain, and gone with it"),
        (
            waited.outbox,
            "in its outbox: `fieldpost dead list` has them soon, if the gateway runs",
        ),
        (waited.held, "held: refused when the sender asks for delivery"),
    )
    return (f"{count} {fate}" for count, fate in fates if count)


def _tell_restored(name: str, restored: bool) -> None:
    if restored:
        click.echo(f"{name} was revoked, and is no longer", err=True)


def _text(found: Device) -> str:
    secrets = ["password"] if found.password else []
    if found.not_after is not None and found.days is not None:
        left = f"until {_day(found.not_after)} ({plural(found.days, 'day')})"
        gone = f"RAN OUT {_day(found.not_after)}"
        secrets.append(f"certificate {gone if found.days < 0 else left}")
    fields = (
        found.name,
        found.jid,
        "trusted" if found.trusted else "not trusted",
        *(["downgrade"] if found.downgrade else []),
        f"added {_day(found.created)}",
        *([] if found.revoked is None else [f"REVOKED {_day(found.revoked)}"]),
        *(secrets or ["no password, no certificate"]),
    )
    return "  ".join(fields)


def _day(moment: int) -> str:
    return f"{datetime.datetime.fromtimestamp(moment / 1000, datetime.UTC):%Y-%m-%d}"
