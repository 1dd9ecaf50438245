"""The centre's own certificate authority, and the certificates of its receiver and of gateways.

Makes keys and certificates and renews the receiver's; decides whom to trust by none of them
(`sync.receiver.client_certificates`), and opens no socket.
"""

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
"""Days the authority is valid: it is in every gateway's enrolment, and is never replaced alone."""

SERVER_DAYS: Final = 2 * 365
"""Days the receiver's certificate is valid: it is made anew without the gateways noticing."""

RENEW_DAYS: Final = 180
"""Days before its end that the certificate is made anew, at the next start or enrolment."""

MAX_NAMES: Final = 64
"""Names in the receiver's certificate: a handshake carries them all."""


class _Whose(NamedTuple):
    """What a certificate says of its owner: a title for people, names, and what it is good for."""

    title: str
    names: list[x509.GeneralName] | list[x509.DNSName]
    use: x509.ObjectIdentifier


@dataclass(frozen=True, slots=True)
class Authority:
    """The authority and the receiver's certificate in `folder`; only the owner can read keys."""

    folder: Path

    @property
    def ca(self) -> Path:
        """The authority's certificate, PEM: what a gateway trusts."""
        return self.folder / "ca.pem"

    @property
    def server(self) -> Path:
        """The receiver's certificate, PEM."""
        return self.folder / "server.pem"

    @property
    def server_key(self) -> Path:
        """The receiver's key, PEM. It stays when the certificate is made anew."""
        return self.folder / "server.key"

    @property
    def _ca_key(self) -> Path:
        return self.folder / "ca.key"

    def ensure(self, hosts: Iterable[str], now: dt.datetime) -> bool:
        """Make what is missing, and the certificate anew if it lacks a host or ends soon.

        Hosts are domain names or IP addresses. Tells whether a certificate was made. Raises
        FleetError for a host that is no name, or when a file there cannot be read.
        """
        self._ensure_ca(now)
        if not self.server_key.exists():
            create_file(self.server_key, certificates.key_pem(certificates.new_key()))
        names = {_name(host) for host in hosts}
        if self.server.exists():
            there = _certificate(self.server)
            known = set(there.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
            left = there.not_valid_after_utc - now
            if names <= known and left > dt.timedelta(days=RENEW_DAYS):
                return False
            names |= known
        if not names:
            msg = "the receiver's certificate has no host to name: enrol a gateway"
            raise FleetError(msg)
        self._issue(names, now)
        return True

    def _ensure_ca(self, now: dt.datetime) -> None:
        """The key comes first: a certificate without one would be trusted and of no use."""
        if self.ca.exists():
            return
        if not self._ca_key.exists():
            create_file(self._ca_key, certificates.key_pem(certificates.new_key()))
        certificate = certificates.self_signed(
            "Fieldpost fleet authority",
            _key(self._ca_key),
            now - SKEW,
            now + dt.timedelta(days=CA_DAYS),
        )
        replace_file(self.ca, certificates.pem(certificate), PUBLIC_FILE)

    def _issue(self, names: set[x509.GeneralName], now: dt.datetime) -> None:
        if len(names) > MAX_NAMES:
            msg = f"the receiver's certificate would have more than {MAX_NAMES} hosts"
            raise FleetError(msg)
        ordered = sorted(names, key=lambda name: str(name.value))
        whose = _Whose("Fieldpost receiver", ordered, ExtendedKeyUsageOID.SERVER_AUTH)
        public = _key(self.server_key).public_key()
        replace_file(self.server, self._sign(whose, public, now, SERVER_DAYS), PUBLIC_FILE)

    def issue_client(
        self, gateway: str, public: PublicKey, issued: dt.datetime, days: int
    ) -> bytes:
        """Make a certificate, PEM, by which `gateway` is known in a TLS handshake.

        It is valid from a day before `issued`, which is in whole seconds, and `days` from then on.
        Raises FleetError when the authority cannot be read.
        """
        name = [x509.DNSName(gateway)]
        whose = _Whose("Fieldpost gateway", name, ExtendedKeyUsageOID.CLIENT_AUTH)
        return self._sign(whose, public, issued, days)

    def _sign(self, whose: _Whose, public: PublicKey, now: dt.datetime, days: int) -> bytes:
        ca = _certificate(self.ca)
        subject = certificates.common_name(whose.title)
        ends = now + dt.timedelta(days=days)
        builder = (
            certificates.begin(subject, ca.subject, public, now - SKEW, ends)
            .add_extension(x509.SubjectAlternativeName(whose.names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(certificates.key_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([whose.use]), critical=False)
            .add_extension(certificates.issued_by(ca), critical=False)
        )
        return certificates.pem(certificates.sign(builder, _key(self._ca_key)))


def ends_at(certificate: Path) -> float:
    """When a certificate (PEM) ends, in seconds since 1970 UTC. Raises FleetError, OSError."""
    return _certificate(certificate).not_valid_after_utc.timestamp()


def _name(host: str) -> x509.GeneralName:
    with contextlib.suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(host))
    name = ""
    with contextlib.suppress(ValueError):
        name = host.encode("idna").decode("ascii").lower()
    if not is_gateway(name):
        msg = f"{host!r} is neither a host's name nor an address"
        raise FleetError(msg)
    return x509.DNSName(name)


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError:
        msg = f"{path} holds no certificate"
        raise FleetError(msg) from None


def _key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError):
        msg = f"{path} holds no private key"
        raise FleetError(msg) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        msg = f"{path} holds no elliptic-curve key"
        raise FleetError(msg)
    return key
