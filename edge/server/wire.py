"""The socket of a connection: reading and parsing in order, TLS on the same socket, and writing.

A wire knows the form of its protocol's input by its parser, and nothing of log-ins and sessions: it
passes what it has parsed to its handler, and stops reading while the handler wants no more. TCP's
flow control then slows the peer down. A peer that does not read what it is sent is aborted after
`limits.stalled_time`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Protocol

from edge.config.limits import Limits
from edge.server import tls
from edge.server.tcp_options import set_keepalive, set_send_buffer
from edge.server.tls import Hello, PeerCertificate, TlsServer
from edge.server.tls_transport import CLOSE_TIMEOUT
from edge.server.transports import unlink

READ_BYTES: Final = 32 * 1024
"""Bytes of the read buffer that all wires share; asyncio would allocate 256 KiB per read."""

SLICE: Final = 4096
"""Maximum bytes that are parsed at once, because parsed input needs up to 80 times as much
memory."""


class Parser(Protocol):
    """A parser of a protocol's input."""

    @property
    def pending(self) -> int:
        """Number of received bytes that do not belong to a complete item yet."""

    def feed(self, data: bytes | memoryview) -> Sequence[Any]:
        """Return the items that end in this part of the input. An error of the peer is an item,
        too, after which there are no more."""

    def set_limit(self, max_bytes: int) -> None:
        """Set the maximum bytes of an item, which is larger after the log-in."""

    def reset(self) -> None:
        """Begin anew, without the pending bytes, as after TLS."""

    def release(self) -> None:
        """Free memory that is needed only while the peer sends."""

    def release_if_idle(self) -> None:
        """Call `release` if there was no input since the last call of this method."""

    def close(self) -> None:
        """Free all memory, because there is no more input."""


class Wire(Protocol):
    """The carrier of a connection: a socket of this process, or of another one.

    Attributes:
        handler: is set before the connection is made, and removed when it is lost.
        address: the IP address of the peer.
        direct: whether TLS begins with the first byte.
        stalled: whether the peer does not read what it is sent.
        wanted: whether the handler wants input.
        allowance: bytes of output that may be on their way to the write buffers.
    """

    allowance: int
    handler: Handler
    address: str | None
    direct: bool
    stalled: bool
    wanted: bool

    @property
    def transport(self) -> str:
        """The carrier of the protocol; empty for TCP, with or without TLS."""

    @property
    def pending(self) -> bool:
        """Whether the peer has sent more than was passed to the handler."""

    def want(self, wanted: bool) -> None:
        """Pass on no more input, or continue with it."""

    def allow_ahead(self) -> None:
        """Pass on input before the handler has handled what came before, within a bound."""

    def set_limit(self, max_bytes: int) -> None:
        """Set the maximum bytes of an item, which is larger after the log-in."""

    def reset_parser(self) -> None:
        """Parse a new stream from now on."""

    def release(self) -> None:
        """Free memory that is needed only while the peer sends."""

    def release_if_idle(self) -> None:
        """Free such memory if the peer has sent nothing since the last call of this method."""

    def start_tls(self) -> None:
        """Begin TLS after what was written."""

    def write(self, data: bytes, *, reports: bool) -> bool:
        """Write to the peer; return False if the connection is closed or TLS begins.

        `reports` asks for `Handler.note_left`, unless all has left the write buffers at once.
        """

    def backlog(self) -> int:
        """Return the number of bytes in the write buffers; 0 after the connection is lost."""

    def close(self) -> None:
        """Close when the output is written, within `tls.CLOSE_TIMEOUT` seconds."""

    def abort(self) -> None:
        """Close at once."""


class Handler(Protocol):
    """The receiver of a wire's input."""

    def open(self) -> None:
        """Begin: the peer has connected."""

    def receive(self, items: Sequence[Any], size: int) -> None:
        """Handle the items that ended in `size` bytes of input, or keep them until they can be
        handled."""

    def count_bytes(self, size: int) -> None:
        """Count bytes of input that belong to no item."""

    def count_request(self, number: int = 1) -> None:
        """Count requests to the wire itself."""

    def refuse(self, rule: str) -> None:
        """Count that the wire has refused something to the peer by a rule."""

    def continue_secured(self, certificate: PeerCertificate | None) -> None:
        """Begin anew under TLS, where the peer has presented this certificate, if any."""

    def fail_tls(self, rule: str, reason: str) -> None:
        """Log that TLS has failed, by a rule and a reason (`TlsServer.handshake`)."""

    def stall(self) -> None:
        """Wait, because the peer does not read."""

    def note_left(self) -> None:
        """Record that what was written with `reports` has left the write buffers, or a part."""

    def resume_reading(self) -> None:
        """Continue, because the peer reads again."""

    def lose(self) -> None:
        """End, because the connection is closed or lost."""


class WireContext:
    """The state that all wires of an event loop share.

    Attributes:
        buffer: the read buffer, which is consumed before the next read.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.buffer = memoryview(bytearray(READ_BYTES))


class SocketWire(asyncio.BufferedProtocol):
    """The socket of a connection.

    Attributes:
        handler: is set before the connection is made, and removed when it is lost.
        closed: whether nothing more is read or sent.
        direct: whether TLS begins with the first byte.
        stalled: whether the peer does not read what it is sent.
        transport: what carries the protocol; empty for TCP, with or without TLS.
        wanted: whether the handler wants input.
    """

    __slots__ = (
        "_aborted", "_close_timer", "_context", "_feeding", "_handshake", "_handshaking", "_parser",
        "_plain", "_reading", "_stall_timer", "_tls_server", "_transport", "_unparsed", "address",
        "allowance", "closed", "direct", "handler", "stalled", "wanted",
    )  # fmt: skip

    __deletable__ = ("handler",)

    transport: ClassVar[str] = ""

    def __init__(self, context: WireContext, parser: Parser, tls_server: TlsServer) -> None:
        self._context = context
        self._parser = parser
        self._tls_server = tls_server
        self._transport: asyncio.Transport | None = None
        self._plain: asyncio.Transport | None = None  # beneath TLS
        self._reading = True
        self._feeding = False
        self._unparsed = b""
        self._handshaking = False  # nothing can be sent during the TLS handshake
        self._handshake: asyncio.Task[None] | None = None
        self._aborted = False  # the gateway ended the connection during the handshake
        self._stall_timer: asyncio.TimerHandle | None = None
        self._close_timer: asyncio.TimerHandle | None = None
        self.handler: Handler
        self.address: str | None = None
        self.allowance = 0
        self.closed = False
        self.direct = False
        self.stalled = False
        self.wanted = True

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to read."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101
        self._plain = transport
        self._use_transport(transport)
        set_keepalive(transport)
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else None
        self.handler.open()

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return the buffer that all wires share: it is consumed before the next read."""
        return self._context.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Parse the received bytes, as far as the handler wants them."""
        if self.closed:
            return
        if self._unparsed or not self.wanted:  # the rest of a WebSocket's message
            self._unparsed += self._context.buffer[:nbytes]
            self._parse()
        elif nbytes > SLICE:
            self._unparsed = bytes(self._context.buffer[SLICE:nbytes])
            self._feed(self._context.buffer[:SLICE])
            self._parse()
        else:
            self._feed(self._context.buffer[:nbytes])
        self._update_reading()

    def eof_received(self) -> bool:
        """Close the transport, because the peer sends nothing more."""
        return False

    def pause_writing(self) -> None:
        """Stop reading, because the peer does not read; abort the connection if that lasts."""
        if self._transport is not None:
            self.stalled = True
            self._stall_timer = self._context.loop.call_later(
                self._context.limits.stalled_time, self._transport.abort
            )
            self.handler.stall()
            self._update_reading()

    def resume_writing(self) -> None:
        """Read again, because the peer reads again."""
        self.stalled = False
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        self.handler.resume_reading()
        self._update_reading()

    def connection_lost(self, _error: Exception | None) -> None:
        """Free what belongs to the socket, and tell the handler."""
        if self._transport is None:
            return
        unlink(self._plain)
        self._transport = self._plain = None
        self._stop()
        self._parser.close()
        for timer in (self._stall_timer, self._close_timer):
            if timer is not None:
                timer.cancel()
        handler = self.handler
        del self.handler  # so that both are freed without garbage collection
        handler.lose()

    # Input

    @property
    def pending(self) -> bool:
        """Whether the peer has sent more than was passed to the handler."""
        return bool(self._unparsed or self._parser.pending)

    def want(self, wanted: bool) -> None:
        """Pass on no more input, or continue with it."""
        if wanted is self.wanted:
            return
        self.wanted = wanted
        if wanted and self._unparsed and not self._feeding:
            self._parse()
        self._update_reading()

    def _feed(self, data: bytes | memoryview) -> None:
        self._feeding = True
        self.handler.receive(self._parser.feed(data), len(data))
        self._feeding = False

    def _parse(self) -> None:
        while self._unparsed and self.wanted:
            data, self._unparsed = self._unparsed[:SLICE], self._unparsed[SLICE:]
            self._feed(data)

    def _update_reading(self) -> None:
        wanted = self.wanted and not (self._unparsed or self.stalled or self._handshaking)
        if self._transport is None or wanted is self._reading:
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def allow_ahead(self) -> None:
        """Change nothing: input waits in this wire."""

    def set_limit(self, max_bytes: int) -> None:
        """Set the maximum bytes of an item, which is larger after the log-in."""
        self._parser.set_limit(max_bytes)

    def reset_parser(self) -> None:
        """Parse a new stream from now on."""
        self._parser.reset()

    def release(self) -> None:
        """Free memory that is needed only while the peer sends."""
        self._parser.release()

    def release_if_idle(self) -> None:
        """Free such memory if the peer has sent nothing since the last call of this method."""
        self._parser.release_if_idle()

    # TLS

    def expect_direct_tls(self) -> None:
        """Wait for the client's first message, which begins TLS; send nothing before."""
        self.direct = self._handshaking = True

    def start_direct_tls(self, hello: Hello) -> None:
        """Begin direct TLS with the client's first message, which `ClientHelloReader` has read."""
        self._reading = False
        self._start_handshake(hello)

    def start_tls(self) -> None:
        """Begin TLS after what was written."""
        self._unparsed = b""
        self._parser.reset()
        self._start_handshake(None)

    def _start_handshake(self, hello: Hello | None) -> None:
        self._handshaking = True
        self._update_reading()  # what comes before the handshake must not count as sent under TLS
        self._handshake = self._context.loop.create_task(self._do_handshake(hello))

    async def _do_handshake(self, hello: Hello | None) -> None:
        plain = self._transport
        if plain is None:
            return
        handler = self.handler  # the connection may be lost before the handshake fails

        def on_failure(rule: str, reason: str) -> None:
            if not self._aborted:  # by the gateway, which has counted that
                handler.fail_tls(rule, reason)

        transport = await self._tls_server.handshake(self, plain, hello, on_failure)
        if transport is None or self._transport is None:
            plain.abort()
            self.connection_lost(None)  # asyncio does not call it during a handshake
            return
        self._handshaking = False
        self._handshake = None
        self._use_transport(transport)
        try:
            certificate = tls.peer_certificate(transport)
        except ValueError:
            on_failure("tls", "the peer began to renegotiate")
            transport.abort()
            return
        self.handler.continue_secured(certificate)
        self._update_reading()

    def _use_transport(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._reading = True
        size = self._context.limits.send_buffer
        transport.set_write_buffer_limits(high=size)
        set_send_buffer(transport, size)

    # Output

    def write(self, data: bytes, *, reports: bool = False) -> bool:
        """Write to the peer; return False if the connection is closed or TLS begins."""
        if self._transport is None or self._handshaking:
            return False
        self._transport.write(data)
        return True

    def backlog(self) -> int:
        """Return the number of bytes in the transport's write buffer; 0 after `connection_lost`."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    # The end

    def _stop(self) -> None:
        self.closed = True
        self._unparsed = b""

    def close(self) -> None:
        """Close when the output is written, within `CLOSE_TIMEOUT` seconds."""
        self._stop()
        transport = self._transport
        if transport is None:
            return
        if self._handshaking:
            self._aborted = True
            transport.abort()
            return
        transport.close()
        if self._close_timer is not None:
            self._close_timer.cancel()
        self._close_timer = self._context.loop.call_later(CLOSE_TIMEOUT, transport.abort)

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()
