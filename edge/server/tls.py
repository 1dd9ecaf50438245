"""TLS for devices: the contexts of the gateway's certificate, and the handshake.

A client certificate is requested and not required. A presented one must be issued by the gateway's
CA and not revoked, or the handshake fails. The login checks its dates.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from edge.config.limits import Limits
from edge.errors import SetupError
from edge.ops.certificates import pki
from edge.ops.certificates.tls_context import server_context
from edge.server.tls_transport import TlsTransport

BUFFER_BYTES: Final = 16 * 1024
"""Bytes of the buffer for received encrypted data: one TLS record."""

RETRY_TIME: Final = 60.0
"""Seconds after which refused certificate files are tried again, although they have not changed."""

SLOT_TIME: Final = 0.5
"""Maximum seconds for which a handshake counts towards `limits.handshakes`; a longer handshake
waits for its peer, and takes no processor time."""

EXPIRED: Final = "certificate expired"
NOT_VALID_YET: Final = "certificate not valid yet"

_OTHER_CA: Final = "certificate of another CA"
_CERTIFICATE_FAULTS: Final = {
    7: _OTHER_CA,  # of the same name
    18: _OTHER_CA,  # itself
    19: _OTHER_CA,
    20: _OTHER_CA,
    21: _OTHER_CA,
    23: "certificate revoked",
}
"""Texts for the codes of X509_STORE_CTX_get_error(3); other codes have OpenSSL's text."""

_TOO_OLD: Final = "the peer offers no TLS version from 1.2 on"
_NO_TLS: Final = "the peer sent something else than TLS"
_INCOMPLETE: Final = "the peer did not complete the handshake"
_FAULTS: Final = {
    "UNSUPPORTED_PROTOCOL": _TOO_OLD,
    "VERSION_TOO_LOW": _TOO_OLD,
    "NO_SHARED_CIPHER": "the peer offers no cipher suite that the gateway accepts",
    "HTTP_REQUEST": _NO_TLS,
    "WRONG_VERSION_NUMBER": _NO_TLS,
}
"""Texts for reasons of OpenSSL for which a handshake fails; others are logged as they are."""

_DISTRUSTING_ALERTS: Final = frozenset(
    {
        "BAD_CERTIFICATE",
        "CERTIFICATE_EXPIRED",
        "CERTIFICATE_REVOKED",
        "CERTIFICATE_UNKNOWN",
        "UNKNOWN_CA",
        "UNSUPPORTED_CERTIFICATE",
    }
)
"""The TLS alerts of a client that refuses the gateway's certificate (RFC 8446, section 6.2)."""


class TlsContexts:
    """The TLS contexts of the gateway's certificate, loaded again when its files change.

    The files are checked before each handshake; open connections keep their certificate. If changed
    files are unusable, or devices would refuse the certificate because of its dates or name, the
    old contexts stay in use, `on_invalid` is called once per change, and the files are tried again
    every `RETRY_TIME` seconds, because the clock may have been wrong. The first certificate is used
    whatever its dates: the clock may be wrong at a start, and `edge.ops.checks.health` reports it.

    Args:
        folder: the gateway's folder; `None` if another process has checked `files`.
        domain: the gateway's domain, which the certificate must name.
        files: other files than those of the folder.

    Attributes:
        error: why the present files are not used, if that is so.
        on_used: is called when changed files are used.
    """

    def __init__(
        self,
        folder: Path | None,
        domain: str,
        on_invalid: Callable[[], None],
        files: pki.Files | None = None,
    ) -> None:
        self._folder = folder
        self._domain = domain
        self._files = files or pki.files(folder or Path())
        self._on_invalid = on_invalid
        self.on_used: Callable[[], None] = lambda: None
        self._stamps = self._stat_files()
        self._retry_at = 0.0
        self.error: str | None = None
        self._contexts = {"": self._load("")}

    def add(self, alpn: str) -> None:
        """Load a context for an ALPN protocol, too; raises `SetupError`."""
        self._contexts[alpn] = self._load(alpn)

    def get(self, alpn: str = "") -> ssl.SSLContext:
        """Return the context for an ALPN protocol, or by default the one without ALPN."""
        self.refresh()
        return self._contexts[alpn]

    def refresh(self) -> None:
        """Load the files if they have changed, or were refused `RETRY_TIME` seconds ago."""
        stamps = self._stat_files()
        is_changed = stamps != self._stamps
        if not is_changed and (self.error is None or time.monotonic() < self._retry_at):
            return
        self._stamps = stamps
        try:
            self.use(self.load())
        except SetupError as error:
            self.error = str(error)
            self._retry_at = time.monotonic() + RETRY_TIME
            if is_changed:
                self._on_invalid()

    def _stat_files(self) -> tuple[tuple[int, int] | None, ...]:
        files = self._files
        return tuple(_stamp(path) for path in (files.server, files.server_key, files.ca, files.crl))

    def use(self, loaded: dict[str, ssl.SSLContext]) -> None:
        """Use the contexts that `load` returned."""
        self._contexts = loaded
        self.error = None
        self.on_used()

    def read(self) -> tuple[bytes, bytes, bytes, bytes | None]:
        """Return the bytes of the certificate, its key, the CA and the revocation list, if any.

        Raises `OSError`.
        """
        files = self._files
        crl = files.crl.read_bytes() if files.crl.exists() else None
        server, key, ca = (each.read_bytes() for each in (files.server, files.server_key, files.ca))
        return server, key, ca, crl

    def names(self) -> list[str]:
        """Return the ALPN protocols that have a context, without the empty one."""
        return [alpn for alpn in self._contexts if alpn]

    def load(self) -> dict[str, ssl.SSLContext]:
        """Load the files; return the contexts by ALPN protocol.

        Raises `SetupError`, which names the file, if a file is unusable or devices would refuse the
        certificate.
        """
        fault = None
        if self._folder is not None:
            fault = pki.server_fault(self._folder, self._domain, round(time.time() * 1000))
        if fault is not None:
            text, remedy = fault
            raise SetupError(f"{text}; the certificate in use stays: {remedy}")
        return {alpn: self._load(alpn) for alpn in self._contexts}

    def _load(self, alpn: str) -> ssl.SSLContext:
        context = server_context(self._files)
        if alpn:
            context.set_alpn_protocols([alpn])
        return context


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


class Hello(NamedTuple):
    """The first message of a client whose connection begins with TLS, and its ALPN protocol."""

    data: bytes
    alpn: str


class TlsServer:
    """The server side of TLS handshakes, with a limit on how many run at once.

    Attributes:
        contexts: the contexts of the next handshakes.
        active_handshakes: the number of handshakes that count towards the limit.
    """

    def __init__(self, contexts: TlsContexts, limits: Limits) -> None:
        self.contexts = contexts
        self._limits = limits
        self._slots = asyncio.Semaphore(limits.handshakes)
        self._input = memoryview(bytearray(BUFFER_BYTES))
        self.active_handshakes = 0

    @property
    def certificate_error(self) -> str | None:
        """Return why the present certificate files are not used, if that is so."""
        self.contexts.refresh()
        return self.contexts.error

    def prepare_reload(self) -> Callable[[], None]:
        """Load the certificates again; return a function that puts them and the present limits into
        use. Raises `SetupError`.
        """
        loaded = self.contexts.load()

        def apply() -> None:
            self.contexts.use(loaded)
            self.use_limits()

        return apply

    def use_limits(self) -> None:
        """Use the present limits; handshakes that have begun do not count towards a new one."""
        self._slots = asyncio.Semaphore(self._limits.handshakes)

    def add(self, alpn: str) -> None:
        """Accept an ALPN protocol, too; raises `SetupError` if the certificate cannot be used."""
        self.contexts.add(alpn)

    async def handshake(
        self,
        protocol: asyncio.BufferedProtocol,
        plain: asyncio.Transport,
        hello: Hello | None,
        on_failure: Callable[[str, str], None],
    ) -> asyncio.Transport | None:
        """Do a handshake on a connection; return the TLS transport, or None if it failed.

        The protocol gets data in later iterations of the event loop.

        Args:
            plain: the connection's transport.
            hello: the client's first message, if it was read before.
            on_failure: called with a rule and a reason to log if the handshake fails. The rule is
                `authentication` if the client's certificate is refused, otherwise `tls`.
        """
        async with self._slots:
            if plain.is_closing():  # the connection was lost: TLS on it would never end
                return None
            context = self.contexts.get("" if hello is None else hello.alpn)
            transport = TlsTransport(protocol, plain, context, self._input)
            handshake = transport.start_handshake(b"" if hello is None else hello.data)
            self.active_handshakes += 1
            try:
                await asyncio.wait({handshake}, timeout=SLOT_TIME)
            finally:
                self.active_handshakes -= 1
        try:
            async with asyncio.timeout(self._limits.authenticate_time):
                has_succeeded = await handshake
        except OSError as error:  # includes errors of TLS and time-outs
            error.__traceback__ = None  # its frames refer to the connection
            on_failure(*_fault(error))
            return None
        if not has_succeeded:
            return None
        transport.resume_reading()
        return transport


def _fault(error: OSError) -> tuple[str, str]:
    """Return the rule and the reason to log for a failed handshake."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "authentication", _certificate_fault(error)
    return "tls", _handshake_fault(error) if isinstance(error, ssl.SSLError) else _INCOMPLETE


def _handshake_fault(error: ssl.SSLError) -> str:
    reason = error.reason or ""
    _, is_alert, alert = reason.rpartition("ALERT_")
    if is_alert:
        text = alert.lower().replace("_", " ")
        if alert in _DISTRUSTING_ALERTS:
            return f"the peer refuses the gateway's certificate: {text}"
        return f"the peer ended the handshake: {text}"
    if isinstance(error, ssl.SSLEOFError):
        return _INCOMPLETE
    return _FAULTS.get(reason) or f"handshake failed: {reason.lower().replace('_', ' ')}"


def _certificate_fault(error: ssl.SSLCertVerificationError) -> str:
    found = _CERTIFICATE_FAULTS.get(error.verify_code)
    return found or f"certificate refused: {error.verify_message}"


class PeerCertificate(NamedTuple):
    """A certificate that TLS has verified, except for its dates.

    Attributes:
        fingerprint: the SHA-256 of its DER encoding.
        serial: its serial number, hexadecimal.
        begins, ends: its dates, in ms since 1970 UTC.
    """

    fingerprint: bytes
    serial: str
    begins: int
    ends: int

    def fault(self, now: int) -> str:
        """Return why the certificate is not valid at `now` (ms since 1970 UTC), or ""."""
        if now < self.begins:
            return NOT_VALID_YET
        return EXPIRED if now > self.ends else ""


def peer_certificate(transport: asyncio.BaseTransport) -> PeerCertificate | None:
    """Return the peer's certificate, or None if it presented none.

    Raises `ValueError` if the peer has already begun to renegotiate, which is refused.
    """
    connection = transport.get_extra_info("ssl_object")
    der = None if connection is None else connection.getpeercert(binary_form=True)
    if not der:
        return None
    fields: dict[str, Any] = connection.getpeercert()
    begins, ends = (ssl.cert_time_to_seconds(fields[name]) for name in ("notBefore", "notAfter"))
    serial = fields["serialNumber"].lower().lstrip("0")
    return PeerCertificate(hashlib.sha256(der).digest(), serial, begins * 1000, ends * 1000)
