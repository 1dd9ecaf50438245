"""Issue certificates, and read the gateway's records of them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from cryptography import x509

from edge.engine.store.database import Transaction
from edge.features.accounts.store import certificates as issued_certificates
from edge.ops import current_time
from edge.ops.certificates import certificates, pki
from tests.helpers.folder import change
from tests.helpers.gateway import Gateway

DAY_MS = 24 * 3600 * 1000

LIST = """
SELECT fingerprint, name, serial, issued, not_after, revoked FROM certificates
ORDER BY name, issued, fingerprint
"""


class Certificate(NamedTuple):
    """A certificate: `serial` is hexadecimal, `name` the device, which may have been removed."""

    fingerprint: bytes
    name: str
    serial: str
    issued: int
    not_after: int
    revoked: int | None


def list_all(tx: Transaction) -> list[Certificate]:
    """Return all recorded certificates, including those of removed devices."""
    return [Certificate(*row) for row in tx.rows(LIST)]


def serial_of(folder: Path) -> str:
    certificate = x509.load_pem_x509_certificate((folder / certificates.CERTIFICATE).read_bytes())
    return f"{certificate.serial_number:x}"


def issue(gateway: Gateway, folder: Path, days_ago: int, device: str | None = None) -> Path:
    """Issue a certificate for 30 days, some days ago; the gateway knows it if `device` is given."""
    moment = current_time.now().wall - days_ago * DAY_MS
    issued = certificates.issue(pki.load(gateway.folder), "pump1@gw.example", 30, moment)
    if device is not None:
        found = device, issued.fingerprint, issued.serial, issued.not_after
        change(gateway.folder, lambda tx: issued_certificates.add(tx, *found))
    folder.mkdir()
    for name, content in issued.contents.items():
        (folder / name).write_bytes(content.data)
    return folder
