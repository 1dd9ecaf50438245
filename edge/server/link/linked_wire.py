"""A connection's wire in the core, if its socket is in a front process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from edge.server.link.batches import Batches
from edge.server.link.messages import (
    MAX_HELD,
    MAX_WAITING,
    MAX_WRITE,
    WINDOW,
    Abort,
    Close,
    Credit,
    LinkFault,
    Received,
    Release,
    Reset,
    Secured,
    SetLimit,
    StartTls,
    Write,
    cost,
)
from edge.server.tls import PeerCertificate
from edge.server.wire import Handler

ALLOWANCE: Final = 1024 * 1024
"""Bytes of a session's output that may be on their way to its front."""

Decode = Callable[[bytes], Sequence[Any]]


class LinkedWire:
    """The wire of one connection of a front.

    Args:
        number: the connection's number.
        decode: decodes the protocol's items; what it raises ends the link.
    """

    __slots__ = (
        "_awaited", "_decode", "_held", "_is_ahead", "_left", "_link", "_may_secure", "_number",
        "_owed", "_stalled_bytes", "_tls_begins", "_written", "address", "allowance", "closed",
        "direct", "handler", "pending", "stalled", "transport", "wanted",
    )  # fmt: skip

    __deletable__ = ("handler",)

    def __init__(
        self,
        link: Batches,
        number: int,
        decode: Decode,
        address: str | None,
        transport: str,
        *,
        direct: bool,
    ) -> None:
        self._link = link
        self._number = number
        self._decode = decode
        self._is_ahead = False
        self._held = 0  # encoded bytes of input that may wait
        self._owed = 0  # the cost of input for which the front has no new credit
        self._written = 0
        self._left = 0  # bytes that have left the write buffers
        self._awaited = 0  # the position of which the front reports that it has left them
        self._may_secure = True  # whether TLS can begin: it is the first input, or was allowed
        self._tls_begins = False  # `start_tls` was called; what came before it is ignored
        self._stalled_bytes = 0
        self.handler: Handler
        self.address = address
        self.allowance = ALLOWANCE
        self.closed = False
        self.direct = direct
        self.pending = False
        self.stalled = False
        self.transport = transport
        self.wanted = True

    # From the front

    def receive(self, message: Received) -> None:
        """Pass input on."""
        items: Sequence[Any] = ()
        if message.items:
            if self._owed > MAX_WAITING or self._held > MAX_HELD:
                raise LinkFault("it sends more than it may")
            try:
                items = self._decode(message.items)
            except Exception as error:
                raise LinkFault(f"its input cannot be read: {error}") from error
            self._held += len(message.items)
        self._owed += cost(message.size, len(items))
        if self.closed or self._tls_begins:
            return
        self.pending = message.pending
        if message.requests:
            self.handler.count_request(message.requests)
        if items:
            self._may_secure = False
            self.handler.receive(items, message.size)
        else:
            self.handler.count_bytes(message.size)

    def continue_secured(self, message: Secured) -> None:
        """Continue under TLS."""
        if not self._may_secure or message.direct is self._tls_begins:
            raise LinkFault("it begins TLS where that is not allowed")
        self._may_secure = self._tls_begins = False
        if self.closed:
            return
        self.direct = message.direct
        found = message.certificate
        certificate = None
        if found is not None:
            certificate = PeerCertificate(found.fingerprint, found.serial, found.begins, found.ends)
        self.handler.continue_secured(certificate)

    def stall(self, backlog: int) -> None:
        """Note that the peer does not read, or reads again."""
        self._stalled_bytes = backlog
        self.stalled = backlog > 0
        if self.closed:
            return
        if self.stalled:
            self.handler.stall()
        else:
            self.handler.resume_reading()

    def note_left(self, position: int) -> None:
        """Note how much has left the write buffers."""
        if self._left < position <= self._written:
            self._left = self._written if position >= self._awaited else position
        self.handler.note_left()

    def lose(self) -> None:
        """End, because the connection or its front is lost."""
        self.closed = True
        self.stalled = False
        self._written = self._left = self._awaited = self._stalled_bytes = 0
        handler = self.handler
        del self.handler  # so that both are freed without garbage collection
        handler.lose()

    # From the connection

    def want(self, wanted: bool) -> None:
        """Let the front pass on more input, or not yet."""
        self.wanted = wanted
        if wanted:
            self._held = 0
        if wanted and self._owed and (not self._is_ahead or self._owed >= WINDOW // 2):
            self._send(Credit(self._number, self._owed))
            self._owed = 0

    def allow_ahead(self) -> None:
        """Let the front pass on input before earlier input is handled."""
        if not self._is_ahead:
            self._is_ahead = True
            self._send(Credit(self._number, WINDOW + self._owed))
            self._owed = 0

    def set_limit(self, max_bytes: int) -> None:
        """Set the maximum bytes of an item."""
        self._send(SetLimit(self._number, max_bytes))

    def reset_parser(self) -> None:
        """Parse a new stream from now on."""
        self.pending = False
        self._send(Reset(self._number))

    def release(self) -> None:
        """Free memory that is needed only while the peer sends."""
        self._send(Release(self._number))

    def release_if_idle(self) -> None:
        """Do nothing: the front does this by itself."""

    def start_tls(self) -> None:
        """Begin TLS after what was written."""
        self.pending = False
        self._may_secure = self._tls_begins = True
        self._send(StartTls(self._number))

    def write(self, data: bytes, *, reports: bool) -> bool:
        """Write to the peer; return False if the connection is closed."""
        if self.closed:
            return False
        is_tracked = self._left < self._awaited
        self._written += len(data)
        if reports:
            self._awaited = self._written
        elif not is_tracked:
            self._left = self._written
        for at in range(0, len(data), MAX_WRITE):
            part = data if len(data) <= MAX_WRITE else data[at : at + MAX_WRITE]
            self._link.send(Write(self._number, part, reports))
        return True

    def backlog(self) -> int:
        """Return the number of bytes that have not left the write buffers, as far as known."""
        return max(self._written - self._left, self._stalled_bytes)

    def _send(self, message: Any) -> None:
        if not self.closed:
            self._link.send(message)

    # The end

    def close(self) -> None:
        """Close when the output is written."""
        self._send(Close(self._number))
        self.closed = True

    def abort(self) -> None:
        """Close at once, even if that has begun."""
        self._link.send(Abort(self._number))
        self.closed = True
