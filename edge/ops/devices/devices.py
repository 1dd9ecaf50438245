"""Manage devices: accounts, passwords, certificates and revocation.

Each operation is one transaction; a running gateway notices the change. The files of a certificate
are moved to their place after the commit that records the certificate, so that the gateway knows
every certificate in the folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from edge import credentials
from edge.config import load
from edge.config.load import Config
from edge.credentials import Credentials
from edge.engine.store import events
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent
from edge.errors import FieldpostError, SetupError
from edge.features.accounts.store import accounts
from edge.features.accounts.store import certificates as issued_certificates
from edge.features.accounts.store.accounts import PendingMessages
from edge.features.presence.store import roster
from edge.ops import component_mode, current_time
from edge.ops.certificates import certificates, pki
from edge.ops.data import nodes
from edge.ops.devices import device_status, orphans
from edge.ops.devices.orphans import Orphans
from edge.ops.transactions import changing, reading
from sync.common.durable_files import remove_folder, staged_folder
from sync.common.text import plural

_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")


class NewDevice(NamedTuple):
    """A new device: its JID, its password if one was generated, and its certificate's folder."""

    jid: str
    password: str | None
    certificate: Path | None = None


class NewPassword(NamedTuple):
    """The new password if it was generated, and whether setting it lifted a revocation."""

    password: str | None
    restored: bool


class NewCertificate(NamedTuple):
    """The folder of a new certificate, the number of older certificates that were revoked, and
    whether issuing it lifted a revocation of the device."""

    folder: Path
    revoked: int
    restored: bool


def add(
    folder: Path,
    name: str,
    password: str | None,
    *,
    trusted: bool,
    certificate: bool = False,
    downgrade: bool = False,
) -> NewDevice:
    """Add a device.

    If `password` is `None`, one is generated, unless the device gets a `certificate`. Messages from
    a device that is not `trusted` are refused. `downgrade` is explained at `device_status.Device`.
    If the gateway is a component, `name` is the bare JID of a user of its server, and neither
    password nor certificate may be given. Raises `SetupError` if the name is invalid or exists, the
    password is invalid, or the CA cannot sign.
    """
    settings = load.load(folder)
    _check_name(settings, name)
    component = settings.component is not None
    for option, given in (
        ("--certificate", certificate),
        ("--password", password is not None),
        ("--downgrade", downgrade),
    ):
        if given:
            component_mode.refuse(settings, f"device add {option}")
    needs_password = password is None and not certificate and not component
    generated = credentials.generate_password() if needs_password else None
    chosen = password if generated is None else generated
    keys = () if chosen is None else _keys(chosen)
    jid = _jid(settings, name)

    def unit(tx: Transaction) -> None:
        _check_not_revoked(tx, name)
        accounts.add(tx, name, keys, trusted=trusted, downgrade=downgrade)
        roster.remove_from_all(tx, jid)
        if not component:  # a user of another server may have been here before, by trusted_domains
            orphans.hand_over(tx, settings.gateway.domain, settings.limits, jid)
            orphans.take_messages_to(tx, settings.limits, name)

    if not certificate:
        with changing(folder) as tx:
            unit(tx)
        return NewDevice(jid, generated)
    return NewDevice(jid, generated, _issue(folder, name, jid, unit))


def renew(folder: Path, name: str, *, revoke_old: bool = False) -> NewCertificate:
    """Issue a new certificate with a new key to a device, and lift the device's revocation.

    Older certificates stay valid until they expire, so that there is time to install the new one;
    `revoke_old` revokes them now and ends the device's sessions. Raises `SetupError` if the device
    does not exist or has too many certificates, or if the CA cannot sign.
    """
    settings = load.load(folder)
    component_mode.refuse(settings, "device certificate")
    jid = _jid(settings, name)
    _check_name(settings, name)  # it becomes a path
    restored, revoked = False, 0

    def unit(tx: Transaction) -> None:
        nonlocal restored, revoked
        _find(tx, name)
        restored = _restore(tx, name, jid)
        if revoke_old:
            revoked = issued_certificates.revoke(tx, name)
            accounts.invalidate_logins(tx, name)

    place = _issue(folder, name, jid, unit)
    if revoked:
        text = plural(revoked, f"certificate of {jid} is", f"certificates of {jid} are")
        _publish_crl(folder, f"{text} revoked")
    return NewCertificate(place, revoked, restored)


def set_password(folder: Path, name: str, password: str | None) -> NewPassword:
    """Set the password of a device, and lift the device's revocation.

    If `password` is `None`, one is generated. Revoked certificates stay revoked. Raises
    `SetupError` if the password is invalid or the device does not exist.
    """
    settings = load.load(folder)
    component_mode.refuse(settings, "device passwd")
    jid = _jid(settings, name)
    generated = credentials.generate_password() if password is None else None
    keys = _keys(password if generated is None else generated)
    with changing(folder) as tx:
        _find(tx, name)
        restored = _restore(tx, name, jid)
        accounts.set_credentials(tx, name, keys)
    return NewPassword(generated, restored)


def revoke(folder: Path, name: str) -> int:
    """Revoke a device: delete its password, revoke its certificates, end its sessions.

    Returns the number of newly revoked certificates. Raises `SetupError` if the device does not
    exist, or if the revocation list could not be written. In the second case the device is revoked
    nevertheless.
    """
    jid = _jid(load.load(folder), name)
    with changing(folder) as tx:
        _find(tx, name)
        revoked = issued_certificates.revoke(tx, name)
        if accounts.revoke(tx, name):
            _log(tx, jid, "revoked", level="Warning")
    _publish_crl(folder, f"{jid} is revoked")
    return revoked


def set_downgrade(folder: Path, name: str, downgrade: bool) -> bool:
    """Set whether a device that does not support QoS receives guaranteed messages as plain ones.

    A running gateway delivers waiting messages within seconds. Returns whether the setting changed.
    Raises `SetupError` if the device does not exist or the gateway is a component.
    """
    settings = load.load(folder)
    component_mode.refuse(settings, "device downgrade")
    with changing(folder) as tx:
        _find(tx, name)
        changed = accounts.set_downgrade(tx, name, downgrade)
        if changed:
            mode = "downgrade_on" if downgrade else "downgrade_off"
            _log(tx, _jid(settings, name), mode, level="Notice")
    return changed


def find_orphans(folder: Path, name: str) -> Orphans:
    """Return what a device would leave behind; raise `SetupError` if it does not exist."""
    jid = _jid(load.load(folder), name)
    with reading(folder) as tx:
        _find(tx, name)
        return orphans.find(tx, jid)


def remove(
    folder: Path, name: str, *, heir: str | None = None, purge: bool = False
) -> PendingMessages:
    """Remove a device with its password, roster, certificates and certificate files.

    Returns the numbers of messages that waited for the device. Stored plain messages are deleted;
    messages in its outbox and its own in custody become dead letters.

    Args:
        heir: the name of a device that gets its nodes, items and affiliations. `None` leaves its
            items, and the nodes that it alone owned, to the gateway itself.
        purge: delete the nodes that it alone owned and its items. A running gateway deletes the
            nodes, before the device is removed, because it notifies their subscribers.

    Raises:
        SetupError: as `revoke` does; or `heir` is no other device that can log in; or a node could
            not be deleted.
    """
    settings = load.load(folder)
    jid = _jid(settings, name)
    with reading(folder) as tx:
        _find(tx, name)
        new_owner = None if heir is None else _heir(tx, settings, name, heir)
        purged = orphans.find(tx, jid).nodes if purge else ()
    for node in purged:
        nodes.delete(folder, node)
    with changing(folder) as tx:
        _find(tx, name)
        if purge:
            orphans.delete_items(tx, jid)
        orphans.hand_over(tx, settings.gateway.domain, settings.limits, jid, new_owner)
        issued_certificates.revoke(tx, name)
        pending = accounts.remove(tx, name)
        _log(tx, jid, "removed", level="Warning", value=float(pending.total), unit="messages")
    try:
        _publish_crl(folder, f"{jid} is removed")
    finally:
        remove_folder(certificates.device_folder(folder, name))
    return pending


def _heir(tx: Transaction, settings: Config, name: str, heir: str) -> str:
    if heir == name or not accounts.is_active(tx, heir):
        raise SetupError(f"{heir!r} is not another device that can log in")
    return _jid(settings, heir)


def _jid(settings: Config, name: str) -> str:
    return device_status.jid_of(settings.gateway.domain, name)


def _check_name(settings: Config, name: str) -> None:
    local, at, domain = name.partition("@")
    if not _NAME.fullmatch(local) or bool(at) is not (settings.component is not None):
        server = ", then @ and the server's domain" if settings.component else ""
        raise SetupError(
            f"device name {name!r} must be 1 to 64 lower-case letters, digits, '.', '_' or '-'"
            f"{server}"
        )
    if at:
        load.check_domain(domain)


def _issue(folder: Path, name: str, jid: str, unit: Callable[[Transaction], None]) -> Path:
    """Run `unit` and record a new certificate in one transaction.

    Returns the folder of the certificate's files, which are moved there after the commit.
    """
    days = load.load(folder).xmpp.certificate_days
    ca = pki.load(folder)
    issued = certificates.issue(ca, jid, days, current_time.now().wall)
    place = certificates.device_folder(folder, name)
    with staged_folder(place, issued.contents) as move_into_place:
        with changing(folder) as tx:
            unit(tx)
            issued_certificates.add(tx, name, issued.fingerprint, issued.serial, issued.not_after)
            if not pki.files(folder).crl.exists():  # created by an older version
                certificates.write_crl(tx, folder, ca)
        move_into_place()
    return place


def _publish_crl(folder: Path, done: str) -> None:
    """Write the revocation list; if that fails, raise `SetupError` with a text that begins with
    `done`."""
    try:
        ca = pki.load(folder)
        with changing(folder) as tx:
            certificates.write_crl(tx, folder, ca)
    except (FieldpostError, OSError) as error:
        raise SetupError(
            f"{done}, but {pki.files(folder).crl} could not be updated: {error}; after correcting"
            " this, run `fieldpost doctor`"
        ) from error


def _keys(password: str | None) -> tuple[Credentials, Credentials]:
    try:
        # The device repeats these iterations at every login, so their number is the smallest that
        # clients accept. A short chosen password is therefore weak if the database is stolen.
        return credentials.derive(password or "", credentials.ITERATIONS)
    except credentials.PasswordError as error:
        raise SetupError(str(error)) from error


def _find(tx: Transaction, name: str) -> None:
    if accounts.find(tx, name) is None:
        raise SetupError(f"device {name!r} does not exist; see `fieldpost device list`")


def _check_not_revoked(tx: Transaction, name: str) -> None:
    found = accounts.find(tx, name)
    if found is not None and found.revoked is not None:
        if "@" in name:
            raise SetupError(
                f"{name} is revoked; `fieldpost device remove {name}` deletes the revocation"
            )
        raise SetupError(
            f"device {name!r} is revoked; `fieldpost device passwd {name}` or"
            f" `fieldpost device certificate {name}` restores it"
        )


def _restore(tx: Transaction, name: str, jid: str) -> bool:
    restored = accounts.restore(tx, name)
    if restored:
        _log(tx, jid, "restored", level="Notice")
    return restored


def _log(
    tx: Transaction,
    jid: str,
    name: str,
    *,
    level: str,
    value: float | None = None,
    unit: str | None = None,
) -> None:
    event = NewEvent("device", jid, name=name, level=level, value=value, unit=unit)
    events.append(tx, events.SYSTEM, event)
