"""A device's connection: TLS, parsing of the input in order, and writing of the output.

Until a session is bound, the connection carries out the actions of the stream negotiation; after
that it passes stanzas to the session.

It does not read while it must wait: for a result that the negotiation needs, for the commit of its
own stanzas, for room in the store, for its peer to read, or for its rate limit. TCP's flow control
then slows the peer down. White space that keeps a connection alive is accepted; the server relies
on TCP keep-alive and sends none.
"""

from __future__ import annotations

import asyncio
from typing import Final

from edge.server import login_throttle, tls
from edge.server.login import Login, log_failure
from edge.server.rate_limit import ReadRateLimiter
from edge.server.registry import Registry
from edge.server.server_context import ServerContext
from edge.server.session import Session
from edge.server.tcp_options import set_keepalive, set_send_buffer
from edge.server.tls import PeerCertificate, TlsServer
from edge.xmpp.errors import StreamError
from edge.xmpp.parser import ParseError, StreamParser
from edge.xmpp.stanza import STANZA_NAMES, Item, Stanza
from edge.xmpp.stream import actions, management, sasl
from edge.xmpp.stream.actions import Action
from edge.xmpp.stream.negotiation import Negotiation

SLICE: Final = 4096
"""Maximum bytes that are parsed at once, because parsed stanzas need up to 80 times as much
memory."""

OUT_OF_ORDER: Final = frozenset((management.REQUEST, management.ACK))
"""The elements, other than stanzas, that are handled while stanzas are in flight; all others wait
for the answers to these stanzas."""


class Connection(asyncio.BufferedProtocol):
    """A connection: parses its input, negotiates or passes stanzas to its session, and writes.

    Attributes:
        closed: whether nothing more is read or sent.
        written: bytes written to the transport.
    """

    def __init__(self, context: ServerContext, tls_server: TlsServer, registry: Registry) -> None:
        limits = context.settings.limits
        self._context = context
        self._tls_server = tls_server
        self._registry = registry
        self._limits = limits
        self._direct = False  # TLS begins with the first byte (XEP-0368)
        self._source = ""  # as `login_throttle.source_of` returns it
        self._transport: asyncio.Transport | None = None
        self._plain: asyncio.Transport | None = None  # beneath TLS
        self._output: list[bytes] = []
        self._reading = True
        self._handshaking = False  # nothing can be sent during the TLS handshake
        self._handshake: asyncio.Task[None] | None = None
        self._aborted = False  # the gateway ended the connection during the handshake
        self._parser = StreamParser(
            limits.stranger_stanza_bytes,
            limits.stanza_depth,
            limits.stanza_elements,
            limits.stanza_attributes,
            envelopes=context.envelopes,
        )
        self._negotiation = self._new_negotiation()
        self._login: Login | None = None
        self._session: Session | None = None
        self._items: list[Item | StreamError] = []
        self._unparsed = b""
        self._next_turn: asyncio.Handle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None  # set while the peer does not read
        self._timer: asyncio.TimerHandle | None = None
        self._rate_limiter = ReadRateLimiter(context, lambda: self.peer, self._process)
        self.closed = False
        self.written = 0

    def _new_negotiation(self, *, certificate: bool = False) -> Negotiation:
        settings, limits = self._context.settings, self._limits
        return Negotiation(
            settings.gateway.domain,
            require_tls=settings.xmpp.require_tls,
            secure=self._direct,
            certificate=certificate,
            limits=(limits.stranger_stanza_bytes, limits.stanza_bytes),
            features=self._context.router.stream_features,
        )

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
            self.end("resource-constraint", "too many unauthenticated connections")
            return
        timeout = self._limits.authenticate_time
        self._timer = self._context.loop.call_later(timeout, self._on_login_timeout)
        if not self._direct:
            self._login = self._new_login()

    def _new_login(self, certificate: PeerCertificate | None = None) -> Login:
        return Login(
            self._context,
            self._registry,
            self,
            self._negotiation,
            self._source,
            self.address,
            certificate,
        )

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return the buffer that all connections share: it is consumed before the next read."""
        return self._context.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Parse the received bytes, and process the stanzas and other stream items in them."""
        if self.closed:
            return
        self._rate_limiter.count_bytes(nbytes)
        if self._unparsed:  # TLS may deliver data after reading was paused
            self._unparsed += self._context.buffer[:nbytes]
        elif nbytes > SLICE:
            self._unparsed = bytes(self._context.buffer[SLICE:nbytes])
            self._parse(self._context.buffer[:SLICE])
        else:
            self._parse(self._context.buffer[:nbytes])
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
        self._transport = self._plain = None
        self._stop()
        self._parser.close()
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

    @property
    def has_more(self) -> bool:
        """Return whether the peer has sent more than was handled."""
        return bool(self._items or self._unparsed or self._parser.pending)

    def resume_reading(self) -> None:
        """Process the waiting input and read again, unless something else prevents it."""
        if self._items or not self._reading:
            self._process()

    def _parse(self, data: bytes | memoryview) -> None:
        try:
            self._items += self._parser.feed(data)
        except ParseError as error:
            self._unparsed = b""
            self._items += error.items
            self._items.append(error)

    def _process(self) -> None:
        """Handle the input until it has to wait, or until it is other connections' turn."""
        items = self._items
        left = self._limits.session_units
        while (items or self._unparsed) and not self._must_wait():
            if not items:
                data, self._unparsed = self._unparsed[:SLICE], self._unparsed[SLICE:]
                self._parse(data)
                continue
            if left == 0:
                self._next_turn = self._context.loop.call_soon(self._take_turn)
                break
            left -= 1
            session = self._session
            if session is None:
                self._negotiate(items.pop(0))
                continue
            item = items[0]
            if isinstance(item, Stanza) and item.name in STANZA_NAMES:
                if self._rate_limiter.is_paused():
                    break
                sender = item.attrs.get("from")
                if sender is None or session.is_own_address(sender):
                    items.pop(0)
                    self._rate_limiter.count_stanza()
                    session.handle(item)
                else:
                    items[0] = StreamError("invalid-from")
            elif session.in_flight and not (isinstance(item, Stanza) and item.name in OUT_OF_ORDER):
                break  # the end of the stream comes after the answers to earlier stanzas
            else:
                self._negotiate(items.pop(0))
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
            return self._handshaking or self._negotiation.waiting
        return (
            session.in_flight >= limits.session_units
            or session.in_flight_bytes >= limits.session_bytes
            or session.offloading
        )

    def _update_reading(self) -> None:
        wanted = not (
            self._items or self._unparsed or self._must_wait() or self._rate_limiter.is_paused()
        )
        if self._transport is None or wanted is self._reading:
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # Negotiation

    def _negotiate(self, item: Item | StreamError) -> None:
        if self._login is not None:
            self._login.note_input()
        if isinstance(item, StreamError):
            self._context.refusals.add(item.condition, source=self.peer)
            self.fail(item)
        else:
            self._perform(self._negotiation.receive(item, more=self.has_more))

    def continue_with(self, wanted: list[Action]) -> None:
        """Carry out actions of the negotiation, then handle the input that waited for them."""
        self._perform(wanted)
        self._process()

    def _perform(self, wanted: list[Action]) -> None:
        for action in wanted:
            match action:
                case actions.Send(data):
                    self.send(data)
                case actions.RestartStream():
                    self._parser.reset()
                case actions.StartTls():
                    self._parser.reset()
                    self.flush()
                    self._start_tls()
                case actions.Close():
                    self._close()
                case actions.Route(stanza) if self._session is not None:
                    self._session.handle(stanza)
                case actions.ManageStream(item) if self._session is not None:
                    self._manage_stream(self._session, item)
                case _ if self._login is not None:
                    self._login.perform(action)

    def _manage_stream(self, session: Session, item: Stanza) -> None:
        try:
            session.handle_management(item)
        except StreamError as error:
            self._negotiate(error)

    def accept_large_stanzas(self) -> None:
        """Raise the limit on the size of stanzas, because the peer is authenticated."""
        self._parser.set_limit(self._limits.stanza_bytes)

    def release_idle(self) -> None:
        """Free memory that is needed only while the peer sends."""
        self._parser.release_if_idle()

    def start_session(self, session: Session, wanted: list[Action]) -> None:
        """Carry out the negotiation's actions `wanted`, then begin or resume a session."""
        self._session = session
        self._login = None
        self._registry.mark_bound(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._perform(wanted)
        session.attach(self)
        self._process()
        self._parser.release()  # most devices send little

    def _on_login_timeout(self) -> None:
        self._context.refusals.add("authenticate_time", source=self.peer)
        self.end("connection-timeout", "no session was bound in time")

    # TLS

    def expect_direct_tls(self) -> None:
        """Wait for the client's first message, which begins TLS; send nothing before."""
        self._direct = self._handshaking = True
        self._login = None

    def start_direct_tls(self, hello: bytes) -> None:
        """Begin direct TLS with the client's first message, which `ClientHelloReader` has read."""
        self._reading = False
        self._start_tls(hello)

    def _start_tls(self, hello: bytes | None = None) -> None:
        self._handshaking = True
        self._handshake = self._context.loop.create_task(self._do_handshake(hello))

    async def _do_handshake(self, hello: bytes | None) -> None:
        plain = self._transport
        if plain is None:
            return
        context, source, address = self._context, self._source, self.address

        def on_failure(rule: str, reason: str) -> None:
            if self._aborted:  # by the gateway, which has counted that
                return
            mechanism = sasl.EXTERNAL if rule == "authentication" else ""
            log_failure(context, rule, source, address, reason, mechanism=mechanism)

        transport = await self._tls_server.handshake(self, plain, hello, on_failure)
        if transport is None or self._transport is None:
            plain.abort()
            self.connection_lost(None)  # asyncio does not call it during a handshake
            return
        self._handshaking = False
        self._handshake = None
        self._use_transport(transport)
        try:
            peer_certificate = tls.peer_certificate(transport)
        except ValueError:
            on_failure("tls", "the peer began to renegotiate")
            transport.abort()
            return
        certificate = peer_certificate is not None
        wanted: list[Action] = []
        if self._direct:
            self._negotiation = self._new_negotiation(certificate=certificate)
        else:
            wanted = self._negotiation.tls_established(certificate=certificate)
        self._login = self._new_login(peer_certificate)
        self.continue_with(wanted)

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

    def end(self, condition: str, text: str = "") -> None:
        """Send a stream error and close."""
        self.fail(StreamError(condition, text))

    def displace(self) -> None:
        """Send a stream error and close at once, because a newer connection takes its place."""
        self.end("resource-constraint", "replaced by a newer connection")
        if self._transport is not None:
            self._context.refusals.add("connections", source=self.peer)
            self._transport.abort()

    def fail(self, error: StreamError) -> None:
        """Send a stream error and close."""
        self._items.clear()
        self._unparsed = b""
        if self._session is not None:
            self._session.set_end_reason(error.condition)
        # nothing can be sent during a handshake
        self._perform([actions.Close()] if self._handshaking else self._negotiation.fail(error))

    def detach(self, condition: str, text: str) -> None:
        """Close without ending the session, which continues on another connection."""
        self._session = None
        self.end(condition, text)

    def _stop(self) -> None:
        self.closed = True
        self._rate_limiter.stop()
        self._items.clear()
        self._unparsed = b""
        if self._login is not None:
            self._login.stop()

    def _close(self) -> None:
        session = self._session
        self._session = None
        self._stop()
        if session is not None:
            session.finish()
        transport = self._transport
        if transport is None:
            return
        self.flush()
        if self._handshaking:
            self._aborted = True
            transport.abort()
            return
        transport.close()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._context.loop.call_later(tls.CLOSE_TIMEOUT, transport.abort)
