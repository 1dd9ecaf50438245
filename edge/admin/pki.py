"""The gateway's private certificate authority and its server certificate.

Elliptic-curve keys (P-256): quick on a Pi, and every TLS library that firmware uses knows them.
Keys are readable by their owner alone. Certificates of devices are not made here.
"""

from __future__ import annotations

import datetime
import os
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

FOLDER: Final = "pki"

CA_YEARS: Final = 20
"""A gateway's life: replacing the CA means touching every device."""

SERVER_YEARS: Final = 5

YEAR: Final = datetime.timedelta(days=365)

SKEW: Final = datetime.timedelta(days=1)
"""How far a device's clock may be behind."""


class Files(NamedTuple):
    """Where certificates and keys lie."""

    ca: Path
    ca_key: Path
    server: Path
    server_key: Path


def files(folder: Path) -> Files:
    """Return where the files are, in the gateway's folder."""
    pki = folder / FOLDER
    return Files(pki / "ca.pem", pki / "ca.key", pki / "server.pem", pki / "server.key")


def create(folder: Path, domain: str) -> Files:
    """Make the CA and a server certificate for `domain` in the gateway's folder."""
    from cryptography.hazmat.primitives.asymmetric import ec

    paths = files(folder)
    paths.ca.parent.mkdir(mode=0o700)
    ca_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca = _authority(domain, ca_key)
    server = _server(domain, server_key, ca, ca_key)
    for path, certificate in ((paths.ca, ca), (paths.server, server)):
        _write(path, _pem(certificate), 0o644)
    for path, key in ((paths.ca_key, ca_key), (paths.server_key, server_key)):
        _write(path, _key_pem(key), 0o600)
    return paths


def _authority(domain: str, key: EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography import x509

    name = _name(f"Fieldpost CA of {domain}")
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        _builder(key, CA_YEARS)
        .subject_name(name)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    return _sign(builder, key)


def _server(
    domain: str,
    key: EllipticCurvePrivateKey,
    ca: x509.Certificate,
    ca_key: EllipticCurvePrivateKey,
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    builder = (
        _builder(key, SERVER_YEARS)
        .subject_name(_name(domain))
        .issuer_name(ca.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(domain)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(_issued_by(ca), critical=False)
    )
    return _sign(builder, ca_key)


def _builder(key: EllipticCurvePrivateKey, years: int) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + years * YEAR)
        .add_extension(identifier, critical=False)
    )


def _issued_by(ca: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    from cryptography import x509

    identifier = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def _name(text: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    # A common name holds 64 characters; who the certificate is for stands in its alternative name.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _sign(builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography.hazmat.primitives import hashes

    return builder.sign(key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, data: bytes, mode: int) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
