"""Certificates that devices log in with (SASL EXTERNAL, XEP-0178), and the list of revoked ones.

Nothing here knows which devices there are and what was issued before: `store.certificates` does,
and `devices` joins the two. The CA itself is `pki`'s.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from edge.engine.database import Transaction
from edge.errors import SetupError
from edge.features.accounts.store import certificates
from edge.features.accounts.store.certificates import RevokedCertificate
from edge.ops import durable_files, pki
from edge.ops.durable_files import PRIVATE, PUBLIC, Content
from edge.ops.pki import Authority

if TYPE_CHECKING:
    from cryptography import x509


FOLDER: Final = "devices"
CERTIFICATE: Final = "cert.pem"
KEY: Final = "key.pem"
CA: Final = "ca.pem"

XMPP_ADDR: Final = "1.3.6.1.5.5.7.8.5"
"""id-on-xmppAddr: the kind of a subject's name that is a JID (RFC 6120, section 13.7.1.4)."""

_UTF8_STRING: Final = 0x0C


class Issued(NamedTuple):
    """A new certificate: the files that its device needs, and what the store records of it.

    `fingerprint` is the SHA-256 of its DER, `serial` hexadecimal, `not_after` in ms since 1970 UTC.
    """

    contents: Mapping[str, Content]
    fingerprint: bytes
    serial: str
    not_after: int


def place(folder: Path, name: str) -> Path:
    """Return where the certificate of device `name` is put, in the gateway's folder."""
    return folder / FOLDER / name


def issue(ca: Authority, jid: str, days: int, now: int) -> Issued:
    """Make a key and a certificate for the device `jid`, valid for `days` days from `now`.

    It does not outlive the CA; it begins a day in the past. `now` is in ms since 1970 UTC. Raises
    `SetupError` if the CA has run out.
    """
    from cryptography.hazmat.primitives import hashes

    ends = min(pki.at(now) + datetime.timedelta(days=days), ca.certificate.not_valid_after_utc)
    if ends <= pki.at(now):
        raise SetupError(f"the gateway's CA ran out on {ends:%Y-%m-%d}")
    key = pki.new_key()
    builder = pki.builder_for(key.public_key(), pki.at(now) - pki.SKEW, ends)
    certificate = pki.sign(_described(builder, ca, jid), ca.key)
    contents = {
        CERTIFICATE: Content(pki.pem(certificate), PUBLIC),
        KEY: Content(pki.key_pem(key), PRIVATE),
        CA: Content(pki.pem(ca.certificate), PUBLIC),
    }
    fingerprint = certificate.fingerprint(hashes.SHA256())
    not_after = round(ends.timestamp() * 1000)
    return Issued(contents, fingerprint, f"{certificate.serial_number:x}", not_after)


def write_crl(tx: Transaction, folder: Path, ca: Authority) -> None:
    """Write the list of revoked certificates (RFC 5280, section 5) anew, and count it.

    It is written inside of the transaction: two commands cannot overtake each other, and whoever
    sees the database change finds the new list. It says that the next one comes when the CA ends:
    a list that ran out would shut every device out, and this one is replaced when it changes.
    A list that follows within a second is dated a second later: OpenSSL prefers the later one.

    Raises:
        SetupError: the CA has run out.
        OSError: it cannot be written.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding

    now = pki.at(tx.now.wall)
    ends = ca.certificate.not_valid_after_utc
    if ends <= now:
        raise SetupError(f"the gateway's CA ran out on {ends:%Y-%m-%d}")
    number = certificates.next_crl_number(tx, round((now - pki.SKEW).timestamp()))
    builder = (
        x509.CertificateRevocationListBuilder(
            revoked_certificates=list(_entries(certificates.list_revoked(tx)))
        )
        .issuer_name(ca.certificate.subject)
        .last_update(min(pki.at(number * 1000), now))
        .next_update(ends)
        .add_extension(x509.CRLNumber(number), critical=False)
        .add_extension(pki.issued_by(ca), critical=False)
    )
    crl = builder.sign(ca.key, hashes.SHA256())
    durable_files.write_whole(
        pki.files(folder).crl, Content(crl.public_bytes(Encoding.PEM), PUBLIC)
    )


def _described(
    builder: x509.CertificateBuilder, ca: Authority, jid: str
) -> x509.CertificateBuilder:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    address = x509.OtherName(x509.ObjectIdentifier(XMPP_ADDR), _utf8_string(jid))
    return (
        builder.subject_name(pki.common_name(jid))
        .issuer_name(ca.certificate.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(pki.key_usage(signs=False), critical=True)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(pki.issued_by(ca), critical=False)
    )


def _entries(revoked: Iterable[RevokedCertificate]) -> Iterator[x509.RevokedCertificate]:
    from cryptography import x509

    for serial, moment in revoked:
        yield (
            x509.RevokedCertificateBuilder()
            .serial_number(int(serial, 16))
            .revocation_date(pki.at(moment))
            .build()
        )


def _utf8_string(text: str) -> bytes:
    """Encode a text in DER; one of 128 bytes and more tells first how long its length is."""
    data = text.encode()
    size = len(data)
    if size < 0x80:
        return bytes((_UTF8_STRING, size)) + data
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((_UTF8_STRING, 0x80 | len(length))) + length + data
