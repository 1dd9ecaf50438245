"""Certificates for a server on loopback, made for one test."""

from __future__ import annotations

import datetime as dt
import ssl
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from edge.ops.certificates import pki as gateway_pki
from sync.common import certificates
from sync.receiver.pki import Authority


class LoopbackPki(NamedTuple):
    """A certificate authority's PEM text, a server's context for 127.0.0.1 under it, and its key.

    The server requests a client's certificate but does not require one.
    """

    ca: str
    server: ssl.SSLContext
    key: ec.EllipticCurvePrivateKey

    def sign(self, request: bytes, begins: dt.datetime, ends: dt.datetime) -> bytes:
        """Return a certificate (PEM) for a certificate request (PEM)."""
        csr, ca = (
            x509.load_pem_x509_csr(request),
            x509.load_pem_x509_certificate(self.ca.encode()),
        )
        names = csr.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        public = csr.public_key()
        assert isinstance(public, ec.EllipticCurvePublicKey)
        builder = (
            certificates.begin(csr.subject, ca.subject, public, begins, ends)
            .add_extension(names, critical=not list(csr.subject))
            .add_extension(certificates.issued_by(ca), critical=False)
        )
        return certificates.pem(certificates.sign(builder, self.key))


def issue_server(folder: Path, domain: str, days: int, issuer: Path | None = None) -> None:
    """Replace the server's certificate in a gateway's folder by one that ends in `days` days and
    is valid for 30 days.

    The CA in the folder `issuer` signs it, by default the gateway's own.
    """
    paths, now = gateway_pki.files(folder), dt.datetime.now(dt.UTC)
    key = load_pem_private_key(paths.server_key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    ca, ends = gateway_pki.load(issuer or folder), now + dt.timedelta(days=days)
    begins = ends - dt.timedelta(days=30)
    name = x509.SubjectAlternativeName([x509.DNSName(domain)])
    builder = certificates.begin(
        certificates.common_name(domain), ca.certificate.subject, key.public_key(), begins, ends
    )
    builder = builder.add_extension(name, critical=False).add_extension(
        certificates.issued_by(ca.certificate), critical=False
    )
    signed = certificates.sign(builder, ca.key)
    paths.server.write_bytes(certificates.pem(signed))


def make_pki(folder: Path, *names: str) -> LoopbackPki:
    """Make an authority and a server's certificate for 127.0.0.1 and `names`, in `folder`."""
    authority = Authority(folder)
    authority.ensure(("127.0.0.1", *names), dt.datetime.now(dt.UTC))
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.ca))
    server.load_cert_chain(authority.server, authority.server_key)
    server.verify_mode = ssl.CERT_OPTIONAL
    key = load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return LoopbackPki(authority.ca.read_text(), server, key)
