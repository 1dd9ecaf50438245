"""A gateway's certificate, made anew by the centre before it ends.

Looks once a day. The new key is made here and never leaves; the enrolment file is written whole,
and what it says is shown from the next connection on. A certificate that has ended is shown no more
where there is a token, which does instead. `cryptography` is imported when the first look is due.
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
"""Seconds between two looks: a third of a certificate's life has many of them."""

RENEWAL_FRACTION: Final = 1 / 3
"""The part of its life that a certificate has left when it is made anew: time for a link that is
down, and for a person to mend what is wrong."""


class ValidityPeriod(NamedTuple):
    """From when to when a certificate is good, in seconds since 1970 UTC."""

    begins: float
    ends: float


def is_due(life: ValidityPeriod, now: float) -> bool:
    """Tell whether a certificate has less than its third left."""
    return life.ends - now < (life.ends - life.begins) * RENEWAL_FRACTION


class Certifier(Protocol):
    """Who has certificates made, and shows them: `HttpsTransport`."""

    async def certify(self, request: bytes) -> bytes | Outcome:
        """Have a certificate made for a request (both PEM)."""
        ...

    def use(self, enrolment: Enrolment) -> None:
        """Show another certificate from now on. Raises `EnrolmentError`."""
        ...


class RenewalError(Exception):
    """No new certificate this time; the text goes into a notice."""


class CertificateRenewal:
    """Keeps the certificate of the enrolment in the file `path` good.

    `now` tells seconds since 1970; `tell` gets a notice `certificate-renewed`, or
    `certificate-failed` at each look that was in vain.
    """

    def __init__(
        self,
        path: Path,
        enrolment: Enrolment,
        certifier: Certifier,
        *,
        tell: SendNotice,
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._path = path
        self._enrolment = enrolment
        self._certifier = certifier
        self._teller = NoticeQueue(tell)
        self._now = now
        self._sleep = sleep

    async def run(self) -> None:
        """Look once a day, until cancelled; a gateway without a certificate has nothing to do."""
        while self._enrolment.certificate:
            await self._teller.catch_up()
            try:
                await self._look()
            except (RenewalError, EnrolmentError, OSError) as error:
                await self._teller.say("certificate-failed", str(error))
            await self._sleep(CHECK_INTERVAL_S)

    async def _look(self) -> None:
        life = await asyncio.to_thread(validity_of, self._enrolment.certificate)
        now = self._now()
        if not is_due(life, now):
            return
        if life.ends <= now and self._enrolment.token:
            self._certifier.use(replace(self._enrolment, certificate="", key=""))
        key, request = await asyncio.to_thread(make_request, self._enrolment.gateway)
        answer = await self._certifier.certify(request)
        if not isinstance(answer, bytes):
            raise RenewalError(getattr(answer, "text", "the centre gave no certificate"))
        renewed = await asyncio.to_thread(self._take, answer, key)
        self._certifier.use(renewed)
        self._enrolment = renewed
        await self._teller.say("certificate-renewed", "the gateway has a new certificate")

    def _take(self, answer: bytes, key: str) -> Enrolment:
        """Check what the centre made, and write the file."""
        if read_enrolment(self._path) != self._enrolment:
            raise RenewalError(
                "the enrolment file is another by now: it is used from the next start on"
            )
        try:
            certificate = answer.decode("ascii")
            renewed = replace(self._enrolment, certificate=certificate, key=key)
            check_renewed(renewed, self._now())
            write_enrolment(self._path, renewed)
        except (ValueError, EnrolmentError, ssl.SSLError) as error:
            raise RenewalError(f"the centre's answer is no certificate for us: {error}") from None
        return renewed


def validity_of(certificate: str) -> ValidityPeriod:
    """Return the life of a certificate (PEM). Raises `EnrolmentError`."""
    from cryptography import x509

    try:
        read = x509.load_pem_x509_certificate(certificate.encode())
    except ValueError:
        raise EnrolmentError("`certificate` cannot be read") from None
    return ValidityPeriod(
        read.not_valid_before_utc.timestamp(), read.not_valid_after_utc.timestamp()
    )


def make_request(gateway: str) -> tuple[str, bytes]:
    """Make a key, and the request for its certificate (both PEM, the key as PKCS #8)."""
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
    """Check that a certificate is for its key and its gateway, and that none is due again at once.

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
    if is_due(validity_of(enrolment.certificate), now):
        raise ValueError("it ends too soon")
