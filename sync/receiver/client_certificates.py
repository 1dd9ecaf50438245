"""Issue client certificates to gateways, and verify those that are presented."""

from __future__ import annotations

import datetime as dt
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from sync.common import certificates
from sync.common.certificates import SKEW, PublicKey
from sync.common.fleet_folder import FleetFolder
from sync.receiver.gateways import GatewayRegistry, next_issue_time
from sync.receiver.pki import Authority, IssuedCertificate

CLIENT_DAYS: Final = 365
"""Default validity of a client certificate, in days. Gateways renew it themselves, and a gateway
that was off for most of a year can still connect."""

MAX_REQUEST_BYTES: Final = 8 * 1024
"""Largest certificate signing request, in bytes. A request for the largest key has some 2,000."""

_UNREADABLE: Final = (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion)
"""The exceptions of `cryptography` for bytes that are not a valid certificate or request."""

_RSA_BITS: Final = range(2_048, 4_097)
_CURVES: Final = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)


class PresentedCertificate(NamedTuple):
    """The gateway named by a verified certificate, and its issue time in ms since 1970 UTC."""

    gateway: str
    issued_ms: int


class SigningRequestError(Exception):
    """A certificate signing request is not valid; the text says why."""


def issue_with_key(
    authority: Authority, gateway: str, issued_ms: int, days: int
) -> tuple[IssuedCertificate, bytes]:
    """Issue a certificate for a new key; return both (PEM). Raises FleetError."""
    key = certificates.new_key()
    certificate = authority.issue_client(gateway, key.public_key(), issued_ms, days)
    return certificate, certificates.key_pem(key)


def renew(folder: FleetFolder, gateways: GatewayRegistry, gateway: str, request: bytes) -> bytes:
    """Issue a certificate for the key of a signing request (PKCS #10, PEM) and record its expiry.

    Only the key is taken from the request; the name is that of the authenticated gateway. Raises
    SigningRequestError, and FleetError when the certificate cannot be issued.
    """
    public = _requested_key(request)
    with folder.locked():
        record = gateways.get(gateway)
        since = 0 if record is None else record.certificates_since
        now_ms = int(dt.datetime.now(dt.UTC).timestamp() * 1_000)
        issued_ms = max(next_issue_time(now_ms), since)
        certificate = Authority(folder.pki).issue_client(gateway, public, issued_ms, CLIENT_DAYS)
        gateways.record_certificate(gateway, certificate.expires_ms)
    return certificate.pem


def verify(certificate: bytes, authority: bytes, now: dt.datetime) -> PresentedCertificate | None:
    """Verify a client certificate (DER or PEM); return None if it is not valid at `now`.

    It must be issued by `authority` (PEM) to one gateway for client authentication. Whether the
    gateway is still enrolled is not checked.
    """
    try:
        parsed = _load(certificate)
        parsed.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
        extensions = parsed.extensions
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        gateways = names.get_values_for_type(x509.DNSName)
        uses = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (*_UNREADABLE, InvalidSignature, x509.ExtensionNotFound):
        return None
    valid = parsed.not_valid_before_utc <= now <= parsed.not_valid_after_utc
    if not valid or len(gateways) != 1 or list(uses) != [ExtendedKeyUsageOID.CLIENT_AUTH]:
        return None
    issued = parsed.not_valid_before_utc + SKEW
    return PresentedCertificate(gateways[0], int(issued.timestamp()) * 1_000)


def _load(certificate: bytes) -> x509.Certificate:
    if certificate.startswith(b"-----"):
        return x509.load_pem_x509_certificate(certificate)
    return x509.load_der_x509_certificate(certificate)


def _requested_key(request: bytes) -> PublicKey:
    try:
        parsed = x509.load_pem_x509_csr(request)
        is_signed, public = parsed.is_signature_valid, parsed.public_key()
    except _UNREADABLE:
        raise SigningRequestError("the body is not a certificate signing request in PEM") from None
    if not is_signed:
        raise SigningRequestError("the signing request is not signed by its own key")
    match public:
        case ed25519.Ed25519PublicKey():
            return public
        case rsa.RSAPublicKey() if public.key_size in _RSA_BITS:
            return public
        case ec.EllipticCurvePublicKey() if isinstance(public.curve, _CURVES):
            return public
    raise SigningRequestError(
        "this type of key is not accepted: use EC (P-256, P-384, P-521), Ed25519, or RSA with "
        "2048 to 4096 bits"
    )
