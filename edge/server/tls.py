"""TLS for devices: the contexts of the two kinds of ports, and the handshake.

A client's certificate is asked for and not required; one that is shown must be of the gateway's CA,
in its dates and not on its list of revoked ones, or the handshake fails. Whose it is, and whether
it still is, is the store's to say. Sockets are the connection's.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from asyncio import sslproto
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from edge.errors import SetupError
from edge.ops import pki
from edge.server.tls_client_hello import ALPN
from sync.common.regular_files import check_regular

if TYPE_CHECKING:
    from edge.server.shared import Shared

BUFFER: Final = 16 * 1024
"""Bytes that asyncio holds for each TLS connection: one TLS record, in place of its 256 KiB."""

LINGER: Final = 5.0
"""Seconds that a peer has to take the last bytes and close; then the connection is aborted."""

TURN: Final = 0.5
"""Seconds for which a handshake holds others back: one that takes longer waits for its peer."""


class Contexts:
    """The contexts of the gateway's certificate, made anew when its files change.

    They are looked at before a handshake; connections that stand keep what they have. Files that
    cannot be used leave the contexts as they were: `failed` is called, for each change of theirs.
    """

    def __init__(self, folder: Path, failed: Callable[[], None]) -> None:
        self._files = pki.files(folder)
        self._failed = failed
        self._seen = self._look()
        self._starttls, self._direct = self._make()

    def get(self, *, direct: bool) -> ssl.SSLContext:
        """Return the context for STARTTLS or for direct TLS."""
        seen = self._look()
        if seen != self._seen:
            self._seen = seen
            try:
                self._starttls, self._direct = self._make()
            except SetupError:
                self._failed()
        return self._direct if direct else self._starttls

    def _look(self) -> tuple[tuple[int, int] | None, ...]:
        files = self._files
        return tuple(_state(path) for path in (files.server, files.server_key, files.ca, files.crl))

    def _make(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        direct = _context(self._files)
        direct.set_alpn_protocols([ALPN])
        return _context(self._files), direct


def _state(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


def _context(files: pki.Files) -> ssl.SSLContext:
    """Make a context; raises `SetupError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0  # a device that returns logs in anew; tickets would cost it bytes
    context.verify_mode = ssl.CERT_OPTIONAL
    _show(context, files.server, files.server_key)
    _trust(context, files.ca)
    if files.crl.exists():
        _trust(context, files.crl)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return context


def _show(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Load our own certificate; raises `SetupError` that names the file."""
    _check_readable(certificate)
    _check_readable(key)
    try:
        context.load_cert_chain(certificate, key, password="")  # or it would ask a terminal
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise SetupError(f"{key} is not the key of {certificate}") from error
        raise SetupError(
            f"{certificate} and {key} cannot be used: they are not a certificate and its key in PEM"
        ) from error


def _trust(context: ssl.SSLContext, path: Path) -> None:
    """Load the CA or its list; raises `SetupError` that names the file."""
    _check_readable(path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise SetupError(f"{path} cannot be used: it has no certificates or list in PEM") from error


def _check_readable(path: Path) -> None:
    try:
        check_regular(path)
        path.open("rb").close()
    except OSError as error:
        raise SetupError(f"{path} cannot be read: {error.strerror}") from error


async def secure(
    shared: Shared, protocol: asyncio.BaseProtocol, plain: asyncio.Transport, hello: bytes | None
) -> asyncio.Transport | None:
    """Do the TLS handshake on a connection; `None` where it failed.

    Args:
        shared: what all share.
        protocol: what goes on under TLS.
        plain: the connection.
        hello: the client's first message where that was read already, on the port for direct TLS.
    """
    limits = shared.settings.limits
    async with shared.handshakes:
        if plain.is_closing():  # it was lost while it waited: TLS on it would never end
            return None
        handshake = shared.loop.create_task(
            shared.loop.start_tls(
                plain,
                protocol,
                shared.tls.get(direct=hello is not None),
                server_side=True,
                ssl_handshake_timeout=limits.authenticate_time,
                ssl_shutdown_timeout=LINGER,
            )
        )
        if hello is not None:
            await asyncio.sleep(0)  # it has begun then, and has set its own protocol
            _feed(plain.get_protocol(), hello)
        await asyncio.wait({handshake}, timeout=TURN)
    try:
        return await handshake
    except OSError:  # TLS's errors and time-outs among them
        return None


def _feed(protocol: asyncio.BaseProtocol, data: bytes) -> None:
    """Hand over what was read before TLS began, as a transport would."""
    while data and isinstance(protocol, asyncio.BufferedProtocol):
        buffer = memoryview(protocol.get_buffer(len(data)))
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        protocol.buffer_updated(size)
        data = data[size:]


def fingerprint(transport: asyncio.BaseTransport) -> bytes | None:
    """Return the SHA-256 of the certificate that the peer has shown, if it has shown one."""
    connection = transport.get_extra_info("ssl_object")
    certificate = None if connection is None else connection.getpeercert(binary_form=True)
    return hashlib.sha256(certificate).digest() if certificate else None


def bound_buffers() -> None:
    """Make asyncio's TLS connections hold less memory.

    The attribute is private: where a Python does not have it, its TLS costs what it costs, and the
    test of the memory of idle sessions tells.
    """
    if isinstance(getattr(sslproto.SSLProtocol, "max_size", None), int):
        sslproto.SSLProtocol.max_size = BUFFER
