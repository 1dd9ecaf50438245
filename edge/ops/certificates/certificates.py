"""Device certificates for SASL EXTERNAL (XEP-0178), and the certificate revocation list."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from edge.engine.store.database import Transaction
from edge.errors import SetupError
from edge.features.accounts.store import certificates as issued_certificates
from edge.ops.certificates import pki
from edge.ops.certificates.pki import Authority, to_datetime
from sync.common.durable_files import PRIVATE_FILE, PUBLIC_FILE, FileContent, replace_file

FOLDER: Final = "devices"
CERTIFICATE: Final = "cert.pem"
KEY: Final = "key.pem"
CA: Final = "ca.pem"

XMPP_ADDR: Final = "1.3.6.1.5.5.7.8.5"
"""The OID id-on-xmppAddr: a subject alternative name with a JID (RFC 6120, section 13.7.1.4)."""

_UTF8_STRING: Final = 0x0C


class Issued(NamedTuple):
    """A new certificate: the files for its device, and the fields that the database stores.

    `fingerprint` is the SHA-256 of its DER, `serial` hexadecimal, `not_after` in ms since 1970 UTC.
    """

    contents: Mapping[str, FileContent]
    fingerprint: bytes
    serial: str
    not_after: int


def device_folder(folder: Path, name: str) -> Path:
    """Return the folder, inside the gateway's folder, for the certificate of device `name`."""
    return folder / FOLDER / name


def issue(ca: Authority, jid: str, days: int, now: int) -> Issued:
    """Create a key and a certificate for the device `jid`, valid for `days` days from `now`.

    The certificate expires no later than the CA. `now` is in ms since 1970 UTC. Raises `SetupError`
    if the CA has expired, or if the clock is before `EARLIEST`: the certificate could have ended
    when the clock is right.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID

    from sync.common import certificates

    moment = to_datetime(now)
    if moment < certificates.EARLIEST:
        raise SetupError(
            f"the clock shows {moment:%Y-%m-%d}, which is wrong: set it, and check the time service"
            " (`timedatectl`)"
        )
    ends = min(moment + datetime.timedelta(days=days), _ca_end(ca, moment))
    key = certificates.new_key()
    subject = certificates.common_name(jid)
    begins = moment - certificates.SKEW
    address = x509.OtherName(x509.ObjectIdentifier(XMPP_ADDR), _utf8_string(jid))
    builder = (
        certificates.begin(subject, ca.certificate.subject, key.public_key(), begins, ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(certificates.key_usage(signs=False), critical=True)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(certificates.issued_by(ca.certificate), critical=False)
    )
    certificate = certificates.sign(builder, ca.key)
    contents = {
        CERTIFICATE: FileContent(certificates.pem(certificate), PUBLIC_FILE),
        KEY: FileContent(certificates.key_pem(key), PRIVATE_FILE),
        CA: FileContent(certificates.pem(ca.certificate), PUBLIC_FILE),
    }
    fingerprint = certificate.fingerprint(hashes.SHA256())
    not_after = round(ends.timestamp() * 1000)
    return Issued(contents, fingerprint, f"{certificate.serial_number:x}", not_after)


def write_crl(tx: Transaction, folder: Path, ca: Authority) -> None:
    """Write a certificate revocation list with the next CRL number (RFC 5280, section 5).

    The file is written inside the transaction, so that two commands cannot write in the wrong order
    and a process that sees the database change finds the new list. The next update is due when the
    CA expires, because an expired list would shut out every device. A second list within a second
    is dated one second later, because OpenSSL prefers the list with the later date.

    Raises:
        SetupError: the CA has expired.
        OSError: the list cannot be written.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding

    from sync.common import certificates

    now = to_datetime(tx.now.wall)
    ends = _ca_end(ca, now)
    earliest = round((now - certificates.SKEW).timestamp())
    number = issued_certificates.next_crl_number(tx, earliest)
    revoked = [
        x509.RevokedCertificateBuilder()
        .serial_number(int(serial, 16))
        .revocation_date(to_datetime(moment))
        .build()
        for serial, moment in issued_certificates.list_revoked(tx)
    ]
    builder = (
        x509.CertificateRevocationListBuilder(revoked_certificates=revoked)
        .issuer_name(ca.certificate.subject)
        .last_update(min(to_datetime(number * 1000), now))
        .next_update(ends)
        .add_extension(x509.CRLNumber(number), critical=False)
        .add_extension(certificates.issued_by(ca.certificate), critical=False)
    )
    crl = builder.sign(ca.key, hashes.SHA256()).public_bytes(Encoding.PEM)
    replace_file(pki.files(folder).crl, crl, PUBLIC_FILE)


def _ca_end(ca: Authority, now: datetime.datetime) -> datetime.datetime:
    ends = ca.certificate.not_valid_after_utc
    if ends <= now:
        raise SetupError(f"the gateway's CA expired on {ends:%Y-%m-%d}; set up a new gateway")
    return ends


def _utf8_string(text: str) -> bytes:
    data = text.encode()
    size = len(data)
    if size < 0x80:
        return bytes((_UTF8_STRING, size)) + data
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((_UTF8_STRING, 0x80 | len(length))) + length + data
