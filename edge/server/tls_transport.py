"""A transport for the server's side of TLS, on top of a plain transport of asyncio.

asyncio's own (`asyncio.sslproto`) takes twice the processor time for a small record, and 4 KB more
for a connection (docs/explanation/decisions/0074-own-tls-transport.md).
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Any, Final

CLOSE_TIMEOUT: Final = 5.0
"""Seconds that a peer has to take the last bytes and close; then the connection is aborted."""

RECORD_BYTES: Final = 16 * 1024
"""Maximum bytes in a TLS record (RFC 8446, section 5.1)."""

DISCARDED_BYTES: Final = 64 * 1024
"""Bytes that are received and discarded from a peer that is to close; after more, the connection is
closed without waiting for the peer."""


# The states, as constants that mypyc inlines, because each record depends on them.
_HANDSHAKE: Final = 0
_OPEN: Final = 1
_CLOSING: Final = 2  # close_notify is sent, and the peer's is awaited
_ENDED: Final = 3  # nothing more is sent or received


class TlsTransport(asyncio.Transport, asyncio.BufferedProtocol):
    """The server's side of TLS: a transport for its protocol, and the plain transport's protocol.

    What is written is encrypted at once and passed on, so that all that waits is in the write
    buffer of the plain transport, whose limits apply. While reading is paused, the plain transport
    does not read either; at most one read of it and one TLS record are kept.

    Args:
        protocol: the protocol of the decrypted data. It learns of the connection's end if the
            handshake has succeeded, and gets data after the first `resume_reading`.
        plain: the transport of the encrypted data.
        buffer: the buffer for received encrypted data. Transports of one event loop can share it,
            because it has content only within one callback.
    """

    __slots__ = (
        "_attached", "_buffer", "_close_timer", "_discarded", "_failed", "_incoming", "_outgoing",
        "_paused", "_peer_closed", "_plain", "_protocol", "_state", "_tls", "_waiter",
    )  # fmt: skip

    def __init__(
        self,
        protocol: asyncio.BufferedProtocol,
        plain: asyncio.Transport,
        context: ssl.SSLContext,
        buffer: memoryview,
    ) -> None:
        super().__init__()
        self._protocol = protocol
        self._plain = plain
        self._buffer = buffer
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        # `Any`, because typeshed takes the sizes that `read` returns for bytes
        self._tls: Any = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._state: int = _HANDSHAKE
        self._attached = False  # the handshake has succeeded
        self._waiter: asyncio.Future[bool] | None = None
        self._paused = True
        self._peer_closed = False
        self._failed = False
        self._discarded = 0
        self._close_timer: asyncio.TimerHandle | None = None

    # The handshake

    def start_handshake(self, received: bytes) -> asyncio.Future[bool]:
        """Begin the handshake; `received` is what the peer has sent before.

        Returns:
            A future of whether the handshake has succeeded. It is False if the plain transport was
            aborted, and has an `OSError` if the handshake failed or the peer disconnected.
        """
        self._waiter = waiter = asyncio.get_running_loop().create_future()
        self._plain.set_protocol(self)
        self._plain.resume_reading()
        self._incoming.write(received)
        self._continue_handshake()
        return waiter

    def _continue_handshake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
        except ssl.SSLError as error:
            error.__traceback__ = None  # it refers to this transport
            self._end_handshake(error)
            self._fail()
        else:
            self._state = _OPEN
            self._attached = True
            self._plain.pause_reading()
            self._flush()
            self._end_handshake(None)

    def _end_handshake(self, error: Exception | None) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is None or waiter.done():
            return
        if error is None:
            waiter.set_result(self._attached)
        else:
            waiter.set_exception(error)

    # Called by the plain transport

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return the shared buffer for encrypted data."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Decrypt received data."""
        self._incoming.write(self._buffer[:nbytes])
        if self._state == _OPEN:
            self._read()
        elif self._state == _HANDSHAKE:
            self._continue_handshake()
        elif self._state == _CLOSING:
            self._discarded += nbytes
            if self._discard() or self._discarded > DISCARDED_BYTES:
                self._plain.close()

    def eof_received(self) -> bool:
        """Close, because the peer has closed, with or without close_notify before."""
        if self._state == _OPEN:
            self._protocol.eof_received()
        self._state = _ENDED
        self._end_handshake(ConnectionResetError())
        return False

    def pause_writing(self) -> None:
        """Pass it on to the protocol."""
        if self._attached:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on to the protocol."""
        if self._attached:
            self._protocol.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        """Pass it on to the protocol, or end the handshake."""
        self._state = _ENDED
        if self._close_timer is not None:
            self._close_timer.cancel()
        self._end_handshake(error)
        if self._attached:
            self._protocol.connection_lost(error)

    # Reading

    def is_reading(self) -> bool:
        """Return whether reading is not paused."""
        return self._state == _OPEN and not self._paused

    def pause_reading(self) -> None:
        """Stop the protocol's input."""
        if self._state == _OPEN and not self._paused:
            self._paused = True
            self._plain.pause_reading()

    def resume_reading(self) -> None:
        """Continue the protocol's input, but not before the next iteration of the event loop."""
        if self._state == _OPEN and self._paused:
            self._paused = False
            if self._has_more():
                asyncio.get_running_loop().call_soon(self._resume)
            else:
                self._plain.resume_reading()

    def _resume(self) -> None:
        try:
            self._read()
        except BaseException:
            self.abort()  # as an asyncio transport does if its protocol fails
            raise
        if self._state == _OPEN and not self._paused:
            self._plain.resume_reading()

    def _has_more(self) -> bool:
        return self._incoming.pending > 0 or self._tls.pending() > 0

    def _read(self) -> None:
        """Pass what was received to the protocol, as far as it does not pause."""
        while self._state == _OPEN and not self._paused:
            view = memoryview(self._protocol.get_buffer(-1))
            size = self._decrypt(view)
            if size:
                self._protocol.buffer_updated(size)
            if self._failed:
                self._fail()
            elif self._peer_closed:
                if self._state == _OPEN:
                    self._protocol.eof_received()
                self.close()
            elif size < len(view):
                break
        if self._outgoing.pending:  # the answer to a KeyUpdate or to a renegotiation
            self._flush()

    def _decrypt(self, view: memoryview) -> int:
        """Fill a buffer with the content of records, which may be small; return the size."""
        size, room = 0, len(view)
        try:
            while size < room:
                count = self._tls.read(room - size, view[size:] if size else view)
                if not count:
                    self._peer_closed = True
                    break
                size += count
                if not self._has_more():
                    break
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            self._failed = True
        return size

    def _discard(self) -> bool:
        """Discard what was received; return whether nothing more is to come from the peer."""
        try:
            while self._tls.read(len(self._buffer), self._buffer):
                pass
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError:
            pass
        return True

    # Writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt data and send it; it is discarded if the transport is closing."""
        if self._state != _OPEN or not data:
            return
        try:
            if len(data) <= RECORD_BYTES:
                self._tls.write(data)
                self._flush()
            else:
                self._write_records(memoryview(data))
        except ssl.SSLError:
            self._fail()

    def _write_records(self, rest: memoryview) -> None:
        """Encrypt record by record, so that the memory of OpenSSL's buffer does not grow."""
        while rest and not self._plain.is_closing():
            self._tls.write(rest[:RECORD_BYTES])
            self._flush()
            rest = rest[RECORD_BYTES:]

    def _flush(self) -> None:
        if data := self._outgoing.read():
            self._plain.write(data)

    def get_write_buffer_size(self) -> int:
        """Return the number of encrypted bytes that wait to be sent."""
        return self._plain.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the limits of encrypted bytes below and above which writing is resumed and
        paused."""
        return self._plain.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits of encrypted bytes above and below which writing is paused and resumed."""
        self._plain.set_write_buffer_limits(high, low)

    def can_write_eof(self) -> bool:
        """Return False."""
        return False

    # The end

    def is_closing(self) -> bool:
        """Return whether the transport is closing or closed."""
        return self._state != _OPEN or self._plain.is_closing()

    def close(self) -> None:
        """Send what was written and close_notify; close when the peer has closed, too, or after
        `CLOSE_TIMEOUT`. No more data is received."""
        if self._state == _HANDSHAKE:
            self.abort()
        if self._state != _OPEN:
            return
        self._state = _CLOSING
        loop = asyncio.get_running_loop()
        self._close_timer = loop.call_later(CLOSE_TIMEOUT, self._plain.abort)
        is_over = self._discard()  # or `unwrap` would take it for an error
        with suppress(ssl.SSLError):  # the peer has not closed
            self._tls.unwrap()
        self._flush()
        if is_over:
            self._plain.close()
        else:
            self._plain.resume_reading()

    def abort(self) -> None:
        """Close at once."""
        self._state = _ENDED
        self._plain.abort()

    def _fail(self) -> None:
        """Send OpenSSL's alert, which says what was wrong, and close at once."""
        self._state = _ENDED
        self._flush()
        self._plain.abort()

    # The ends of the connection

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Replace the protocol of the decrypted data by another `asyncio.BufferedProtocol`."""
        assert isinstance(protocol, asyncio.BufferedProtocol)  # noqa: S101
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol of the decrypted data."""
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return TLS's `ssl_object` or `sslcontext`, or what the plain transport knows."""
        if name == "ssl_object":
            return self._tls
        if name == "sslcontext":
            return self._tls.context
        return self._plain.get_extra_info(name, default)
