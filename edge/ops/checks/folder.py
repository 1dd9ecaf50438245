"""Check the gateway's folder: configuration, access to secrets, certificates, revocation list."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from edge.config import load
from edge.config.load import Config
from edge.engine.rules.service_time import DAY_MS
from edge.engine.store import database
from edge.errors import SetupError
from edge.features.accounts.store.certificates import ExpiringDevice, RevokedCertificate
from edge.ops.certificates import der, pki
from edge.ops.certificates.tls_context import server_context
from edge.ops.checks import config_check
from edge.ops.checks.finding import NOTICE, OK, WRONG, Finding
from sync.common.regular_files import NotRegularError, check_regular, read_regular
from sync.common.text import listing, os_error, plural, utc_time

EXPIRY_NOTICE_DAYS: Final = 30
"""Days before the expiry of a certificate from which it is reported."""

_RESTORE: Final = (
    "copy it from the last backup, restored into a new folder: `fieldpost restore FILE --dir NEW`"
)

_NEW_LIST: Final = (
    "run `fieldpost device revoke NAME` for a device that is already revoked, which writes the list"
    " again; if no device is revoked, delete the file: `fieldpost device certificate NAME` writes"
    " it again"
)

_NEW_CERTIFICATE: Final = "issue new ones with `fieldpost device certificate NAME`"

MAX_NAMES: Final = 5
"""Maximum number of devices that one finding names; further devices are only counted."""


def configuration(folder: Path) -> Iterator[Finding]:
    """Check the options in `fieldpost.toml`."""
    report = config_check.check_text(load.read(folder))
    for fault in report.faults:
        yield Finding("configuration", WRONG, str(fault), "correct it in fieldpost.toml")
    if not report.faults:
        count = plural(len(report.changed), "option differs", "options differ")
        yield Finding("configuration", OK, f"{count} from the defaults")


def secrets(folder: Path, settings: Config) -> Iterator[Finding]:
    """Check that only the owner of the folder can read keys, secrets and the database."""
    found = [
        finding for path in _secret_files(folder, settings) for finding in _secret(folder, path)
    ]
    yield from found
    if not found:
        text = "only the owner can read the keys, the secrets and the database"
        yield Finding("secrets", OK, text)


def _secret_files(folder: Path, settings: Config) -> Iterator[Path]:
    if (folder / database.FILE_NAME).exists():  # otherwise reported by the check of the database
        yield folder / database.FILE_NAME
    if settings.component is None:
        files = pki.files(folder)
        yield files.ca_key
        yield files.server_key
    else:
        yield folder / settings.xmpp.component_secret
    if settings.uplink.enrolment:
        yield folder / settings.uplink.enrolment


def _secret(folder: Path, path: Path) -> Iterator[Finding]:
    try:
        status = check_regular(path)
    except FileNotFoundError:
        remedy = (
            f"{_RESTORE}; an enrolment can be issued again with `fieldpost-fleet gateway add"
            " --renew`, and a component's secret copied from its server"
        )
        yield Finding("secrets", WRONG, f"{path} is missing", remedy)
        return
    except NotRegularError as error:
        yield Finding("secrets", WRONG, os_error(error), "replace it by the file from a backup")
        return
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        text = f"other users can access {path} (mode {stat.S_IMODE(status.st_mode):04o})"
        yield Finding("secrets", WRONG, text, f"chmod 600 {path}")
    if status.st_uid != folder.stat().st_uid:
        text = f"{path} has another owner than its folder"
        yield Finding("secrets", WRONG, text, f"chown it to the owner of {folder}")


def certificates(folder: Path, domain: str, now: int) -> Iterator[Finding]:
    """Check the gateway's certificates: their dates and names, and whether their keys match.

    `now` is in ms since 1970.
    """
    files = pki.files(folder)
    readable = True
    renews = "start the gateway, which renews it; if it does not, see `fieldpost events`"
    replace = "set up a new gateway and install its CA on every device"
    for path, remedy in ((files.server, renews), (files.ca, replace)):
        try:
            found = der.read(path)
            fault = pki.server_fault(folder, domain, now) if path == files.server else None
        except SetupError as error:
            readable = False
            yield Finding("certificates", WRONG, str(error), _RESTORE)
            continue
        days = (found.ends - now) // DAY_MS
        if fault is not None:
            yield Finding("certificates", WRONG, *fault)
        elif now < found.begins:
            yield Finding("certificates", WRONG, *pki.early(str(path), found.begins, now))
        elif days < 0:
            yield Finding("certificates", WRONG, f"{path} has expired", remedy)
        elif days < EXPIRY_NOTICE_DAYS:
            text = f"{path} expires in {plural(days, 'day')}"
            yield Finding("certificates", NOTICE, text, remedy)
        else:
            yield Finding("certificates", OK, f"{path.name} expires in {plural(days, 'day')}")
    if readable:
        try:
            server_context(files._replace(crl=folder / "no such file"))
        except SetupError as error:
            yield Finding("certificates", WRONG, str(error), _RESTORE)


def revocation_list(folder: Path, now: int, revoked: list[RevokedCertificate]) -> Iterator[Finding]:
    """Check that the revocation list is usable and contains the `revoked` certificates.

    With an unusable list, TLS refuses every device certificate. `now` is in ms since 1970.
    """
    from cryptography import x509

    files, remedy = pki.files(folder), _NEW_LIST
    try:
        ca = x509.load_pem_x509_certificate(read_regular(files.ca))
    except (OSError, ValueError):
        return  # reported by `certificates`
    try:
        crl = x509.load_pem_x509_crl(read_regular(files.crl))
    except FileNotFoundError:
        yield Finding("certificates", NOTICE, f"{files.crl} does not exist", remedy)
        return
    except OSError as error:
        text = f"{os_error(error)}: certificates of devices may be refused"
        yield Finding("certificates", WRONG, text, remedy)
        return
    except ValueError:
        text = f"{files.crl} cannot be used: it is not a revocation list in PEM"
        yield Finding("certificates", WRONG, text, remedy)
        return
    begins, ends = crl.last_update_utc, crl.next_update_utc
    missing = sum(
        crl.get_revoked_certificate_by_serial_number(int(each.serial, 16)) is None
        for each in revoked
    )
    if crl.issuer != ca.subject or not crl.is_signature_valid(ca.public_key()):  # type: ignore[arg-type]
        yield Finding(
            "certificates", WRONG, f"{files.crl} is not signed by the gateway's CA", remedy
        )
    elif now < begins.timestamp() * 1000:
        begins_ms = round(begins.timestamp() * 1000)
        yield Finding("certificates", WRONG, *pki.early(str(files.crl), begins_ms, now))
    elif ends is not None and ends.timestamp() * 1000 < now:
        yield Finding("certificates", WRONG, f"{files.crl} has expired", remedy)
    elif missing:
        certificates = plural(missing, "revoked certificate")
        text = (
            f"{files.crl} is stale: it lacks {certificates}; the gateway refuses them nevertheless,"
            " but other servers that use the list do not"
        )
        yield Finding("certificates", WRONG, text, remedy)


def expired_devices(expired: list[ExpiringDevice]) -> Iterator[Finding]:
    """Report the devices that cannot log in because their certificates have expired."""
    if expired:
        text = f"the certificates of devices without a password have expired: {_names(expired)}"
        yield Finding("certificates", WRONG, text, _NEW_CERTIFICATE)


def expiring_devices(expiring: list[ExpiringDevice]) -> Iterator[Finding]:
    """Report the devices whose certificates expire soon."""
    if expiring:
        text = f"device certificates expire within {EXPIRY_NOTICE_DAYS} days: {_names(expiring)}"
        yield Finding("certificates", NOTICE, text, _NEW_CERTIFICATE)


def _names(found: list[ExpiringDevice]) -> str:
    return listing([f"{each.name} ({utc_time(each.not_after)[:10]})" for each in found], MAX_NAMES)
