"""A session of any protocol: its requests in flight, the messages that it is sent, and its end.

Requests of the peer become units of work, whose answers are sent in order. Messages are encoded by
the session's protocol, and kept until they have left the write buffers, within limits. A message of
another account that does not fit is returned (`overflow`), and the session continues, so that no
session can end another. If the gateway's own messages exceed a limit, the session is ended, because
a dropped message would be lost. Messages that are stored in the database always fit, because the
outbox limits them.

When a session ends, its undelivered messages go back to the store (`session_teardown`).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Final, Generic, Protocol, TypeVar

from edge.engine.dispatch.encoding import source_of
from edge.engine.dispatch.hooks import OffloadedWork, PartedWork, Work
from edge.engine.dispatch.outputs import EndReason
from edge.engine.rules import access
from edge.engine.rules.quota import Usage
from edge.engine.rules.send_share import SendShares
from edge.engine.sessions.sessions import sender as find_sender
from edge.engine.store.database import AWAITS_ANSWER, Receipt, SentMessage, Transaction
from edge.engine.store.group_commit import Unit
from edge.errors import StoreError
from edge.server.overflow import Overflow
from edge.server.server_context import ServerContext
from edge.server.session_teardown import SessionTeardown
from edge.server.write_tracker import STANZA_OVERHEAD, Token, Unstored, WriteTracker

R = TypeVar("R")

OWN_BACKLOG: Final = 4
"""A session ends if the gateway's own messages in its buffers exceed this multiple of
`limits.send_buffer`. Answers to requests do not count: the gateway reads no further requests while
`limits.send_buffer` bytes are unsent."""


class SessionConnection(Protocol):
    """The methods of a connection that its session calls."""

    closed: bool
    written: int

    @property
    def allowance(self) -> int:
        """Bytes that may be on their way to the write buffers."""

    @property
    def transport(self) -> str:
        """The carrier of the protocol; empty for TCP, with or without TLS."""

    @property
    def address(self) -> str | None:
        """The IP address of the peer."""

    @property
    def last_input(self) -> float:
        """The event loop's time of the last bytes from the peer."""

    def backlog(self) -> int:
        """Return the bytes in the write buffers."""

    def send(self, data: bytes) -> None:
        """Send in the next iteration of the event loop."""

    def flush(self) -> None:
        """Write the output now."""

    def end(self, reason: EndReason) -> None:
        """Send the reason to the peer, and close."""

    def detach(self, reason: EndReason) -> None:
        """Close the connection without ending the session."""

    def resume_reading(self) -> None:
        """Resume reading after a pause, unless there is another reason to pause."""


class SessionRegistry(Protocol):
    """The methods of the registry (`registry.Registry`) that a session calls."""

    def remove_session(self, generation: int) -> None:
        """Remove the session."""


class Session(ABC, Generic[R]):
    """A session, whose requests have the type `R`. A protocol adds how requests become work.

    Args:
        generation: the session's number in the store.
        account: the account's local part.
        source: its source address, for the limits, as `login_throttle.source_of` returns it.

    Attributes:
        acknowledges: whether the peer acknowledges what it is sent; it is kept until then (`keep`).
        protocol: the name of its protocol; each subclass sets it.
        connection: its connection, or None if it has none.
        in_flight: number of received requests whose units of work are not committed.
        in_flight_bytes: bytes of these requests.
        offloading: whether a request's work is being prepared outside of the event loop, or run in
            parts; no other request is handled until that is done.
        since: the event loop's time at which it was created.
        unacknowledged_bytes: its part of `ServerContext.unacknowledged_bytes`.
        tracking: whether its connection must call `before_flush` and `after_flush`.
        ended_by: the reason for which the gateway has ended it, if that is so.
    """

    protocol: ClassVar[str]

    __slots__ = (
        "_confirmations", "_context", "_end_name", "_overflow", "_registry", "_sent_at",
        "_sent_position", "_shares", "_teardown", "_writes", "account", "acknowledges", "bare",
        "connection", "ended", "ended_by", "full", "generation", "in_flight", "in_flight_bytes",
        "offloading", "since", "source", "tracking", "unacknowledged_bytes",
    )  # fmt: skip

    def __init__(
        self,
        context: ServerContext,
        registry: SessionRegistry,
        generation: int,
        account: str,
        full: str,
        source: str,
    ) -> None:
        limits = context.settings.limits
        self._context = context
        self._registry = registry
        self.generation = generation
        self.account = account
        self.full = full
        self.bare = full.partition("/")[0]
        self.source = source
        self.since = context.loop.time()
        self.connection: SessionConnection | None = None
        self.ended = False
        self.ended_by: EndReason | None = None
        self.in_flight = 0
        self.in_flight_bytes = 0
        self.offloading = False
        self.unacknowledged_bytes = 0
        self.tracking = False
        self.acknowledges = False
        self._writes = WriteTracker()
        self._shares = SendShares(Usage(limits.unacknowledged_stanzas, limits.unacknowledged_bytes))
        self._overflow: Overflow | None = None  # created when a message does not fit
        self._confirmations: list[Receipt] = []  # that the store could not record yet
        self._sent_position = -1  # end of what has left the write buffers, in bytes,
        self._sent_at = 0.0  # and since when
        self._end_name = ""
        self._teardown: SessionTeardown | None = None

    # What a protocol adds

    @abstractmethod
    def handle(self, request: R) -> None:
        """Handle a request: `submit` its work, or answer it `in_order`."""

    @abstractmethod
    def refusal(self, request: R, error: StoreError) -> bytes:
        """Return the answer to a request whose unit of work has failed."""

    @abstractmethod
    def encode(self, message: SentMessage) -> bytes:
        """Return the bytes of a message, or empty bytes if the protocol has none for its type."""

    def keep(self, data: bytes, token: Token) -> bool:
        """Keep what is sent until the peer acknowledges it, if it does; return False if that ended
        the session."""
        return not self.ended

    def end_name(self, reason: EndReason) -> str:
        """Return the name of a reason in the event log."""
        return reason.name.lower()

    # Receiving

    def submit(self, request: R, work: Work | OffloadedWork | PartedWork, size: int) -> None:
        """Run the work of a request of `size` bytes, and send its answer after the commit."""
        self.in_flight += 1
        self.in_flight_bytes += size
        if isinstance(work, OffloadedWork):
            self._offload(request, work, size)
        elif isinstance(work, PartedWork):
            self._run_parts(request, work, size)
        else:
            self._context.store.enqueue(_RequestUnit(self, request, work, size))

    def _offload(self, request: R, work: OffloadedWork, size: int) -> None:
        self.offloading = True

        def complete(outcome: bytes | EndReason | StoreError) -> None:
            self.offloading = False
            self.complete(request, size, outcome)

        def submit(done: asyncio.Future[Work]) -> None:
            error = None if done.cancelled() else done.exception()
            if error is not None or done.cancelled():
                complete(StoreError(f"offloaded work failed: {error!r}"))
            else:
                unit = _RequestUnit(self, request, done.result(), size)
                self._context.store.submit(unit.run, complete, size, heavy=True)

        context = self._context
        context.loop.run_in_executor(context.hashing, work.prepare).add_done_callback(submit)

    def _run_parts(self, request: R, work: PartedWork, size: int) -> None:
        self.offloading = True
        results: list[bytes] = []

        def submit() -> None:
            unit = _RequestUnit(self, request, work.parts[len(results)], size)
            self._context.store.submit(unit.run, take, size, turn=turn)

        def turn() -> str:
            return "" if self.ended else self.bare

        def take(outcome: bytes | EndReason | StoreError) -> None:
            if isinstance(outcome, bytes) and outcome:  # the session exists
                results.append(outcome)
                if len(results) < len(work.parts):
                    submit()
                    return
                outcome = work.answer(results)
            self.offloading = False
            self.complete(request, size, outcome)

        submit()

    def complete(self, request: R, size: int, outcome: bytes | EndReason | StoreError) -> None:
        """Answer a request with the outcome of its unit of work."""
        self.in_flight -= 1
        self.in_flight_bytes -= size
        if isinstance(outcome, bytes):
            self.answer(outcome)
        elif isinstance(outcome, StoreError):
            self._context.refusals.add_store_error(outcome, source=self.bare)
            self.answer(self.refusal(request, outcome))
        else:
            self.end(outcome)
        self._continue()

    def in_order(self, act: Callable[[], None]) -> None:
        """Call `act` after the answers to the requests in flight."""
        if self.in_flight == 0:
            act()
            return

        def answer(_outcome: object) -> None:
            self.in_flight -= 1
            act()
            self._continue()

        self.in_flight += 1
        self._context.store.submit(lambda _tx: None, answer)

    def _continue(self) -> None:
        if self.connection is not None:
            self.connection.resume_reading()

    # Sending

    def answer(self, answer: bytes) -> None:
        """Send the answer to a request of the peer, perhaps empty; it is handled now."""
        if answer:
            self._write(answer)

    def deliver(self, message: SentMessage, receipt: Receipt | None) -> None:
        """Send a unit of work's message to the session, unless its protocol has no encoder for it;
        a stored one then counts as delivered.

        If it comes from another account and there is no room, pass it to the overflow. `receipt`
        names the row that stores it, if any.
        """
        if self.ended:
            if receipt is None and self._teardown is not None:
                self._teardown.add(message)
            return
        data = self.encode(message)
        if not data:
            if receipt is not None:
                self._confirm([receipt])  # it is not sent, now or later
            return
        if receipt is not None:
            self._send(data, receipt)
            return
        unstored = Unstored(message, source_of(message), len(data))
        if not unstored.source:
            self._send(data, unstored)
        elif self._has_room(unstored):
            self._shares.add(unstored.source, unstored.size)
            self._send(data, unstored)
        else:
            if self._overflow is None:
                self._overflow = Overflow(self._context, self)
            self._overflow.add(message, unstored.size)

    def _has_room(self, unstored: Unstored) -> bool:
        """Return whether another account's message fits and overtakes none in the overflow."""
        message, sender, size = unstored
        if self._overflow is not None and self._overflow.holds_predecessor(message):
            return False
        if self.acknowledges:
            fits = self._shares.has_room(sender, size)
            return fits and self._context.may_relay(size + STANZA_OVERHEAD)
        if not self._shares.has_room(sender, size) and self.connection is not None:
            self.connection.flush()  # removes what has left the write buffers
        return self._shares.has_room(sender, size)

    def _send(self, data: bytes, token: Token) -> None:
        if not self.acknowledges:
            self.tracking = True
            self._writes.add(data, token)
            self._write(data)
            self._check_own_backlog()
        elif self.keep(data, token):
            self._write(data)

    def _check_own_backlog(self) -> None:
        """End the session if too many of the gateway's own messages are unsent after a flush."""
        limit = OWN_BACKLOG * self._context.settings.limits.send_buffer
        if self.connection is not None:
            limit += self.connection.allowance
        if self._writes.own_bytes > limit and self.connection is not None:
            self.connection.flush()
            if self._writes.own_bytes > limit:
                self._context.refusals.add("send_buffer", source=self.bare)
                self.end(EndReason.UNREAD)

    def _write(self, data: bytes) -> None:
        if self.connection is not None:
            self.connection.send(data)

    def count_unacknowledged(self, size: int) -> None:
        """Add `size` to the unacknowledged bytes of the session, and to those of all sessions."""
        if not self.ended:  # the whole count was removed at the end
            self.unacknowledged_bytes += size
            self._context.unacknowledged_bytes += size

    @property
    def unacknowledged_stanzas(self) -> int:
        """Number of unacknowledged messages, without relayed and stored ones."""
        return 0

    @property
    def all_unacknowledged_stanzas(self) -> int | None:
        """Number of all unacknowledged messages, also of those relayed or stored; `None` if the
        outbox alone has it."""
        return None

    @property
    def version(self) -> str:
        """The version of its protocol, if that has several."""
        return ""

    @property
    def last_input(self) -> float | None:
        """The event loop's time at which the peer last sent something, or lost its connection; None
        before the session is bound."""
        return None if self.connection is None else self.connection.last_input

    @property
    def buffered_bytes(self) -> int:
        """Bytes in the connection's write buffers."""
        return 0 if self.connection is None else self.connection.backlog()

    # Delivery of sent messages

    @property
    def awaits_sending(self) -> bool:
        """Whether messages wait until they have left the write buffers."""
        return bool(self._writes.bytes)

    def before_flush(self, output: list[bytes]) -> None:
        """Add what is due to the connection's output, which is about to be written."""

    def after_flush(self, connection: SessionConnection) -> None:
        """Record that the connection has written its output."""
        self._writes.mark_flushed(connection.written)
        self._remove_sent(connection)

    def note_left(self, connection: SessionConnection) -> None:
        """Record that some of what the connection has written has left its write buffers."""
        self._remove_sent(connection)

    def check_peer(self) -> bool:
        """Check that the peer reads; record deliveries that the store failed to record before.
        Return whether another check is needed."""
        if self.ended:
            return False
        if self._confirmations:
            receipts, self._confirmations = self._confirmations, []
            self._confirm(receipts)
        if self.connection is not None and self._writes.bytes:
            self._remove_sent(self.connection)
            self._check_progress(self.connection)
        return bool(self._writes.bytes or self._confirmations)

    def _check_progress(self, connection: SessionConnection) -> None:
        """End the session if no message leaves the write buffers for too long."""
        now, position = self._context.loop.time(), connection.written - connection.backlog()
        if not self._writes.bytes:
            self._sent_position = -1
        elif position != self._sent_position:
            self._sent_position, self._sent_at = position, now
        elif now - self._sent_at > self._context.settings.limits.stalled_time:
            self.end(EndReason.STALLED)

    def _remove_sent(self, connection: SessionConnection) -> None:
        tokens = self._writes.remove_sent(connection.written - connection.backlog())
        if tokens:
            self._handle_delivered(tokens)
        if self._writes.bytes:
            self._context.schedule_check(self)
        else:
            self.tracking = self.acknowledges

    def _handle_delivered(self, tokens: list[Token]) -> None:
        """Record that the messages with these tokens were delivered; send the messages that the
        overflow keeps, as far as there is room now."""
        receipts = []
        for token in tokens:
            if isinstance(token, Receipt):
                receipts.append(token)
            elif token is not None and token.source:
                self._shares.remove(token.source, token.size)
        self._confirm(receipts)
        if self._overflow is not None:
            self._overflow.send_kept()

    def _confirm(self, receipts: list[Receipt]) -> None:
        """Record in the store that stored messages were delivered; retry later if that fails."""

        def answer(outcome: StoreError | None) -> None:
            if outcome is not None:
                self._confirmations += receipts
                self._context.schedule_check(self)

        receipts = [receipt for receipt in receipts if receipt is not AWAITS_ANSWER]
        if receipts:
            confirm, generation = self._context.lifecycle.acknowledge, self.generation
            self._context.store.submit(lambda tx: confirm(tx, generation, receipts), answer)

    # Lifecycle

    def attach(self, connection: SessionConnection) -> None:
        """Begin or continue on a connection."""
        self.connection = connection
        self._context.admission.mark_attached(self)

    def lose_connection(self) -> None:
        """End, because the connection was lost."""
        self.set_end_name("lost")
        self.finish()

    def end(self, reason: EndReason) -> None:
        """End for a reason of the gateway, which the peer is told if there is a connection.

        If the session has ended, its removal from the store is tried at once for the session that
        replaces it.
        """
        if reason is EndReason.REPLACED and self._teardown is not None:
            self._teardown.retry_now()
            return
        self.ended_by = self.ended_by or reason
        self.set_end_name(self.end_name(reason))
        if self.connection is not None:
            self.connection.end(reason)
        self.finish()

    def set_end_name(self, name: str) -> None:
        """Set the reason for the session's end, for the event log, unless it is set already."""
        self._end_name = self._end_name or name

    def finish(self) -> None:
        """End without telling the peer a reason, and route the undelivered messages again."""
        if self.ended:
            return
        self.ended = True
        self.connection = None
        self._context.admission.remove(self)  # messages still reach it until `_remove`
        self._context.unacknowledged_bytes -= self.unacknowledged_bytes
        self.unacknowledged_bytes = 0
        self._teardown = SessionTeardown(
            self._context,
            self.generation,
            [token.message for token in self._undelivered() if isinstance(token, Unstored)],
            self._end_name or "closed",
            self._remove,
        )
        self._teardown.start()

    def _undelivered(self) -> list[Token]:
        """Return the tokens of what the peer may lack, in order."""
        return self._writes.tokens()

    def _remove(self) -> None:
        self._registry.remove_session(self.generation)
        self._teardown = None  # refers to this session


class _RequestUnit(Unit, Generic[R]):
    """The unit of work of a request.

    It does nothing if the session has ended. If the login has been revoked, its outcome is the
    reason to end the session: an error would tell the device not to repeat the request after a new
    login.
    """

    __slots__ = ("_request", "_session", "_work")

    def __init__(self, session: Session[R], request: R, work: Work, size: int) -> None:
        super().__init__(size, False)
        self._session = session
        self._request = request
        self._work = work

    def run(self, tx: Transaction) -> bytes | EndReason:
        sender = find_sender(tx, self._session.generation)
        if sender is None:
            return b""
        return self._work(tx, sender) if access.may_continue(sender) else EndReason.REVOKED

    def answer(self, outcome: bytes | EndReason | StoreError) -> None:
        self._session.complete(self._request, self.size, outcome)
