"""Explain to the operator why the gateway refused a log-in.

On the wire all failed log-ins look alike, so that nobody can find out the names of accounts. Who
can read the gateway's folder may know.
"""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path

from edge import credentials
from edge import jid as jids
from edge.config import load
from edge.engine.store.database import Transaction
from edge.errors import FieldpostError, ServiceError
from edge.features.accounts.store import accounts
from edge.features.accounts.store import certificates as issued_certificates
from edge.ops.transactions import reading


def find_fault(folder: Path, jid: str, password: str, certificate: Path | None) -> str:
    """Return why a log-in with a password or a certificate fails; "" if that is not known here.

    Args:
        jid: the JID of the device.
        password: the password; not used if there is a certificate.
        certificate: the PEM file of the device's certificate.
    """
    try:
        address, domain = jids.parse(jid), load.load(folder).gateway.domain
        with reading(folder) as tx:
            return _fault(tx, address, domain, password, certificate)
    except (FieldpostError, ServiceError, OSError, ValueError):
        return ""  # the error of the log-in itself is what counts


def _fault(
    tx: Transaction, address: jids.Jid, domain: str, password: str, certificate: Path | None
) -> str:
    name = address.local
    if address.domain != domain:
        return f"the domain of the gateway is {domain}, not {address.domain}"
    status = accounts.status(tx, name)
    if status is None:
        return f"there is no device {name}; `fieldpost device list` lists all"
    if status.is_revoked:
        return f"device {name} is revoked; a new password or certificate restores it"
    if certificate is not None:
        return _certificate_fault(tx, name, certificate)
    stored = [accounts.credentials(tx, name, mechanism) for mechanism in credentials.MECHANISMS]
    if not any(stored):
        return f"device {name} has no password; use its certificate"
    if any(found is not None and credentials.verify(password, found) for found in stored):
        return ""
    remedy = f"`fieldpost device passwd {name}` sets a new one"
    return f"the password is not that of device {name}; {remedy}"


def _certificate_fault(tx: Transaction, name: str, certificate: Path) -> str:
    der = ssl.PEM_cert_to_DER_cert(certificate.read_text("ascii"))
    issued = issued_certificates.find_issued(tx, hashlib.sha256(der).digest())
    if issued is None:
        return f"the gateway did not issue {certificate}"
    if issued.name != name:
        return f"{certificate} is of device {issued.name}, not of {name}"
    return f"{certificate} is revoked" if issued.is_revoked else ""
