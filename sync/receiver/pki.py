"""The centre's certificate authority, which issues the certificates of receiver and gateways."""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID

from sync.common import certificates
from sync.common.certificates import SKEW, PublicKey
from sync.common.durable_files import PUBLIC_FILE, create_file, replace_file
from sync.common.errors import FleetError
from sync.segment import is_gateway

CA_DAYS: Final = 20 * 365
"""Validity in days of the authority's certificate, which is in every enrolment file."""

SERVER_DAYS: Final = 2 * 365
"""Validity in days of the receiver's certificate. Its renewal changes nothing for gateways."""

RENEW_DAYS: Final = 180
"""Days before the expiry of the receiver's certificate from which it is renewed."""

MAX_NAMES: Final = 64
"""Maximum number of names in the receiver's certificate: every handshake carries all of them."""


class IssuedCertificate(NamedTuple):
    """A certificate (PEM) and its expiry in milliseconds since 1970 UTC."""

    pem: bytes
    expires_ms: int


class _Subject(NamedTuple):
    title: str
    names: list[x509.GeneralName] | list[x509.DNSName]
    use: x509.ObjectIdentifier


@dataclass(frozen=True, slots=True)
class Authority:
    """The authority and the receiver's certificate in `folder`; only the owner can read keys."""

    folder: Path

    @property
    def ca(self) -> Path:
        """The authority's certificate (PEM), which gateways trust."""
        return self.folder / "ca.pem"

    @property
    def server(self) -> Path:
        """The receiver's certificate (PEM)."""
        return self.folder / "server.pem"

    @property
    def server_key(self) -> Path:
        """The receiver's key (PEM), which is kept when the certificate is renewed."""
        return self.folder / "server.key"

    @property
    def _ca_key(self) -> Path:
        return self.folder / "ca.key"

    def ensure(self, hosts: Iterable[str], now: dt.datetime) -> bool:
        """Create missing files; renew the server certificate if it lacks a host or is not valid.

        It is renewed `RENEW_DAYS` before it expires. The first day of validity stays, so that a
        wrong clock at this moment does no harm. Hosts are domain names or IP addresses. Return
        whether a certificate was issued. Raises FleetError for an invalid host, or when a file
        cannot be read.
        """
        self._ensure_ca(now)
        if not self.server_key.exists():
            create_file(self.server_key, certificates.key_pem(certificates.new_key()))
        names = {_name(host) for host in hosts}
        begins = max(now, certificates.EARLIEST) - SKEW
        if self.server.exists():
            current = _certificate(self.server)
            alternative = current.extensions.get_extension_for_class(x509.SubjectAlternativeName)
            known = set(alternative.value)
            left = current.not_valid_after_utc - now
            is_valid = current.not_valid_before_utc <= now and left > dt.timedelta(days=RENEW_DAYS)
            if names <= known and is_valid:
                return False
            names |= known
            begins = min(begins, current.not_valid_before_utc)
        if not names:
            msg = "no host is known for the receiver's certificate; enrol a gateway first"
            raise FleetError(msg)
        self._issue(names, begins, now)
        return True

    def _ensure_ca(self, now: dt.datetime) -> None:
        """Create the authority; its key first, because a certificate without a key is useless."""
        if self.ca.exists():
            return
        if not self._ca_key.exists():
            create_file(self._ca_key, certificates.key_pem(certificates.new_key()))
        now = max(now, certificates.EARLIEST)  # an earlier clock is wrong
        certificate = certificates.self_signed(
            "Fieldpost fleet authority",
            _key(self._ca_key),
            now - SKEW,
            now + dt.timedelta(days=CA_DAYS),
        )
        replace_file(self.ca, certificates.pem(certificate), PUBLIC_FILE)

    def _issue(self, names: set[x509.GeneralName], begins: dt.datetime, now: dt.datetime) -> None:
        if len(names) > MAX_NAMES:
            raise FleetError(f"the receiver's certificate cannot have more than {MAX_NAMES} hosts")
        ordered = sorted(names, key=lambda name: str(name.value))
        subject = _Subject("Fieldpost receiver", ordered, ExtendedKeyUsageOID.SERVER_AUTH)
        public = _key(self.server_key).public_key()
        ends = max(now, certificates.EARLIEST) + dt.timedelta(days=SERVER_DAYS)
        replace_file(self.server, self._sign(subject, public, begins, ends), PUBLIC_FILE)

    def issue_client(
        self, gateway: str, public: PublicKey, issued_ms: int, days: int
    ) -> IssuedCertificate:
        """Issue a client certificate to `gateway`.

        It is valid from a day before `issued_ms` (ms since 1970 UTC, a whole second) until `days`
        after it. Raises FleetError when the authority cannot be read.
        """
        name = [x509.DNSName(gateway)]
        subject = _Subject("Fieldpost gateway", name, ExtendedKeyUsageOID.CLIENT_AUTH)
        issued = dt.datetime.fromtimestamp(issued_ms // 1_000, dt.UTC)
        issued = max(issued, certificates.EARLIEST)  # an earlier clock is wrong
        ends = issued + dt.timedelta(days=days)
        pem = self._sign(subject, public, issued - SKEW, ends)
        return IssuedCertificate(pem, issued_ms + days * 24 * 3_600_000)

    def _sign(
        self, subject: _Subject, public: PublicKey, begins: dt.datetime, ends: dt.datetime
    ) -> bytes:
        ca = _certificate(self.ca)
        name = certificates.common_name(subject.title)
        builder = (
            certificates.begin(name, ca.subject, public, begins, ends)
            .add_extension(x509.SubjectAlternativeName(subject.names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(certificates.key_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([subject.use]), critical=False)
            .add_extension(certificates.issued_by(ca), critical=False)
        )
        return certificates.pem(certificates.sign(builder, _key(self._ca_key)))


def expires_at(certificate: Path) -> float:
    """Return when a certificate (PEM) expires, in seconds since 1970 UTC.

    Raises FleetError and OSError.
    """
    return _certificate(certificate).not_valid_after_utc.timestamp()


def _name(host: str) -> x509.GeneralName:
    with contextlib.suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(host))
    name = ""
    with contextlib.suppress(ValueError):
        name = host.encode("idna").decode("ascii").lower()
    if not is_gateway(name):
        raise FleetError(f"{host!r} is neither a host name nor an IP address")
    return x509.DNSName(name)


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError:
        raise FleetError(f"{path} is not a certificate in PEM") from None


def _key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError):
        raise FleetError(f"{path} is not an unencrypted private key in PEM") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise FleetError(f"{path} is not an elliptic-curve key")
    return key
