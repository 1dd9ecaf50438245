"""Create X.509 certificates, for the certificate authorities of the gateway and of the centre.

Keys are on P-256: fast on a Raspberry Pi and supported by the TLS libraries of firmware. Import
this module inside the functions that sign, because importing `cryptography` takes 15 MB of memory.
"""

from __future__ import annotations

import datetime
from typing import Final, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

SKEW: Final = datetime.timedelta(days=1)
"""Time before the issue at which a certificate's validity begins: a peer's clock may be behind."""

EARLIEST: Final = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)
"""A clock that shows an earlier time is wrong: this software is newer. Certificates that are issued
then are valid from this date on, because they could have ended before the clock is right."""

PublicKey: TypeAlias = ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed25519.Ed25519PublicKey
"""The types of public keys for which a certificate may be issued."""


def new_key() -> ec.EllipticCurvePrivateKey:
    """Generate a key on P-256."""
    return ec.generate_private_key(ec.SECP256R1())


def begin(
    subject: x509.Name,
    issuer: x509.Name,
    public: PublicKey,
    begins: datetime.datetime,
    ends: datetime.datetime,
) -> x509.CertificateBuilder:
    """Return a certificate builder with the names, the public key and the dates of validity."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def self_signed(
    title: str,
    key: ec.EllipticCurvePrivateKey,
    begins: datetime.datetime,
    ends: datetime.datetime,
) -> x509.Certificate:
    """Create the self-signed certificate of an authority that signs end-entity certificates."""
    name = common_name(title)
    builder = (
        begin(name, name, key.public_key(), begins, ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(signs=True), critical=True)
    )
    return sign(builder, key)


def key_usage(*, signs: bool) -> x509.KeyUsage:
    """Return the key usage: with `signs`, signing certificates and CRLs; else TLS handshakes."""
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def issued_by(ca: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    """Return the authority key identifier for the key of `ca` (RFC 5280, section 4.2.1.1)."""
    identifier = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def common_name(text: str) -> x509.Name:
    """Return a common name: the first 64 characters of `text`, because X.520 permits no more."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def sign(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    """Sign a certificate."""
    return builder.sign(key, hashes.SHA256())


def pem(certificate: x509.Certificate) -> bytes:
    """Encode a certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Encode a key as PEM (PKCS #8), unencrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
