"""Parts of X.509 certificates that the gateway's and the fleet's authorities have in common.

Keys are on P-256: fast on a Pi and known to the TLS libraries of firmware. Import this module where
something is signed, not at the top: `cryptography` costs a running gateway 15 MB.
"""

from __future__ import annotations

import datetime
from typing import Final, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

SKEW: Final = datetime.timedelta(days=1)
"""Time by which a certificate begins in the past, because a device's clock may be behind."""

PublicKey: TypeAlias = ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed25519.Ed25519PublicKey
"""The public keys that a certificate may be made for."""


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
    """Begin a certificate with its names, its key and its dates."""
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
    """Make the certificate of an authority that signs end-entity certificates alone."""
    name = common_name(title)
    builder = (
        begin(name, name, key.public_key(), begins, ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(signs=True), critical=True)
    )
    return sign(builder, key)


def key_usage(*, signs: bool) -> x509.KeyUsage:
    """Return the usage of a key: an authority's signs certificates, others sign handshakes."""
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
    """Return the extension that names the signing key (RFC 5280, section 4.2.1.1)."""
    identifier = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def common_name(text: str) -> x509.Name:
    """Return a name of the first 64 characters; the alternative name holds the whole one."""
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
