"""The gateway's private certificate authority and its server certificate.

Elliptic-curve keys (P-256): quick on a Pi, and every TLS library that firmware uses knows them.
Keys are readable by their owner alone. Certificates of devices are made in `certificates`.
`cryptography` costs a running gateway some 15 MB, so it is imported where something is signed.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from edge.errors import SetupError
from edge.ops import der, durable_files
from edge.ops.durable_files import PRIVATE, PUBLIC, Content
from sync.common.regular_files import read_regular

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )

FOLDER: Final = "pki"

CA_YEARS: Final = 20
"""A gateway's life: replacing the CA means touching every device."""

SERVER_YEARS: Final = 5

RENEW_PART: Final = 3
"""The server's certificate is made anew when less than one part in so many of its life is left: at
20 months, a gateway that lay in store for a year, or whose clock is months behind, is in time."""

YEAR: Final = datetime.timedelta(days=365)

SKEW: Final = datetime.timedelta(days=1)
"""How far a certificate begins in the past: the clock of a device, or of a gateway without a
battery for it, may be behind after a start."""


class Files(NamedTuple):
    """Where certificates and keys lie."""

    ca: Path
    ca_key: Path
    server: Path
    server_key: Path
    crl: Path


class Authority(NamedTuple):
    """The gateway's CA: its certificate, and the key that it signs with."""

    certificate: x509.Certificate
    key: EllipticCurvePrivateKey


def files(folder: Path) -> Files:
    """Return where the files are, in the gateway's folder."""
    pki = folder / FOLDER
    names = ("ca.pem", "ca.key", "server.pem", "server.key", "crl.pem")
    return Files(*(pki / name for name in names))


def create(folder: Path, domain: str, now: int) -> Authority:
    """Make the CA and a server certificate for `domain` in the gateway's folder.

    `now` is in ms since 1970 UTC. Returns the CA.
    """
    paths = files(folder)
    paths.ca.parent.mkdir(mode=durable_files.PRIVATE_FOLDER)
    server_key = new_key()
    moment = at(now)
    ca = _authority(domain, new_key(), moment)
    begins, ends = moment - SKEW, moment + SERVER_YEARS * YEAR
    server = _server(ca, domain, server_key.public_key(), begins, ends)
    for path, content in (
        (paths.ca, Content(pem(ca.certificate), PUBLIC)),
        (paths.ca_key, Content(key_pem(ca.key), PRIVATE)),
        (paths.server, Content(pem(server), PUBLIC)),
        (paths.server_key, Content(key_pem(server_key), PRIVATE)),
    ):
        durable_files.write_new(path, content)
    return ca


def renew_server(folder: Path, domain: str, now: int) -> bool:
    """Make the server's certificate anew if less than a third of its life is left.

    The key stays, and so does the day that it is valid from, so that a clock which is wrong just
    now does no harm. A certificate that another CA signed is left alone: whoever put it there
    renews it. It blocks, for some 100 ms if it renews.

    Args:
        folder: the gateway's.
        domain: what the certificate is for.
        now: ms since 1970 UTC.

    Returns:
        Whether there is a new certificate: it takes effect when the file is loaded again.

    Raises:
        SetupError: a file is missing or not what it should be.
        OSError: the new one cannot be written.
    """
    paths = files(folder)
    server, ca = der.read(paths.server), der.read(paths.ca)
    if (
        server.issuer != ca.subject
        or server.ends - now > (server.ends - server.begins) / RENEW_PART
    ):
        return False
    ends = min(at(now) + SERVER_YEARS * YEAR, at(ca.ends))
    if ends <= at(server.ends):  # the CA itself runs out
        return False
    from cryptography import x509

    public = x509.load_pem_x509_certificate(paths.server.read_bytes()).public_key()
    begins = min(at(server.begins), at(now) - SKEW)
    certificate = _server(load(folder), domain, _elliptic(public, paths.server), begins, ends)
    durable_files.write_whole(paths.server, Content(pem(certificate), PUBLIC))
    return True


def load(folder: Path) -> Authority:
    """Read the CA and its key; raises `SetupError` if they are missing or do not fit."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    paths = files(folder)
    try:
        certificate = x509.load_pem_x509_certificate(read_regular(paths.ca))
        key = load_pem_private_key(read_regular(paths.ca_key), password=None)
    except OSError as error:
        raise SetupError(f"{error.filename} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError):  # a key with a password is a TypeError
        raise SetupError(f"{paths.ca} or {paths.ca_key} is damaged") from None
    if not isinstance(key, EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise SetupError(f"{paths.ca_key} is not the key of {paths.ca}")
    return Authority(certificate, key)


def _authority(domain: str, key: EllipticCurvePrivateKey, moment: datetime.datetime) -> Authority:
    from cryptography import x509

    name = common_name(f"Fieldpost CA of {domain}")
    builder = (
        builder_for(key.public_key(), moment - SKEW, moment + CA_YEARS * YEAR)
        .subject_name(name)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(signs=True), critical=True)
    )
    return Authority(sign(builder, key), key)


def _server(
    ca: Authority,
    domain: str,
    public: EllipticCurvePublicKey,
    begins: datetime.datetime,
    ends: datetime.datetime,
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    builder = (
        builder_for(public, begins, ends)
        .subject_name(common_name(domain))
        .issuer_name(ca.certificate.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(domain)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issued_by(ca), critical=False)
    )
    return sign(builder, ca.key)


def at(moment: int) -> datetime.datetime:
    """Turn ms since 1970 UTC into what certificates are dated with: whole seconds."""
    return datetime.datetime.fromtimestamp(moment // 1000, datetime.UTC)


def new_key() -> EllipticCurvePrivateKey:
    """Make a key on P-256."""
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def builder_for(
    public: EllipticCurvePublicKey, begins: datetime.datetime, ends: datetime.datetime
) -> x509.CertificateBuilder:
    """Begin a certificate: its key, its dates, a serial number by chance."""
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def key_usage(*, signs: bool) -> x509.KeyUsage:
    """Say what a key may do: an authority's signs certificates, a device's proves who it is."""
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def issued_by(ca: Authority) -> x509.AuthorityKeyIdentifier:
    """Name the key that signs (RFC 5280, section 4.2.1.1)."""
    from cryptography import x509

    extensions = ca.certificate.extensions
    identifier = extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def common_name(text: str) -> x509.Name:
    """Make a name of a text; one holds 64 characters, and the alternative name tells all."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def sign(builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey) -> x509.Certificate:
    """Sign a certificate."""
    from cryptography.hazmat.primitives import hashes

    return builder.sign(key, hashes.SHA256())


def pem(certificate: x509.Certificate) -> bytes:
    """Write a certificate as PEM."""
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def key_pem(key: EllipticCurvePrivateKey) -> bytes:
    """Write a key as PEM (PKCS #8), not encrypted."""
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _elliptic(public: object, path: Path) -> EllipticCurvePublicKey:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

    if not isinstance(public, EllipticCurvePublicKey):
        raise SetupError(f"{path} is for no elliptic-curve key")
    return public
