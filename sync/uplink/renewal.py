"""Renew the gateway's client certificate before it expires.

The key is created on the gateway and never leaves it. `cryptography` is imported with the first
check, to save memory on gateways without a certificate.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from sync.common.enrolment import Enrolment, EnrolmentError, read_enrolment, write_enrolment
from sync.uplink.http_client import client_tls_context
from sync.uplink.interfaces import SendNotice
from sync.uplink.notices import NoticeQueue
from sync.uplink.responses import Outcome

CHECK_INTERVAL_S: Final = 86_400.0
"""Seconds between two checks: a day is little of the time that is left when renewal is due."""

RENEWAL_FRACTION: Final = 1 / 3
"""Remaining fraction of the validity at which a certificate is renewed. It leaves a person enough
time to repair a broken link."""


class ValidityPeriod(NamedTuple):
    """The validity of a certificate, in seconds since 1970 UTC."""

    begins: float
    ends: float


def is_due(period: ValidityPeriod, now: float) -> bool:
    """Return whether a certificate must be renewed."""
    return period.ends - now < (period.ends - period.begins) * RENEWAL_FRACTION


class Certifier(Protocol):
    """A transport that obtains and uses certificates: `HttpsTransport`."""

    async def certify(self, request: bytes) -> bytes | Outcome:
        """Obtain a certificate for a signing request (both PEM); return the outcome if it fails."""
        ...

    def use(self, enrolment: Enrolment) -> None:
        """Use the certificate of this enrolment from now on. Raises `EnrolmentError`."""
        ...


class RenewalError(Exception):
    """A renewal failed; the text goes into a notice."""


class CertificateRenewal:
    """Renews the certificate of the enrolment in the file `path`.

    `now` returns seconds since 1970. `send_notice` receives the notice `certificate-renewed`, or
    `certificate-failed` after each failed attempt.
    """

    def __init__(
        self,
        path: Path,
        enrolment: Enrolment,
        certifier: Certifier,
        *,
        send_notice: SendNotice,
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._path = path
        self._enrolment = enrolment
        self._certifier = certifier
        self._notices = NoticeQueue(send_notice)
        self._now = now
        self._sleep = sleep

    async def run(self) -> None:
        """Check the certificate once a day until cancelled; return at once if there is none."""
        while self._enrolment.certificate:
            await self._notices.flush()
            try:
                await self._check()
            except (RenewalError, EnrolmentError, OSError) as error:
                await self._notices.send("certificate-failed", str(error))
            await self._sleep(CHECK_INTERVAL_S)

    async def _check(self) -> None:
        """Renew the certificate if it is due.

        If it has expired, authenticate by the enrolment's token, if there is one.
        """
        period = await asyncio.to_thread(validity_of, self._enrolment.certificate)
        now = self._now()
        if not is_due(period, now):
            return
        if period.ends <= now and self._enrolment.token:
            self._certifier.use(replace(self._enrolment, certificate="", key=""))
        key, request = await asyncio.to_thread(make_request, self._enrolment.gateway)
        answer = await self._certifier.certify(request)
        if not isinstance(answer, bytes):
            raise RenewalError(getattr(answer, "text", "the centre sent no certificate"))
        renewed = await asyncio.to_thread(self._save, answer, key)
        self._certifier.use(renewed)
        self._enrolment = renewed
        await self._notices.send("certificate-renewed", "the gateway's certificate was renewed")

    def _save(self, answer: bytes, key: str) -> Enrolment:
        if read_enrolment(self._path) != self._enrolment:
            raise RenewalError("the enrolment file was changed; load it with `fieldpost reload`")
        try:
            certificate = answer.decode("ascii")
            renewed = replace(self._enrolment, certificate=certificate, key=key)
            check_renewed(renewed, self._now())
            write_enrolment(self._path, renewed)
        except (ValueError, EnrolmentError, ssl.SSLError) as error:
            raise RenewalError(f"the centre sent an unusable certificate: {error}") from None
        return renewed


def validity_of(certificate: str) -> ValidityPeriod:
    """Return the validity of a certificate (PEM). Raises `EnrolmentError`."""
    from cryptography import x509

    try:
        read = x509.load_pem_x509_certificate(certificate.encode())
    except ValueError:
        raise EnrolmentError("`certificate` cannot be read") from None
    return ValidityPeriod(
        read.not_valid_before_utc.timestamp(), read.not_valid_after_utc.timestamp()
    )


def make_request(gateway: str) -> tuple[str, bytes]:
    """Create a key and its signing request (both PEM, the key as PKCS #8)."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    from sync.common import certificates

    key = certificates.new_key()
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([]))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(gateway)]), critical=True)
        .sign(key, hashes.SHA256())
    )
    return certificates.key_pem(key).decode(), request.public_bytes(serialization.Encoding.PEM)


def check_renewed(enrolment: Enrolment, now: float) -> None:
    """Check that a new certificate matches its key and gateway, is valid, and not due for renewal.

    Raises `ValueError` or `EnrolmentError`.
    """
    from cryptography import x509

    client_tls_context(enrolment)
    try:
        read = x509.load_pem_x509_certificate(enrolment.certificate.encode())
        names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (
        x509.DuplicateExtension,
        x509.ExtensionNotFound,
        x509.InvalidVersion,
        x509.UnsupportedGeneralNameType,
    ) as error:
        raise ValueError(str(error)) from None
    if enrolment.gateway not in names.get_values_for_type(x509.DNSName):
        raise ValueError("it names another gateway")
    period = validity_of(enrolment.certificate)
    if now < period.begins or is_due(period, now):
        raise ValueError("it is not valid yet, or about to expire: are both clocks right?")
