"""The `fieldpost device` commands."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from edge.cli import echo_found, folder_option, json_option, yes_option
from edge.features.accounts.store.accounts import PendingMessages
from edge.ops import current_time
from edge.ops.devices import device_status, devices
from edge.ops.devices.device_status import Device, DeviceStatus, DurableSession
from edge.ops.devices.orphans import Orphans
from edge.ops.gateway.control import ConnectedSession
from sync.common.text import columns, duration, listing, plural, utc_time

MAX_NAMES: Final = 10
"""Maximum number of nodes that `device remove` names."""

_password = click.option(
    "--password",
    help="Password of the device, for scripts. Other users of this machine can see it in the"
    " process list.",
)
_VISIBLE: Final = (
    "warning: other users of this machine can see --password in the process list;"
    " use --password-stdin"
)
_password_stdin = click.option(
    "--password-stdin", is_flag=True, help="Read the password from standard input."
)


@click.group()
def device() -> None:
    """Manage devices and their credentials."""


@device.command()
@click.argument("name")
@folder_option
@_password
@_password_stdin
@click.option("--certificate", is_flag=True, help="Issue a certificate for login.")
@click.option("--no-trust", is_flag=True, help="Allow login, but deliver no messages from it.")
@click.option(
    "--downgrade",
    is_flag=True,
    help="Deliver messages as plain ones if the device does not support quality of service.",
)
def add(
    name: str,
    folder: Path,
    password: str | None,
    password_stdin: bool,
    certificate: bool,
    no_trust: bool,
    downgrade: bool,
) -> None:
    """Add device NAME.

    Prints the JID of the device. If a password is generated, it is printed too and cannot be shown
    again. With --certificate, the folder of the certificate is printed, and the device has no
    password unless you give one.

    Example: fieldpost device add pump1 --password-stdin < pump1.password
    """
    chosen = _chosen(password, password_stdin)
    added = devices.add(
        folder,
        name,
        chosen,
        trusted=not no_trust,
        certificate=certificate,
        downgrade=downgrade,
    )
    click.echo(added.jid)
    if added.password is not None:
        click.echo(added.password)
    if added.certificate is not None:
        click.echo(added.certificate)


@device.command()
@click.argument("name")
@folder_option
@click.option(
    "--revoke-old",
    is_flag=True,
    help="Revoke the device's older certificates and end its sessions.",
)
def certificate(name: str, folder: Path, revoke_old: bool) -> None:
    """Issue a certificate to device NAME.

    Prints the folder with the certificate and its key. Older certificates stay valid until they
    expire. A revoked device can log in again, with this certificate only.
    """
    renewed = devices.renew(folder, name, revoke_old=revoke_old)
    click.echo(renewed.folder)
    _report_restored(name, renewed.restored)


@device.command()
@click.argument("name")
@folder_option
@_password
@_password_stdin
def passwd(name: str, folder: Path, password: str | None, password_stdin: bool) -> None:
    """Set the password of device NAME.

    Without --password and --password-stdin, a password is generated and printed; it cannot be shown
    again. A revoked device can log in again with the password; its certificates stay revoked.

    Example: fieldpost device passwd pump1 --password-stdin < pump1.password
    """
    changed = devices.set_password(folder, name, _chosen(password, password_stdin))
    if changed.password is not None:
        click.echo(changed.password)
    _report_restored(name, changed.restored)


@device.command()
@click.argument("name")
@click.argument("switch", type=click.Choice(["on", "off"]))
@folder_option
def downgrade(name: str, switch: str, folder: Path) -> None:
    """Allow or forbid delivery without guarantee to device NAME.

    This matters if the device does not support quality of service (`urn:xmpp:qos`). With `on`,
    messages are delivered as plain messages, without a guarantee. With `off`, they wait until
    the device supports quality of service or they expire.
    """
    changed = devices.set_downgrade(folder, name, switch == "on")
    click.echo(f"downgrade of {name} is {switch}{'' if changed else ' already'}")


@device.command()
@click.argument("name")
@folder_option
def revoke(name: str, folder: Path) -> None:
    """Refuse all logins of device NAME.

    Deletes its password, revokes its certificates and ends its sessions.
    """
    count = devices.revoke(folder, name)
    click.echo(f"{name} and {plural(count, 'certificate')} are revoked")


@device.command()
@click.argument("name")
@folder_option
@yes_option
@click.option("--purge", is_flag=True, help="Delete its items and the nodes that it alone owns.")
@click.option(
    "--give-to", "heir", metavar="DEVICE", help="Device that gets its nodes, items and rights."
)
def remove(name: str, folder: Path, yes: bool, purge: bool, heir: str | None) -> None:
    """Remove device NAME.

    Deletes its account, its roster and the plain messages stored for it. Messages in its outbox
    become dead letters, and their senders are notified. Its items, and the nodes that it alone
    owns, belong to the gateway afterwards, unless you set --purge or --give-to.
    """
    if purge and heir is not None:
        raise click.UsageError("--purge and --give-to cannot be combined")
    orphans = list(_orphans(devices.find_orphans(folder, name)))
    for line in orphans:
        click.echo(f"{name} {line}", err=True)
    if orphans and not purge and heir is None:
        click.echo(_CHOICE, err=True)
    if not yes:
        click.confirm(f"Remove {name} and the messages that wait for it?", abort=True, err=True)
    pending = devices.remove(folder, name, heir=heir, purge=purge)
    click.echo(f"{name} is removed; {plural(pending.total, 'message')} waited for it")
    for line in _outcomes(pending):
        click.echo(line)


@device.command("list")
@folder_option
@json_option("Print one JSON object per line; times in ms since 1970 UTC.")
def list_(folder: Path, as_json: bool) -> None:
    """List all devices with their sessions, waiting messages and login methods.

    A durable session of MQTT that is not connected has a row with the state `away`: since when, and
    how many messages wait for it alone.

    `held` are messages from the device that it has not released yet, `waiting` are messages for it,
    and `unacked` are stanzas, or MQTT messages at QoS 1 and 2, that were sent to it and that it has
    not acknowledged. The resource of an MQTT session is its client identifier.
    """
    found = device_status.read(folder)
    if found.trouble is not None:
        click.echo(found.trouble, err=True)
    now = current_time.now().wall
    rows = [row for status in found.devices for row in _rows(status, now)]
    lines = columns([_HEADER, *rows], right=(7, 8, 9)) if rows else ()
    echo_found(map(_object, found.devices), lines, as_json=as_json)


@device.command()
@click.argument("name")
@folder_option
@json_option("Print one JSON object; times in ms since 1970 UTC.")
def show(name: str, folder: Path, as_json: bool) -> None:
    """Show device NAME: its sessions, waiting messages and login methods."""
    found = device_status.read_one(folder, name)
    echo_found([_object(found)], _details(found, current_time.now().wall), as_json=as_json)


def _chosen(password: str | None, password_stdin: bool) -> str | None:
    """Return the password from `--password` or standard input, or `None` if neither is used.

    Raises `UsageError` if both are used, or if the password is empty.
    """
    if password is not None and password_stdin:
        raise click.UsageError("--password and --password-stdin cannot be used together")
    if password is not None:
        click.echo(_VISIBLE, err=True)
    if password_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    if password == "":
        raise click.UsageError("the password must not be empty")
    return password


_CHOICE: Final = (
    "the gateway will own this; --give-to DEVICE gives it to another device, --purge deletes it"
)


def _orphans(found: Orphans) -> Iterator[str]:
    if found.nodes:
        names = listing(found.nodes, MAX_NAMES)
        yield f"is the only owner of {plural(len(found.nodes), 'node')}: {names}"
    if found.items:
        yield f"published {plural(found.items, 'item')} that nodes keep"
    if found.queued:
        yield f"published {plural(found.queued, 'item')} that queues hold"


def _outcomes(pending: PendingMessages) -> Iterator[str]:
    outcomes = (
        (pending.offline, "plain, deleted"),
        (pending.outbox, "in its outbox, listed by `fieldpost dead list` once the gateway runs"),
        (pending.held, "in custody, refused when the sender asks for delivery"),
    )
    return (f"{count} {outcome}" for count, outcome in outcomes if count)


def _report_restored(name: str, restored: bool) -> None:
    if restored:
        click.echo(f"{name} was revoked and is restored", err=True)


_HEADER: Final = (
    "device", "state", "protocol", "since (UTC)", "address", "resource", "last seen", "held",
    "waiting", "unacked", "access",
)  # fmt: skip
_NONE: Final = "-"


def _object(found: DeviceStatus) -> dict[str, object]:
    sessions = [
        {name: getattr(session, name) for name in session.__struct_fields__ if name != "account"}
        for session in found.sessions
    ]
    durable = [each._asdict() for each in found.device.durable]
    found_now = {"durable": durable, "state": found.state, "sessions": sessions}
    return found.device._asdict() | found_now


def _rows(found: DeviceStatus, now: int) -> Iterator[tuple[str, ...]]:
    """Yield a table row for each session of a device; one row if it has no session."""
    device = found.device
    figures = str(device.held), str(device.outbox + device.offline)
    access = ", ".join(_access(device))
    if not found.sessions:
        none = _NONE, _NONE, _NONE, _NONE, _ago(device.seen, now)
        yield device.name, found.state, *none, *figures, _NONE, access
    for number, session in enumerate(found.sessions):
        name = device.name if number == 0 else ""
        rest = figures if number == 0 else ("", "")
        cells = _session(session, now)
        yield name, *cells[:-1], *rest, cells[-1], access if number == 0 else ""
    for durable in found.away:
        since = _NONE if durable.left is None else _time(durable.left)
        seen = _NONE if durable.left is None else _ago(durable.left, now)
        cells = device_status.AWAY, _NONE, since, _NONE, durable.resource, seen
        yield "", *cells, "", str(durable.queued), str(durable.in_flight), ""


def _session(session: ConnectedSession, now: int) -> tuple[str, ...]:
    return (
        device_status.DETACHED if session.detached else device_status.ONLINE,
        session.protocol_text,
        _NONE if session.since is None else _time(session.since),
        session.address or _NONE,
        session.resource,
        _NONE if session.seen is None else _ago(session.seen, now),
        str(session.unacknowledged),
    )


def _details(found: DeviceStatus, now: int) -> Iterator[str]:
    device = found.device
    yield f"{device.jid}: {found.state}"
    yield ""
    yield from columns(
        [
            ("last seen", _ago(device.seen, now)),
            ("added", _time(device.created)),
            ("access", ", ".join(_access(device))),
            ("held", f"{plural(device.held, 'message')} from it awaiting its `deliver`"),
            ("outbox", f"{plural(device.outbox, 'message')} waiting for it"),
            ("offline", f"{plural(device.offline, 'plain message')} stored for it"),
        ]
    )
    if found.sessions:
        yield ""
        header = (*_HEADER[1:7], "unacked")
        rows = [_session(session, now) for session in found.sessions]
        yield from columns([header, *rows], right=(6,))
    rows = [_durable(session) for session in device.durable if session.seconds]
    if rows:
        yield ""
        yield from columns([_DURABLE_HEADER, *rows], right=(3, 4))


_DURABLE_HEADER: Final = (
    "durable session",
    "away since (UTC)",
    "state kept",
    "queued",
    "in flight",
)


def _durable(session: DurableSession) -> tuple[str, ...]:
    if session.until is None:
        kept = f"{duration(session.seconds)} after its connection"
    else:
        kept = f"until {_time(session.until)}"
    away = _NONE if session.left is None else _time(session.left)
    return session.resource, away, kept, str(session.queued), str(session.in_flight)


def _access(device: Device) -> Iterator[str]:
    if not device.trusted:
        yield "not trusted"
    if device.downgrade:
        yield "downgrade"
    if device.revoked is not None:
        yield f"REVOKED {_day(device.revoked)}"
    if device.password:
        yield "password"
    if device.not_after is not None and device.days is not None:
        valid = f"until {_day(device.not_after)} ({plural(device.days, 'day')})"
        yield f"certificate {valid if device.days >= 0 else f'EXPIRED {_day(device.not_after)}'}"
    elif "@" in device.name:
        yield "by its server"
    elif not device.password:
        yield "no password, no certificate"


def _ago(moment: int | None, now: int) -> str:
    return "never" if moment is None else f"{duration(max(0, now - moment) / 1000)} ago"


def _time(moment: int) -> str:
    return utc_time(moment).replace("T", " ").removesuffix("Z")


def _day(moment: int) -> str:
    return _time(moment).partition(" ")[0]
