"""The certificates of gateways: made when one is enrolled or asks, and read when one is shown.

A certificate is one of the fleet's own authority, for one gateway, to be a client with. Whether its
gateway is enrolled still, the record says (`sync.receiver.gateways`). Speaks no HTTP and no TLS.
"""

from __future__ import annotations

import datetime as dt
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from sync.common import certificates
from sync.common.certificates import SKEW, PublicKey
from sync.common.certificates import PublicKey as ClientKey
from sync.common.fleet_folder import FleetFolder
from sync.receiver.gateways import GatewayRegistry, next_issue_time
from sync.receiver.pki import Authority

CLIENT_DAYS: Final = 365
"""Days a gateway's certificate is valid: it is renewed by itself, and one that was off for most of
a year comes back without a visit."""

MAX_CLIENT_DAYS: Final = 3_650
"""The most days that one may be given: what is forgotten shall end some day."""

MAX_REQUEST_BYTES: Final = 8 * 1024
"""Bytes of a request for a certificate: one for the largest key has some 2,000."""

_UNREADABLE: Final = (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion)
"""What `cryptography` raises for bytes that it cannot make a certificate or a request of."""

_RSA_BITS: Final = range(2_048, 4_097)
_CURVES: Final = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)


class IssuedCertificate(NamedTuple):
    """A certificate, PEM, and when it ends in milliseconds since 1970 UTC."""

    pem: bytes
    ends_ms: int


class PresentedCertificate(NamedTuple):
    """Whose certificate was shown, and when it was issued in milliseconds since 1970 UTC."""

    gateway: str
    issued_ms: int


class SigningRequestError(Exception):
    """A request for a certificate is none; the text says why."""


def issue(
    authority: Authority, gateway: str, public: ClientKey, issued_ms: int, days: int = CLIENT_DAYS
) -> IssuedCertificate:
    """Make a certificate that is issued at `issued_ms`, which is a whole second.

    Raises FleetError when the authority cannot be read.
    """
    issued = dt.datetime.fromtimestamp(issued_ms // 1_000, dt.UTC)
    pem = authority.issue_client(gateway, public, issued, days)
    return IssuedCertificate(pem, issued_ms + days * 24 * 3_600_000)


def issue_with_key(
    authority: Authority, gateway: str, issued_ms: int, days: int
) -> tuple[IssuedCertificate, bytes]:
    """Make a certificate and its new key, PEM. Raises FleetError."""
    key = certificates.new_key()
    pem = certificates.key_pem(key)
    return issue(authority, gateway, key.public_key(), issued_ms, days), pem


def renew(folder: FleetFolder, gateways: GatewayRegistry, gateway: str, request: bytes) -> bytes:
    """Make a certificate for the key of a request (PKCS #10, PEM) and note when it ends.

    Nothing but the key is taken of the request; the name is the one of the gateway that asks.
    Raises RequestError, and FleetError when it cannot be made.
    """
    public = _requested_key(request)
    with folder.changing():
        record = gateways.get(gateway)
        since = 0 if record is None else record.certificates_since
        now_ms = int(dt.datetime.now(dt.UTC).timestamp() * 1_000)
        made = issue(Authority(folder.pki), gateway, public, max(next_issue_time(now_ms), since))
        gateways.note_certificate(gateway, made.ends_ms)
    return made.pem


def verify(certificate: bytes, authority: bytes, now: dt.datetime) -> PresentedCertificate | None:
    """Read a certificate (DER or PEM); None unless `authority` (PEM) made it and it is valid."""
    try:
        there = _load(certificate)
        there.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
        extensions = there.extensions
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        gateways = names.get_values_for_type(x509.DNSName)
        uses = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (*_UNREADABLE, InvalidSignature, x509.ExtensionNotFound):
        return None
    valid = there.not_valid_before_utc <= now <= there.not_valid_after_utc
    if not valid or len(gateways) != 1 or list(uses) != [ExtendedKeyUsageOID.CLIENT_AUTH]:
        return None
    issued = there.not_valid_before_utc + SKEW
    return PresentedCertificate(gateways[0], int(issued.timestamp()) * 1_000)


def _load(certificate: bytes) -> x509.Certificate:
    if certificate.startswith(b"-----"):
        return x509.load_pem_x509_certificate(certificate)
    return x509.load_der_x509_certificate(certificate)


def _requested_key(request: bytes) -> PublicKey:
    try:
        asked = x509.load_pem_x509_csr(request)
        proven, public = asked.is_signature_valid, asked.public_key()
    except _UNREADABLE:
        raise SigningRequestError("the body is no request for a certificate in PEM") from None
    if not proven:
        raise SigningRequestError("the request is not signed by its own key")
    strong = isinstance(public, ed25519.Ed25519PublicKey)
    if isinstance(public, rsa.RSAPublicKey):
        strong = public.key_size in _RSA_BITS
    if isinstance(public, ec.EllipticCurvePublicKey):
        strong = isinstance(public.curve, _CURVES)
    if not strong or not isinstance(
        public, (ed25519.Ed25519PublicKey, rsa.RSAPublicKey, ec.EllipticCurvePublicKey)
    ):
        raise SigningRequestError(
            "the key is none that is used here: EC, Ed25519, RSA from 2048 bits"
        )
    return public
