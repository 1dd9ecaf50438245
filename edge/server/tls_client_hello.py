"""The first bytes of a connection: whether TLS begins with them, and for which protocol.

A client that offers ALPN protocols, but not that of the port, has connected to the wrong port or is
the victim of a cross-protocol attack; it is refused (RFC 7301, section 3.2). Python's `ssl` would
continue without a protocol. A client that offers no protocol is accepted.
"""

from __future__ import annotations

import asyncio
from typing import Final

from edge.server.tls import Hello
from edge.server.wire import SocketWire

HELLO_BYTES: Final = 16 * 1024
"""Maximum bytes of a ClientHello, above which the connection is aborted; one with the longest keys
in use has 2 KiB."""

REFUSAL: Final = bytes((21, 3, 3, 0, 2, 2, 120))
"""The fatal alert `no_application_protocol` (RFC 7301, section 3.2)."""

_HANDSHAKE: Final = b"\x16"
_CLIENT_HELLO: Final = b"\x01"
_ALPN_EXTENSION: Final = 16
_RECORD_HEADER: Final = 5
_MESSAGE_HEADER: Final = 4
_BEFORE_SESSION: Final = _MESSAGE_HEADER + 34  # version and random


class Incomplete(Exception):
    """The ClientHello is not complete."""


class ClientHelloReader(asyncio.BufferedProtocol):
    """An asyncio protocol that reads the first bytes from a client, before `SocketWire` takes over.

    A ClientHello starts TLS on the wire. Unless the port is for direct TLS only, any other
    input is passed to the wire unchanged. So a protocol's own input must not begin with the
    first byte of a TLS record.

    Args:
        alpn: the protocol's name in TLS.
        only_tls: whether the port is for direct TLS only.
    """

    def __init__(
        self,
        wire: SocketWire,
        alpn: str,
        *,
        only_tls: bool,
    ) -> None:
        self._wire = wire
        self._alpn = alpn
        self._transport: asyncio.Transport | None = None
        self._hello = ClientHello()
        self._is_tls = only_tls
        self._refused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Pass the transport to the wire, which expects TLS if `only_tls` is set."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101
        self._transport = transport
        if self._is_tls:
            self._wire.expect_direct_tls()
        self._wire.connection_made(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer that all wires share: it is consumed before the next read."""
        return self._wire.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Read until the ClientHello is complete, and no further."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        hello = self._hello
        hello.data += self._wire.get_buffer(nbytes)[:nbytes]
        if not self._is_tls:
            if not hello.data.startswith(_HANDSHAKE):
                transport.set_protocol(self._wire)
                self._wire.buffer_updated(nbytes)
                return
            self._is_tls = True
            self._wire.expect_direct_tls()
        try:
            offered = hello.offered_protocols()
        except Incomplete:
            if len(hello.data) > HELLO_BYTES:
                self._refuse()
                transport.abort()
            return
        transport.pause_reading()
        if offered and self._alpn.encode() not in offered:
            self._refuse()
            transport.write(REFUSAL)
            transport.close()
        else:
            self._wire.start_direct_tls(Hello(bytes(hello.data), self._alpn))

    def _refuse(self) -> None:
        self._refused = True
        self._wire.handler.refuse("tls")

    def connection_lost(self, error: Exception | None) -> None:
        """Close the connection."""
        if self._hello.data and not self._refused and not self._wire.closed:
            self._refuse()  # the ClientHello is incomplete
        self._transport = None
        self._wire.connection_lost(error)


class ClientHello:
    """A ClientHello that is being received, perhaps byte by byte.

    Attributes:
        data: the bytes that were received so far; the caller appends to them.
    """

    __slots__ = ("_message", "_next", "data")

    def __init__(self) -> None:
        self.data = bytearray()
        self._message = bytearray()
        self._next = 0  # where the record begins that is not in the message yet

    def offered_protocols(self) -> list[bytes]:
        """Return the ALPN protocols; none if the message is malformed, which TLS then refuses.

        Raises:
            Incomplete: more bytes are needed.
        """
        try:
            return _alpn_protocols(self._join_records())
        except IndexError:
            return []

    def _join_records(self) -> bytes:
        """Return the message, which may span several records (RFC 8446, section 5.1).

        Each record is read once, because a peer may send many small ones in small pieces.
        """
        data, message = self.data, self._message
        while not _is_complete(message):
            begin, body = self._next, self._next + _RECORD_HEADER
            if data[begin:body] and not data.startswith(_HANDSHAKE, begin):
                return b""
            if message and not message.startswith(_CLIENT_HELLO):
                return b""
            end = body + _number(data[begin + 3 : body])
            if len(data) < end:
                raise Incomplete
            message += data[body:end]
            self._next = end
        return bytes(message)


def _is_complete(message: bytearray) -> bool:
    size = len(message)
    return size >= _MESSAGE_HEADER and size >= _MESSAGE_HEADER + _number(message[1:4])


def _number(data: bytes | bytearray) -> int:
    return int.from_bytes(data, "big")


def _alpn_protocols(message: bytes) -> list[bytes]:
    at = _BEFORE_SESSION
    at += 1 + message[at]  # the session id
    at += 2 + _number(message[at : at + 2])  # the cipher suites
    at += 1 + message[at] + 2  # the compression methods, and the extensions' length
    while at < len(message):
        kind = _number(message[at : at + 2])
        size = _number(message[at + 2 : at + 4])
        if kind == _ALPN_EXTENSION:
            return _split_names(message[at + 6 : at + 4 + size])
        at += 4 + size
    return []


def _split_names(names: bytes) -> list[bytes]:
    found = []
    while names:
        found.append(names[1 : 1 + names[0]])
        names = names[1 + names[0] :]
    return found
