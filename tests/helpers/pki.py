"""Certificates for a server on loopback, made for one test."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class LoopbackPki(NamedTuple):
    """A certificate authority's PEM text, a server's context for 127.0.0.1 under it, and its key.

    The server asks for a client's certificate, and does without.
    """

    ca: str
    server: ssl.SSLContext
    key: ec.EllipticCurvePrivateKey

    def sign(self, request: bytes, begins: dt.datetime, ends: dt.datetime) -> bytes:
        """Return the certificate (PEM) that a request (PEM) asks for."""
        asked = x509.load_pem_x509_csr(request)
        names = asked.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        issuer = x509.load_pem_x509_certificate(self.ca.encode())
        made = (
            x509.CertificateBuilder()
            .subject_name(asked.subject)
            .issuer_name(issuer.subject)
            .public_key(asked.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(ends)
            .add_extension(names, critical=not list(asked.subject))
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                critical=False,
            )
            .sign(self.key, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM)


def make_pki(folder: Path, *names: str) -> LoopbackPki:
    """Make an authority and a server's certificate; the server's files go into `folder`.

    The certificate is for 127.0.0.1, and for `names` if there are any.
    """
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "A test's authority")])
    ca = (
        _builder(ca_name, ca_name, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    subjects = x509.SubjectAlternativeName([address, *map(x509.DNSName, names)])
    certificate = (
        _builder(name, ca_name, key.public_key())
        .add_extension(subjects, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    server = _context(folder, certificate, key)
    server.verify_mode = ssl.CERT_OPTIONAL
    server.load_verify_locations(cadata=_pem(ca))
    return LoopbackPki(_pem(ca), server, ca_key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
    )


def _usage(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _context(
    folder: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> ssl.SSLContext:
    chain = folder / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    chain.write_bytes(private + _pem(certificate).encode())
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(chain)
    return context
