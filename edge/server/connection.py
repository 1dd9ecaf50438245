"""A connection of any protocol: reading in order, TLS on the same socket, limits, and writing.

A protocol adds how input is parsed and handled (`Connection`). Until a session is bound, it logs
the peer in; after that, it passes the peer's requests to the session.

A connection does not read while it must wait: for a result that the log-in needs, for the commit of
its own requests, for room in the store, for its peer to read, or for its rate limit. TCP's flow
control then slows the peer down. The server relies on TCP keep-alive and sends nothing else to keep
a connection alive.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Generic, TypeVar

from edge.engine.dispatch.outputs import EndReason
from edge.server import login_throttle, tls
from edge.server.login import CERTIFICATE, Login, log_failure
from edge.server.rate_limit import ReadRateLimiter
from edge.server.registry import Registry
from edge.server.server_context import ServerContext
from edge.server.session import Session
from edge.server.tcp_options import set_keepalive, set_send_buffer
from edge.server.tls import Hello, PeerCertificate, TlsServer
from edge.server.transports import unlink

SLICE: Final = 4096
"""Maximum bytes that are parsed at once, because parsed input needs up to 80 times as much
memory."""

T = TypeVar("T")
"""The type of the items that a protocol parses from its input."""

S = TypeVar("S", bound=Session[Any])


class Connection(asyncio.BufferedProtocol, ABC, Generic[T, S]):
    """A connection: parses its input, handles the items in it, and writes.

    Attributes:
        secure: whether the connection is under TLS.
        closed: whether nothing more is read or sent.
        transport: what carries the protocol; empty for TCP, with or without TLS.
        written: bytes written to the transport.
    """

    __slots__ = (
        "_aborted", "_context", "_direct", "_handshake", "_handshaking", "_items", "_limits",
        "_login", "_next_turn", "_output", "_plain", "_rate_limiter", "_reading", "_registry",
        "_session", "_source", "_stall_timer", "_timer", "_tls_server", "_transport", "_unparsed",
        "closed", "secure", "written",
    )  # fmt: skip

    transport: ClassVar[str] = ""

    def __init__(
        self, context: ServerContext, tls_server: TlsServer, registry: Registry[S]
    ) -> None:
        self._context = context
        self._tls_server = tls_server
        self._registry = registry
        self._limits = context.settings.limits
        self._direct = False  # TLS begins with the first byte
        self._source = ""  # as `login_throttle.source_of` returns it
        self._transport: asyncio.Transport | None = None
        self._plain: asyncio.Transport | None = None  # beneath TLS
        self._output: list[bytes] = []
        self._reading = True
        self._handshaking = False  # nothing can be sent during the TLS handshake
        self._handshake: asyncio.Task[None] | None = None
        self._aborted = False  # the gateway ended the connection during the handshake
        self._login: Login | None = None
        self._session: S | None = None
        self._items: list[T] = []
        self._unparsed = b""
        self._next_turn: asyncio.Handle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None  # set while the peer does not read
        self._timer: asyncio.TimerHandle | None = None
        self._rate_limiter = ReadRateLimiter(context)
        self.secure = False
        self.closed = False
        self.written = 0

    # What a protocol adds

    @property
    def protocol_tags(self) -> dict[str, str]:
        """The tags by which the event log names the protocol; none for XMPP."""
        return {}

    def begin(self, login: Login) -> None:
        """Begin to log the peer in: on a new connection, and again after a TLS handshake."""

    @abstractmethod
    def parse(self, data: bytes | memoryview) -> Sequence[T]:
        """Return the items that end in this part of the input, at most `SLICE` bytes. An error of
        the peer is an item, too, and ends the connection when it is handled."""

    @abstractmethod
    def handle(self, item: T) -> bool:
        """Handle an item; return False if it has to wait. It is then handled again later."""

    @abstractmethod
    def end(self, reason: EndReason) -> None:
        """Send the reason to the peer, and `close`."""

    def is_waiting(self) -> bool:
        """Return whether the log-in waits for a result, so that no more input is handled."""
        return False

    def release_idle(self) -> None:
        """Free memory that is needed only while the peer sends."""

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection, or refuse it if there are too many."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101
        self._plain = transport
        self._use_transport(transport)
        set_keepalive(transport)
        peer = transport.get_extra_info("peername")
        self._source = login_throttle.source_of(peer[0] if peer else "")
        if not self._registry.add_connection(self, self._source, self._context.loop.time()):
            self._context.refusals.add("connections", source=self.peer)
            self.end(EndReason.CROWDED)
            return
        timeout = self._limits.authenticate_time
        self._timer = self._context.loop.call_later(timeout, self._on_login_timeout)
        if not self._direct:
            self._begin(None)

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return the buffer that all connections share: it is consumed before the next read."""
        return self._context.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Parse the received bytes, and handle the items in them."""
        if self.closed:
            return
        self._rate_limiter.count_bytes(nbytes)
        if self._unparsed:  # TLS may deliver data after reading was paused
            self._unparsed += self._context.buffer[:nbytes]
        elif nbytes > SLICE:
            self._unparsed = bytes(self._context.buffer[SLICE:nbytes])
            self._items += self.parse(self._context.buffer[:SLICE])
        else:
            self._items += self.parse(self._context.buffer[:nbytes])
        self._process()

    def eof_received(self) -> bool:
        """Close the transport, because the peer sends nothing more."""
        return False

    def pause_writing(self) -> None:
        """Stop reading, because the peer does not read; abort the connection if that lasts."""
        if self._transport is not None:
            self._stall_timer = self._context.loop.call_later(
                self._limits.stalled_time, self._transport.abort
            )
            self._update_reading()

    def resume_writing(self) -> None:
        """Read again, because the peer reads again."""
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        self._process()

    def connection_lost(self, _error: Exception | None) -> None:
        """Remove the connection; its session ends, or waits to be resumed on another connection."""
        if self._transport is None:
            return
        unlink(self._plain)
        self._transport = self._plain = None
        self._stop()
        for timer in (self._timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        self._registry.remove_connection(self)
        if (session := self._session) is not None:
            self._session = None
            session.lose_connection()

    # Input

    @property
    def peer(self) -> str:
        """The account's bare JID, or without a session the source address, for the event log."""
        return self._source if self._session is None else self._session.bare

    @property
    def address(self) -> str | None:
        """The IP address of the peer."""
        peer = None if self._transport is None else self._transport.get_extra_info("peername")
        return str(peer[0]) if peer else None

    @property
    def last_input(self) -> float:
        """The event loop's time of the last bytes from the peer."""
        return self._rate_limiter.last_input

    def resume_reading(self) -> None:
        """Process the waiting input and read again, unless something else prevents it."""
        if self._items or not self._reading:
            self._process()

    def _process(self) -> None:
        """Handle the input until it has to wait, or until it is other connections' turn."""
        items = self._items
        left = self._limits.session_units
        while (items or self._unparsed) and not self._must_wait():
            if not items:
                data, self._unparsed = self._unparsed[:SLICE], self._unparsed[SLICE:]
                items += self.parse(data)
                continue
            if left == 0:
                self._next_turn = self._context.loop.call_soon(self._take_turn)
                break
            left -= 1
            item = items.pop(0)
            if not self.handle(item):
                items.insert(0, item)
                break
        self._update_reading()

    def _take_turn(self) -> None:
        self._next_turn = None
        self._process()

    def _must_wait(self) -> bool:
        if (
            self.closed
            or self._stall_timer is not None
            or self._next_turn is not None
            or self._context.store.full
        ):
            return True
        session, limits = self._session, self._limits
        if session is None:
            return self._handshaking or self.is_waiting()
        return (
            session.in_flight >= limits.session_units
            or session.in_flight_bytes >= limits.session_bytes
            or session.offloading
        )

    def _update_reading(self) -> None:
        wanted = not (
            self._items or self._unparsed or self._must_wait() or self._rate_limiter.is_paused(self)
        )
        if self._transport is None or wanted is self._reading:
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # Log-in

    def _begin(self, certificate: PeerCertificate | None) -> None:
        self._login = Login(self._context, self._source, self.address, certificate)
        self.begin(self._login)

    def _bind(self, session: S) -> None:
        """Begin or resume a session; `Session.attach` must follow."""
        self._session = session
        self._login = None
        self._registry.mark_bound(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_login_timeout(self) -> None:
        self._context.refusals.add("authenticate_time", source=self.peer)
        self.end(EndReason.UNBOUND)

    # TLS

    def expect_direct_tls(self) -> None:
        """Wait for the client's first message, which begins TLS; send nothing before."""
        self._direct = self._handshaking = True

    def start_direct_tls(self, hello: Hello) -> None:
        """Begin direct TLS with the client's first message, which `ClientHelloReader` has read."""
        self._reading = False
        self._start_tls(hello)

    def _start_tls(self, hello: Hello | None = None) -> None:
        self._handshaking = True
        self._handshake = self._context.loop.create_task(self._do_handshake(hello))

    async def _do_handshake(self, hello: Hello | None) -> None:
        plain = self._transport
        if plain is None:
            return
        context, source, address = self._context, self._source, self.address

        def on_failure(rule: str, reason: str) -> None:
            if self._aborted:  # by the gateway, which has counted that
                return
            mechanism = CERTIFICATE if rule == "authentication" else ""
            tags = self.protocol_tags
            log_failure(
                context, rule, source, address, reason, mechanism=mechanism, protocol_tags=tags
            )

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
        self.secure = True
        self._begin(certificate)
        self._process()

    def _use_transport(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._reading = True
        size = self._limits.send_buffer
        transport.set_write_buffer_limits(high=size)
        set_send_buffer(transport, size)

    # Output

    def send(self, data: bytes) -> None:
        """Send in the next iteration of the event loop, together with other output."""
        if self.closed or not data:
            return
        if not self._output:
            self._context.schedule_flush(self)
        self._output.append(data)

    def flush(self) -> None:
        """Write the output now."""
        transport, output, session = self._transport, self._output, self._session
        if transport is None or not output:
            output.clear()
            return
        tracking = session if session is not None and session.tracking else None
        if tracking is not None:
            tracking.before_flush(output)
        data = b"".join(output)
        output.clear()
        self.written += len(data)
        transport.write(data)
        if tracking is not None:
            tracking.after_flush(self)

    def backlog(self) -> int:
        """Return the number of bytes in the transport's write buffers; 0 after
        `connection_lost`."""
        transport, plain = self._transport, self._plain
        if transport is None or plain is None:
            return 0
        waiting = transport.get_write_buffer_size()
        return waiting if plain is transport else waiting + plain.get_write_buffer_size()

    # The end

    def displace(self) -> None:
        """Close at once, because a newer connection takes its place."""
        self.end(EndReason.DISPLACED)
        if self._transport is not None:
            self._context.refusals.add("connections", source=self.peer)
            self._transport.abort()

    def detach(self, reason: EndReason) -> None:
        """Close without ending the session, which continues on another connection."""
        self._session = None
        self.end(reason)

    def _stop(self) -> None:
        self.closed = True
        self._rate_limiter.stop()
        self._items.clear()
        self._unparsed = b""
        if self._login is not None:
            self._login.stop()

    def close(self) -> None:
        """Write the output and close; the session ends."""
        session = self._session
        self._session = None
        self._stop()
        if session is not None:
            session.finish()
        transport = self._transport
        if transport is None:
            return
        if self._handshaking:
            self._output.clear()
            self._aborted = True
            transport.abort()
            return
        self.flush()
        transport.close()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._context.loop.call_later(tls.CLOSE_TIMEOUT, transport.abort)
