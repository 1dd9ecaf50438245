"""The handler of a wire in a front process: it stands for the connection in the core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from edge.server.link.batches import Batches
from edge.server.link.messages import (
    MAX_REQUESTS,
    WINDOW,
    Certificate,
    Left,
    Lost,
    Opened,
    Received,
    Refused,
    Secured,
    Stalled,
    TlsFailed,
    cost,
)
from edge.server.tls import PeerCertificate
from edge.server.wire import SLICE, SocketWire

REPORT_TIME: Final = 1.0
"""Seconds after which input that is no complete item is reported, for the keep-alive."""

Encode = Callable[[Sequence[Any]], bytes]


class LinkedHandler:
    """Passes a wire's input to the core, within the credit that the core has given, and what the
    core sends to the wire.

    Args:
        number: the connection's number.
        listener: the place of its listener in `Begin.listening`.
        encode: encodes the protocol's items.
        note_bound: is called with the number when the connection has a session, or later again.
        forget: is called with the number when the connection is lost.
    """

    __slots__ = (
        "_credit", "_encode", "_forget", "_is_paused", "_link", "_listener", "_note_bound",
        "_number", "_reported_at", "_requests", "_time", "_unreported", "_written",
        "is_reporting", "wire",
    )  # fmt: skip

    def __init__(
        self,
        link: Batches,
        wire: SocketWire,
        number: int,
        listener: int,
        encode: Encode,
        time: Callable[[], float],
        note_bound: Callable[[int], None],
        forget: Callable[[int], None],
    ) -> None:
        self._link = link
        self._number = number
        self._listener = listener
        self._encode = encode
        self._time = time
        self._note_bound = note_bound
        self._forget = forget
        self._credit = 1
        self._is_paused = False
        self._unreported = 0  # bytes of input
        self._requests = 0
        self._reported_at = time()
        self._written = 0
        self.is_reporting = False  # whether the core waits for `Left`
        self.wire = wire
        wire.handler = self

    # Called by the wire

    def open(self) -> None:
        """Report that the peer has connected."""
        wire = self.wire
        self._link.send(Opened(self._number, self._listener, wire.address, wire.direct))

    def receive(self, items: Sequence[Any], size: int) -> None:
        """Pass on the items that ended in `size` bytes of input. Bytes of an incomplete item are
        reported when they are `SLICE` bytes, or after `REPORT_TIME`."""
        self._unreported += size
        if items or self._is_report_due():
            self._report(items)

    def count_bytes(self, size: int) -> None:
        """Count bytes of input that belong to no item."""
        self._unreported += size
        if self._is_report_due():
            self._report(())

    def count_request(self, number: int = 1) -> None:
        """Count requests to the wire itself."""
        self._requests += number
        if self._is_report_due():
            self._report(())

    def _is_report_due(self) -> bool:
        due = self._unreported >= SLICE or self._requests >= MAX_REQUESTS
        return due or self._time() - self._reported_at > REPORT_TIME

    def _report(self, items: Sequence[Any]) -> None:
        size, requests = self._unreported, self._requests
        self._unreported = self._requests = 0
        self._reported_at = self._time()
        data = self._encode(items) if items else b""
        self._link.send(Received(self._number, data, size, self.wire.pending, requests))
        self._credit -= cost(size, len(items))
        self.wire.want(self._credit > 0 and not self._is_paused)

    def refuse(self, rule: str) -> None:
        """Report that the wire has refused something to the peer by a rule."""
        self._link.send(Refused(self._number, rule))

    def continue_secured(self, certificate: PeerCertificate | None) -> None:
        """Report that the connection is under TLS."""
        found = None if certificate is None else Certificate(*certificate)
        self._link.send(Secured(self._number, found, self.wire.direct))

    def fail_tls(self, rule: str, reason: str) -> None:
        """Report that TLS has failed."""
        self._link.send(TlsFailed(self._number, rule, reason))

    def stall(self) -> None:
        """Report that the peer does not read."""
        self._link.send(Stalled(self._number, self.wire.backlog()))

    def resume_reading(self) -> None:
        """Report that the peer reads again."""
        self._link.send(Stalled(self._number, 0))
        self.report_left()

    def note_left(self) -> None:
        """Do nothing: only a wire that is linked itself calls this."""

    def lose(self) -> None:
        """Report that the connection is lost."""
        self._link.send(Lost(self._number))
        self._forget(self._number)

    # Called for the core

    def add_credit(self, size: int) -> None:
        """Let the wire pass on more input; that of a session may come ahead."""
        if size >= WINDOW:
            self._note_bound(self._number)
        self._credit += size
        self.wire.want(self._credit > 0 and not self._is_paused)

    def pause(self, is_paused: bool) -> None:
        """Pass on no input while the core does not read."""
        self._is_paused = is_paused
        self.wire.want(self._credit > 0 and not is_paused)

    def write(self, data: bytes, *, reports: bool) -> None:
        """Write to the peer; tell the core when that has left the write buffers, if it asks."""
        self._written += len(data)
        self.wire.write(data)
        if reports:
            self.is_reporting = True
            self.report_left()

    def report_left(self) -> None:
        """Report how much has left the write buffers, if the core waits for that."""
        if self.is_reporting:
            backlog = self.wire.backlog()
            self.is_reporting = backlog > 0
            left = max(self._written - backlog, 0)  # under TLS the backlog has more bytes than that
            self._link.send(Left(self._number, left))
