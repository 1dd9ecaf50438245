"""The first message of a client on the port for direct TLS (XEP-0368): what it wants to speak.

A client that names protocols by ALPN, and not ours, has come to the wrong port, or was sent here by
somebody who wants it to mistake our answers for another's (RFC 7301, section 3.2): it is refused.
Python's `ssl` would go on without one. One that names none is welcome. Everything else about the
message is for TLS itself to judge.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from edge.server.refusal_counters import Tally

if TYPE_CHECKING:
    from edge.server.connection import Connection

ALPN: Final = "xmpp-client"
"""The protocol's name in TLS (XEP-0368)."""

HELLO_BYTES: Final = 16 * 1024
"""Bytes of a client's first message; one with the keys of today's longest algorithms has 2 KiB."""

REFUSAL: Final = bytes((21, 3, 3, 0, 2, 2, 120))
"""The alert `no_application_protocol`, fatal (RFC 7301, section 3.2)."""

_HANDSHAKE: Final = b"\x16"
_CLIENT_HELLO: Final = b"\x01"
_ALPN_EXTENSION: Final = 16
_RECORD_HEADER: Final = 5
_MESSAGE_HEADER: Final = 4
_BEFORE_SESSION: Final = _MESSAGE_HEADER + 34  # the version and a random number


class Incomplete(Exception):
    """The message has not come as a whole."""


class Hello(asyncio.Protocol):
    """Reads a client's first message for a connection that is about to begin TLS."""

    def __init__(self, connection: Connection, tally: Tally) -> None:
        self._connection = connection
        self._tally = tally
        self._transport: asyncio.Transport | None = None
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101
        self._transport = transport
        self._connection.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Read on until the message is whole, and then no further."""
        if self._transport is None or self._transport.is_closing():
            return
        self._data += data
        try:
            offered = protocols(self._data)
        except Incomplete:
            if len(self._data) > HELLO_BYTES:
                self._tally.add("tls", source=self._connection.who())
                self._transport.abort()
            return
        self._transport.pause_reading()
        if offered and ALPN.encode() not in offered:
            self._tally.add("tls", source=self._connection.who())
            self._transport.write(REFUSAL)
            self._transport.close()
        else:
            self._connection.greeted(self._data)

    def connection_lost(self, error: Exception | None) -> None:
        """Tell the connection."""
        self._transport = None
        self._connection.connection_lost(error)


def protocols(data: bytes) -> list[bytes]:
    """Return the protocols that a client names; none where it names none, or is not understood.

    Raises:
        Incomplete: more has to come.
    """
    try:
        return _named(_message(data))
    except IndexError:
        return []


def _message(data: bytes) -> bytes:
    """Put the message together: it may be spread over several records (RFC 8446, section 5.1)."""
    message = b""
    while len(message) < _MESSAGE_HEADER or len(message) < _MESSAGE_HEADER + _number(message[1:4]):
        if data[:1] not in (b"", _HANDSHAKE) or message[:1] not in (b"", _CLIENT_HELLO):
            return b""
        end = _RECORD_HEADER + _number(data[3:_RECORD_HEADER])
        if len(data) < max(end, _RECORD_HEADER):
            raise Incomplete
        message += data[_RECORD_HEADER:end]
        data = data[end:]
    return message


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _named(message: bytes) -> list[bytes]:
    at = _BEFORE_SESSION
    at += 1 + message[at]  # the session
    at += 2 + _number(message[at : at + 2])  # the ciphers
    at += 1 + message[at] + 2  # the compressions, and the length of the extensions
    while at < len(message):
        kind = _number(message[at : at + 2])
        size = _number(message[at + 2 : at + 4])
        if kind == _ALPN_EXTENSION:
            return _listed(message[at + 6 : at + 4 + size])
        at += 4 + size
    return []


def _listed(names: bytes) -> list[bytes]:
    found = []
    while names:
        found.append(names[1 : 1 + names[0]])
        names = names[1 + names[0] :]
    return found
