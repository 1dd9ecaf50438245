"""Provisioning devices: adding them, their passwords and certificates, taking these back.

Each operation is one transaction, also while the gateway runs, which sees for itself that another
process changed the database. Files of certificates are put in place after the commit that records
them: what lies there is known to the gateway, always. How anything is printed is the commands'.
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
from edge.engine import events
from edge.engine.database import Transaction
from edge.engine.events import NewEvent
from edge.engine.service_time import DAY_MS
from edge.errors import FieldpostError, SetupError
from edge.features.accounts.store import accounts
from edge.features.accounts.store import certificates as issued_certificates
from edge.features.accounts.store.accounts import Account, PendingMessages
from edge.features.presence.store import roster
from edge.features.pubsub.store import affiliations
from edge.ops import certificates, current_time, pki
from edge.ops.certificates import Issued
from edge.ops.transactions import changing, reading
from sync.common.durable_files import remove_folder, staged_folder
from sync.common.text import plural

_THEIRS: Final = "as a component (xmpp.component), passwords and certificates are the server's"

_NOTHING_HANDED_ON: Final = "as a component (xmpp.component), the server hands messages on"

_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")


class Added(NamedTuple):
    """A new device: its JID, its password if one was made up, the folder of its certificate."""

    jid: str
    password: str | None
    certificate: Path | None = None


class Password(NamedTuple):
    """A changed password, if it was made up; `restored`: this lifted the device's revocation."""

    password: str | None
    restored: bool


class Renewed(NamedTuple):
    """A new certificate's folder, what it revoked, and whether it lifted a revocation."""

    folder: Path
    revoked: int
    restored: bool


class Device(NamedTuple):
    """A device as the operator sees it; times in ms since 1970 UTC.

    `downgrade`: it gets plain messages where it knows no quality of service; otherwise those of a
    higher level wait.
    `not_after` is when the last of its certificates runs out, `days` how many whole days that is
    from now (negative: since then); both are `None` if it has no certificate.
    """

    name: str
    jid: str
    trusted: bool
    downgrade: bool
    created: int
    revoked: int | None
    password: bool
    not_after: int | None
    days: int | None


def add(
    folder: Path,
    name: str,
    password: str | None,
    *,
    trusted: bool,
    certificate: bool = False,
    downgrade: bool = False,
) -> Added:
    """Provision a device.

    Without a `password` one is made up, unless it gets a `certificate`: then it has no password. A
    password is kept nowhere. With `downgrade`, plain messages are good enough for a device that
    knows no quality of service. Where the gateway is a component, `name` is the bare JID of a user
    of a server, who has none of these of the gateway's. Raises `SetupError` for a bad or taken
    name, for a bad password, and if the CA cannot sign.
    """
    settings = load.load(folder)
    _check_name(settings, name)
    theirs = settings.component is not None
    if theirs and (certificate or password is not None):
        raise SetupError(_THEIRS)
    if theirs and downgrade:
        raise SetupError(_NOTHING_HANDED_ON)
    bare = certificate or theirs
    made_up = credentials.generate_password() if password is None and not bare else None
    chosen = password if made_up is None else made_up
    keys = () if chosen is None else _keys(chosen)
    jid = _jid(settings, name)

    def unit(tx: Transaction) -> None:
        _check_not_revoked(tx, name)
        accounts.add(tx, name, keys, trusted=trusted, downgrade=downgrade)
        roster.remove_from_all(tx, jid)
        affiliations.remove_account(tx, jid)

    if not certificate:
        with changing(folder) as tx:
            unit(tx)
        return Added(jid, made_up)
    return Added(jid, made_up, _certify(folder, name, jid, unit))


def renew(folder: Path, name: str, *, revoke_old: bool = False) -> Renewed:
    """Give a device a new certificate with a new key; lifts its revocation.

    The old ones stay valid until they run out, so that it can be handed the new one in peace;
    `revoke_old` ends them now, and the device's sessions. Raises `SetupError` if there is no such
    device, if it has too many certificates, or if the CA cannot sign.
    """
    jid = _own(load.load(folder), name)
    restored, revoked = False, 0

    def unit(tx: Transaction) -> None:
        nonlocal restored, revoked
        _find(tx, name)
        restored = _restore(tx, name, jid)
        if revoke_old:
            revoked = issued_certificates.revoke(tx, name)
            accounts.invalidate_logins(tx, name)

    place = _certify(folder, name, jid, unit)
    if revoked:
        told = plural(revoked, f"certificate of {jid} is", f"certificates of {jid} are")
        _publish(folder, f"{told} revoked")
    return Renewed(place, revoked, restored)


def set_password(folder: Path, name: str, password: str | None) -> Password:
    """Give a device a new password, made up if none is given; lifts its revocation.

    Its revoked certificates stay revoked. Raises `SetupError` for a bad password, and if there is
    no such device.
    """
    jid = _own(load.load(folder), name)
    made_up = credentials.generate_password() if password is None else None
    keys = _keys(password if made_up is None else made_up)
    with changing(folder) as tx:
        _find(tx, name)
        restored = _restore(tx, name, jid)
        accounts.set_credentials(tx, name, keys)
    return Password(made_up, restored)


def revoke(folder: Path, name: str) -> int:
    """Refuse a device's password and certificates from now on; its password is forgotten.

    The running gateway ends its sessions. Returns how many certificates were revoked now. Raises
    `SetupError` if there is no such device, and also if it is revoked but the list of revoked
    certificates could not be written; the gateway refuses it in any case.
    """
    jid = _jid(load.load(folder), name)
    with changing(folder) as tx:
        _find(tx, name)
        revoked = issued_certificates.revoke(tx, name)
        if accounts.revoke(tx, name):
            _log(tx, jid, "revoked", level="Warning")
    _publish(folder, f"{jid} is revoked")
    return revoked


def set_downgrade(folder: Path, name: str, downgrade: bool) -> bool:
    """Let a device that knows no quality of service get plain messages, or let them wait.

    A running gateway sends what waits within seconds. Returns whether this changed anything. Raises
    `SetupError` if there is no such device, or if the gateway is a component.
    """
    settings = load.load(folder)
    if settings.component is not None:
        raise SetupError(_NOTHING_HANDED_ON)
    with changing(folder) as tx:
        _find(tx, name)
        changed = accounts.set_downgrade(tx, name, downgrade)
        if changed:
            mode = "downgrade_on" if downgrade else "downgrade_off"
            _log(tx, _jid(settings, name), mode, level="Notice")
    return changed


def remove(folder: Path, name: str) -> PendingMessages:
    """Forget a device: its password, its roster, what waits for it; its certificates are revoked.

    The files of its certificate go too. Returns how many messages waited for it: those stored are
    gone, those of its outbox become dead letters. Raises `SetupError` as `revoke` does.
    """
    jid = _jid(load.load(folder), name)
    with changing(folder) as tx:
        _find(tx, name)
        issued_certificates.revoke(tx, name)
        waited = accounts.remove(tx, name)
        _log(tx, jid, "removed", level="Warning", value=float(waited.total), unit="messages")
    try:
        _publish(folder, f"{jid} is removed")
    finally:
        remove_folder(certificates.device_folder(folder, name))
    return waited


def listed(folder: Path) -> list[Device]:
    """Return all devices by name."""
    settings = load.load(folder)
    now = current_time.now()
    with reading(folder) as tx:
        found, latest = accounts.list_all(tx), issued_certificates.latest_expiry(tx)
    return [
        _device(account, _jid(settings, account.name), latest.get(account.name), now.wall)
        for account in found
    ]


def _device(account: Account, jid: str, not_after: int | None, now: int) -> Device:
    name, trusted, created, revoked, password, downgrade = account
    days = None if not_after is None else (not_after - now) // DAY_MS
    return Device(name, jid, trusted, downgrade, created, revoked, password, not_after, days)


def _jid(settings: Config, name: str) -> str:
    """Name a device: what has a domain is another server's user."""
    return name if "@" in name else f"{name}@{settings.gateway.domain}"


def _own(settings: Config, name: str) -> str:
    if settings.component is not None:
        raise SetupError(_THEIRS)
    return _jid(settings, name)


def _check_name(settings: Config, name: str) -> None:
    local, at, domain = name.partition("@")
    if not _NAME.fullmatch(local) or bool(at) is not (settings.component is not None):
        server = " with @ and its server's domain" if settings.component else ""
        raise SetupError(
            f"device name {name!r} is not 1 to 64 lower-case letters, digits, '.', '_' or '-'"
            f"{server}"
        )
    if at:
        load.check_domain(domain)


def _certify(folder: Path, name: str, jid: str, unit: Callable[[Transaction], None]) -> Path:
    """Issue a certificate in the transaction of `unit`, and return the folder that it is in."""
    days = load.load(folder).xmpp.certificate_days
    ca = pki.load(folder)
    issued = certificates.issue(ca, jid, days, current_time.now().wall)
    place = certificates.device_folder(folder, name)
    with staged_folder(place, issued.contents) as put:
        with changing(folder) as tx:
            unit(tx)
            issued_certificates.add(tx, name, *_record(issued))
            if not pki.files(folder).crl.exists():  # a folder of an older version
                certificates.write_crl(tx, folder, ca)
        put()
    return place


def _record(issued: Issued) -> tuple[bytes, str, int]:
    return issued.fingerprint, issued.serial, issued.not_after


def _publish(folder: Path, done: str) -> None:
    """Write the list of revoked certificates; where that fails, say what is true all the same."""
    try:
        ca = pki.load(folder)
        with changing(folder) as tx:
            certificates.write_crl(tx, folder, ca)
    except (FieldpostError, OSError) as error:
        raise SetupError(
            f"{done}, but {pki.files(folder).crl} is not up to date: {error}"
        ) from error


def _keys(password: str | None) -> tuple[Credentials, Credentials]:
    try:
        # A device stretches its password at every login, so this takes the least rounds that
        # clients accept: a short password of one's own is weak if the database is stolen.
        return credentials.derive(password or "", credentials.ITERATIONS)
    except credentials.PasswordError as error:
        raise SetupError(str(error)) from error


def _find(tx: Transaction, name: str) -> None:
    if accounts.find(tx, name) is None:
        raise SetupError(f"device {name!r} does not exist")


def _check_not_revoked(tx: Transaction, name: str) -> None:
    found = accounts.find(tx, name)
    if found is not None and found.revoked is not None:
        if "@" in name:
            raise SetupError(f"{name} is revoked: `fieldpost device remove {name}` forgets that")
        raise SetupError(
            f"device {name!r} is revoked: `fieldpost device passwd {name}` or"
            f" `fieldpost device certificate {name}` brings it back"
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
