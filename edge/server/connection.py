"""A connection of any protocol: handling what its wire has parsed, log-in, limits, and output.

A protocol adds how input is handled (`Connection`). Until a session is bound, it logs the peer in;
after that, it passes the peer's requests to the session.

A connection wants no input while it must wait: for a result that the log-in needs, for the commit
of its own requests, for room in the store, for its peer to read, or for its rate limit. The server
relies on TCP keep-alive and sends nothing else to keep a connection alive.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from edge.engine.dispatch.outputs import EndReason
from edge.server import login_throttle
from edge.server.login import CERTIFICATE, Login, log_failure
from edge.server.rate_limit import ReadRateLimiter
from edge.server.registry import Registry
from edge.server.server_context import ServerContext
from edge.server.session import Session
from edge.server.tls import PeerCertificate
from edge.server.wire import Wire

T = TypeVar("T")
"""The type of the items that a protocol parses from its input."""

S = TypeVar("S", bound=Session[Any])


class Connection(ABC, Generic[T, S]):
    """A connection: handles the items that its wire has parsed, and writes.

    Attributes:
        secure: whether the connection is under TLS.
        closed: whether nothing more is read or sent.
        written: bytes written to the wire.
    """

    __slots__ = (
        "_context", "_items", "_limits", "_login", "_next_turn", "_output", "_rate_limiter",
        "_registry", "_session", "_source", "_timer", "_wire", "closed", "secure", "written",
    )  # fmt: skip

    def __init__(self, context: ServerContext, wire: Wire, registry: Registry[S]) -> None:
        self._context = context
        self._wire = wire
        self._registry = registry
        self._limits = context.settings.limits
        self._source = ""  # as `login_throttle.source_of` returns it
        self._output: list[bytes] = []
        self._login: Login | None = None
        self._session: S | None = None
        self._items: list[T] = []
        self._next_turn: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._rate_limiter = ReadRateLimiter(context)
        self.secure = False
        self.closed = False
        self.written = 0
        wire.handler = self

    # What a protocol adds

    @property
    def protocol_tags(self) -> dict[str, str]:
        """The tags by which the event log names the protocol; none for XMPP."""
        return {}

    def begin(self, login: Login) -> None:
        """Begin to log the peer in: on a new connection, and again after a TLS handshake."""

    @abstractmethod
    def handle(self, item: T) -> bool:
        """Handle an item; return False if it has to wait. It is then handled again later."""

    @abstractmethod
    def end(self, reason: EndReason) -> None:
        """Send the reason to the peer, and `close`."""

    def is_waiting(self) -> bool:
        """Return whether the log-in waits for a result, so that no more input is handled."""
        return False

    # Called by the wire

    def open(self) -> None:
        """Register the connection, or refuse it if there are too many."""
        self._source = login_throttle.source_of(self._wire.address or "")
        if not self._registry.add_connection(self, self._source, self._context.loop.time()):
            self._context.refusals.add("connections", source=self.peer)
            self.end(EndReason.CROWDED)
            return
        timeout = self._limits.authenticate_time
        self._timer = self._context.loop.call_later(timeout, self._on_login_timeout)
        if not self._wire.direct:
            self._begin(None)

    def receive(self, items: Sequence[T], size: int) -> None:
        """Handle the items that ended in `size` bytes of input."""
        self._rate_limiter.count_bytes(size)
        if not self.closed:
            self._items += items
            self._process()

    def count_bytes(self, size: int) -> None:
        """Count bytes of input that belong to no item."""
        self._rate_limiter.count_bytes(size)
        self._process()

    def count_request(self, number: int = 1) -> None:
        """Count requests to the wire itself."""
        self._rate_limiter.count_request(number)
        self._process()

    def refuse(self, rule: str) -> None:
        """Count that the wire has refused something to the peer by a rule."""
        self._context.refusals.add(rule, source=self.peer)

    def continue_secured(self, certificate: PeerCertificate | None) -> None:
        """Begin anew under TLS."""
        self.secure = True
        self._begin(certificate)
        self._process()

    def fail_tls(self, rule: str, reason: str) -> None:
        """Log that TLS has failed, by a rule and a reason (`TlsServer.handshake`)."""
        mechanism = CERTIFICATE if rule == "authentication" else ""
        log_failure(
            self._context,
            rule,
            self._source,
            self.address,
            reason,
            mechanism=mechanism,
            protocol_tags=self.protocol_tags,
        )

    def stall(self) -> None:
        """Want no input, because the peer does not read; `resume_reading` ends that."""
        self._wire.want(False)

    def note_left(self) -> None:
        """Record what has left the write buffers."""
        if (session := self._session) is not None and session.tracking:
            session.note_left(self)

    def resume_reading(self) -> None:
        """Process the waiting input and read again, unless something else prevents it."""
        if self._items or not self._wire.wanted:
            self._process()

    def lose(self) -> None:
        """Remove the connection; its session ends, or waits to be resumed on another connection."""
        self._stop()
        if self._timer is not None:
            self._timer.cancel()
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
        return self._wire.address

    @property
    def transport(self) -> str:
        """The carrier of the protocol; empty for TCP, with or without TLS."""
        return self._wire.transport

    @property
    def allowance(self) -> int:
        """Bytes that may be on their way to the write buffers."""
        return self._wire.allowance

    @property
    def last_input(self) -> float:
        """The event loop's time of the last bytes from the peer."""
        return self._rate_limiter.last_input

    def _process(self) -> None:
        """Handle the input until it has to wait, or until it is other connections' turn."""
        items = self._items
        left = self._limits.session_units
        while items and not self._must_wait():
            if left == 0:
                self._next_turn = self._context.loop.call_soon(self._take_turn)
                break
            left -= 1
            item = items.pop(0)
            if not self.handle(item):
                items.insert(0, item)
                break
        self._wire.want(not (items or self._must_wait() or self._rate_limiter.is_paused(self)))

    def _take_turn(self) -> None:
        self._next_turn = None
        self._process()

    def _must_wait(self) -> bool:
        if (
            self.closed
            or self._wire.stalled
            or self._next_turn is not None
            or self._context.store.full
        ):
            return True
        session, limits = self._session, self._limits
        if session is None:
            return self.is_waiting()
        return (
            session.in_flight >= limits.session_units
            or session.in_flight_bytes >= limits.session_bytes
            or session.offloading
        )

    def release_idle(self) -> None:
        """Free memory that is needed only while the peer sends."""
        self._wire.release_if_idle()

    # Log-in

    def _begin(self, certificate: PeerCertificate | None) -> None:
        self._login = Login(self._context, self._source, self.address, certificate)
        self.begin(self._login)

    def _bind(self, session: S) -> None:
        """Begin or resume a session; `Session.attach` must follow."""
        self._session = session
        self._login = None
        self._wire.allow_ahead()
        self._registry.mark_bound(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_login_timeout(self) -> None:
        self._context.refusals.add("authenticate_time", source=self.peer)
        self.end(EndReason.UNBOUND)

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
        output, session = self._output, self._session
        if not output:
            return
        tracking = session if session is not None and session.tracking else None
        if tracking is not None:
            tracking.before_flush(output)
        data = b"".join(output)
        output.clear()
        if self._wire.write(data, reports=tracking is not None and tracking.awaits_sending):
            self.written += len(data)
            if tracking is not None:
                tracking.after_flush(self)

    def backlog(self) -> int:
        """Return the number of bytes in the wire's write buffers."""
        return self._wire.backlog()

    # The end

    def displace(self) -> None:
        """Close at once, because a newer connection takes its place."""
        self.end(EndReason.DISPLACED)
        self._context.refusals.add("connections", source=self.peer)
        self._wire.abort()

    def detach(self, reason: EndReason) -> None:
        """Close without ending the session, which continues on another connection."""
        self._session = None
        self.end(reason)

    def _stop(self) -> None:
        self.closed = True
        self._rate_limiter.stop()
        self._items.clear()
        if self._login is not None:
            self._login.stop()

    def close(self) -> None:
        """Write the output and close; the session ends."""
        session = self._session
        self._session = None
        self._stop()
        if session is not None:
            session.finish()
        self.flush()
        if self._timer is not None:
            self._timer.cancel()
        self._wire.close()
