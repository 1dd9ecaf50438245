"""A session: a bound full JID, which may outlive its connection (XEP-0198).

Received stanzas go to the router, and their units of work to the store, in order. With stream
management, a stanza is counted as handled when its unit of work is committed, and a session that
loses its connection waits to be resumed.

Sent stanzas are kept until the peer has them, within limits. With stream management, that is until
they are acknowledged, also while there is no connection; without stream management, until they have
left the write buffers. A stanza of another account that does not fit is returned (`overflow`), and
the session continues, so that no session can end another. If the gateway's own stanzas exceed a
limit, the session is ended, because a dropped stanza would be lost. Stanzas that are stored in the
database always fit, because the outbox limits them.

When a session ends, its undelivered messages go back to the store (`session_teardown`).

Theory of resumption

1. The connection is lost (`lose_connection`). The session keeps its unacknowledged stanzas, is
   marked as detached in the store, and starts a timer. If the timer fires first, the session ends.
2. A new connection asks for the session's id (`resume`). If an old connection is still there, it is
   closed, and input that it has not processed is dropped: the peer counts it as not handled and
   sends it again. A later request replaces an earlier one, whose connection is ended.
3. The request waits until all units of work in flight are done, because the answer states how many
   of the peer's stanzas were handled. Then the store decides whether the session may be resumed.
4. The peer's number `h` removes the stanzas that it has handled (`_finish_resume`). An impossible
   number ends the session.
5. The connection answers the peer and calls `attach`, which sends the other unacknowledged stanzas
   again, in order, and then the stanzas that never left the old connection.

If the new connection is lost before step 4, the session is detached again, and its timer, which
`attach` alone stops, still runs.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

from edge import jid
from edge.engine.database import AWAITS_ANSWER, Receipt, SentMessage
from edge.engine.encoding import encode, source_of
from edge.engine.hooks import OffloadedWork, Work
from edge.engine.outputs import EndReason
from edge.engine.send_share import BufferSize, SendShares
from edge.errors import StoreError
from edge.routing.xmpp.router import guarded, refusal
from edge.server.overflow import Overflow
from edge.server.server_context import ServerContext
from edge.server.session_teardown import SessionTeardown
from edge.server.store_errors import refusal_rule, stanza_error
from edge.server.write_tracker import STANZA_OVERHEAD, Token, Unstored, WriteTracker, is_own
from edge.xmpp import PROTOCOL
from edge.xmpp.errors import StanzaError, StreamError
from edge.xmpp.stanza import Stanza
from edge.xmpp.stream import management
from edge.xmpp.stream.management import EnableRequest, Management

ID_BYTES: Final = 24
"""Random bytes of the id by which a session is resumed: 192 bits cannot be guessed."""

OWN_BACKLOG: Final = 4
"""Without stream management, a session ends if the gateway's own stanzas in its buffers exceed this
multiple of `limits.send_buffer`. Answers to requests do not count: the gateway reads no further
requests while `limits.send_buffer` bytes are unsent."""


class _End(NamedTuple):
    """A stream error, and the reason that the event log gives if it is not the condition."""

    condition: str
    text: str = ""
    reason: str = ""


_ENDS: Final = {
    EndReason.REVOKED: _End("not-authorized", "the account was revoked"),
    EndReason.REPLACED: _End("conflict", "replaced by a new session", "replaced"),
    EndReason.EVICTED: _End("resource-constraint", reason="evicted"),
    EndReason.MEMORY: _End("resource-constraint"),
    EndReason.SHUTDOWN: _End("system-shutdown"),
}


class SessionConnection(Protocol):
    """The methods of a connection that its session calls."""

    closed: bool
    written: int

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

    def end(self, condition: str, text: str = "") -> None:
        """Send a stream error and close."""

    def displace(self) -> None:
        """Close at once, because a newer connection takes its place."""

    def fail(self, error: StreamError) -> None:
        """Send a stream error and close."""

    def detach(self, condition: str, text: str) -> None:
        """Close the connection without ending the session."""

    def resume_reading(self) -> None:
        """Resume reading after a pause, unless there is another reason to pause."""

    def release_idle(self) -> None:
        """Free memory that is needed only while the peer sends."""


class SessionRegistry(Protocol):
    """The methods of the registry (`registry.Registry`) that a session calls."""

    def mark_resumable(self, session: Session) -> None:
        """Make the session resumable by its stream management id."""

    def mark_ended(self, session: Session) -> None:
        """Record that the session has ended."""

    def update_ended(self, sm_id: str, handled: int) -> None:
        """Record how many stanzas an ended session has handled; a failed resumption reports it."""

    def remove_session(self, generation: int) -> None:
        """Remove the session."""


class Session:
    """A session: its stanzas in flight, its unacknowledged stanzas, its resumption and its end.

    Args:
        generation: the session's number in the store.
        account: the account's local part.
        source: its source address, for the limits, as `login_throttle.source_of` returns it.

    Attributes:
        connection: its connection, or None while it waits to be resumed.
        in_flight: number of received stanzas whose units of work are not committed.
        in_flight_bytes: bytes of these stanzas.
        offloading: whether a stanza's work is being prepared outside of the event loop; no other
            stanza is handled until that is done.
        management: the stream management state, if enabled.
        since: the event loop's time at which it was created.
        sm_id: the id by which it can be resumed, or "".
        unacknowledged_bytes: its part of `ServerContext.unacknowledged_bytes`.
        tracking: whether its connection must call `before_flush` and `after_flush`.
        end_error: the stream error that it ended with, if any.
    """

    __slots__ = (
        "_acknowledgement_requested", "_acknowledgement_urgent", "_confirmations", "_context",
        "_end_reason", "_overflow", "_registry", "_resume_time", "_sent_at", "_sent_position",
        "_shares", "_successor", "_teardown", "_timer", "_writes", "account", "bare", "connection",
        "end_error", "ended", "full", "generation", "in_flight", "in_flight_bytes", "management",
        "offloading", "since", "sm_id", "source", "tracking", "unacknowledged_bytes",
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
        self.end_error: StreamError | None = None
        self.in_flight = 0
        self.in_flight_bytes = 0
        self.offloading = False
        self.management: Management[Token] | None = None
        self.sm_id = ""
        self.unacknowledged_bytes = 0
        self.tracking = False
        self._writes = WriteTracker()
        self._shares = SendShares(
            BufferSize(limits.unacknowledged_stanzas, limits.unacknowledged_bytes)
        )
        self._overflow: Overflow | None = None  # created when a stanza does not fit
        self._acknowledgement_requested: float | None = None  # when; None if answered
        self._acknowledgement_urgent = False  # a row waits for one that was not requested yet
        self._confirmations: list[Receipt] = []  # that the store could not record yet
        self._sent_position = -1  # end of what has left the write buffers, in bytes,
        self._sent_at = 0.0  # and since when
        self._resume_time = 0.0
        self._timer: asyncio.TimerHandle | None = None  # ends the wait to be resumed
        self._successor: tuple[SessionConnection, int, Callable[[bool], None]] | None = None
        self._end_reason = ""
        self._teardown: SessionTeardown | None = None

    # Receiving

    def is_own_address(self, address: str) -> bool:
        """Return whether a stanza's `from` is this session's full or bare JID (RFC 6120, section
        8.1.2.1)."""
        try:
            return jid.parse(address).full in (self.full, self.bare)
        except jid.JidError:
            return False

    def handle(self, stanza: Stanza) -> None:
        """Route a stanza and submit its unit of work."""
        context = self._context
        if self.management is not None:
            stanza.acknowledged = True
        work = context.router.route(stanza, self.full)
        if isinstance(work, bytes):
            self._answer_in_order(work)
            return
        size = stanza.size
        self.in_flight += 1
        self.in_flight_bytes += size
        if isinstance(work, OffloadedWork):
            self._offload(stanza, work)
        else:
            unit, answer = guarded(work, self.generation), partial(self._complete, stanza, size)
            context.store.submit(unit, answer, size)

    def _offload(self, stanza: Stanza, work: OffloadedWork) -> None:
        self.offloading = True
        loop = self._context.loop
        prepared = loop.run_in_executor(self._context.hashing, work.prepare)
        prepared.add_done_callback(lambda done: self._submit_prepared(stanza, done))

    def _submit_prepared(self, stanza: Stanza, done: asyncio.Future[Work]) -> None:
        error = None if done.cancelled() else done.exception()
        if isinstance(error, StanzaError):
            self._complete_offloaded(stanza, error)
        elif error is not None or done.cancelled():
            self._complete_offloaded(stanza, StoreError(f"offloaded work failed: {error!r}"))
        else:
            self._context.store.submit(
                guarded(done.result(), self.generation),
                lambda outcome: self._complete_offloaded(stanza, outcome),
                stanza.size,
                heavy=True,
            )

    def _complete_offloaded(
        self, stanza: Stanza, outcome: bytes | StoreError | StanzaError
    ) -> None:
        self.offloading = False
        self._complete(stanza, stanza.size, outcome)

    def _answer_in_order(self, answer: bytes) -> None:
        """Send an answer that needs no unit of work, after the answers to earlier stanzas."""
        if self.in_flight == 0:
            self._count_handled()
            self.answer(answer)
        elif answer or self.management is not None:
            self.in_flight += 1
            self._context.store.submit(
                lambda _tx: None, lambda _outcome: self._complete_with(answer)
            )

    def _complete(
        self, stanza: Stanza, size: int, outcome: bytes | StoreError | StanzaError
    ) -> None:
        self.in_flight_bytes -= size
        if not isinstance(outcome, bytes):
            outcome = self._refusal(stanza, outcome)
        self._complete_with(outcome)

    def _refusal(self, stanza: Stanza, error: StoreError | StanzaError) -> bytes:
        if isinstance(error, StoreError):
            self._context.refusals.add(refusal_rule(error), source=self.bare)
            error = stanza_error(error)
        return refusal(stanza, error, self.full)

    def _complete_with(self, answer: bytes) -> None:
        self.in_flight -= 1
        if self.management is not None:
            self._count_handled()
        self.answer(answer)
        self._continue()

    def _count_handled(self) -> None:
        if self.management is not None:
            self.management.handled()
            if self.ended:
                self._registry.update_ended(self.sm_id, self.management.h)

    def _continue(self) -> None:
        if self.connection is not None:
            self.connection.resume_reading()
        elif self.in_flight == 0 and self._successor is not None:
            self._resume_in_store()

    # Sending

    def answer(self, answer: bytes) -> None:
        """Send the answer to a stanza of the peer."""
        if self.ended or not answer:
            return
        connection = self.connection
        if (self.management is None or self._keep(answer, None)) and connection is not None:
            connection.send(answer)

    def deliver(self, message: SentMessage, receipt: Receipt | None) -> None:
        """Send a unit of work's message to the session, unless XMPP has no encoder for it. If it
        comes from another account and there is no room, pass it to the overflow. `receipt` names
        the row that stores it, if any."""
        if self.ended:
            if receipt is None and self._teardown is not None:
                self._teardown.add(message)
            return
        stanza = encode(self._context.router.context, PROTOCOL, message)
        if not stanza:
            return
        if receipt is not None:
            self._send(stanza, receipt)
            return
        unstored = Unstored(message, source_of(message), len(stanza))
        if not unstored.source:
            self._send(stanza, unstored)
        elif self._has_room(unstored):
            self._shares.add(unstored.source, unstored.size)
            self._send(stanza, unstored)
        else:
            if self._overflow is None:
                self._overflow = Overflow(self._context, self)
            self._overflow.add(message, unstored.size)

    def _has_room(self, unstored: Unstored) -> bool:
        """Return whether another account's message fits and overtakes none in the overflow."""
        message, sender, size = unstored
        if self._overflow is not None and self._overflow.holds_predecessor(message):
            return False
        if self.management is not None:
            fits = self._shares.has_room(sender, size)
            return fits and self._context.may_relay(size + STANZA_OVERHEAD)
        if not self._shares.has_room(sender, size) and self.connection is not None:
            self.connection.flush()  # removes what has left the write buffers
        return self._shares.has_room(sender, size)

    def _send(self, stanza: bytes, token: Token) -> None:
        if self.management is not None:
            if isinstance(token, Receipt) and token != AWAITS_ANSWER:
                self._acknowledgement_urgent = True
            if self._keep(stanza, token):
                self._write(stanza)
        else:
            self.tracking = True
            self._writes.add(stanza, token)
            self._write(stanza)
            self._check_own_backlog()

    def _check_own_backlog(self) -> None:
        """End the session if too many of the gateway's own stanzas are unsent after a flush."""
        limit = OWN_BACKLOG * self._context.settings.limits.send_buffer
        if self._writes.own_bytes > limit and self.connection is not None:
            self.connection.flush()
            if self._writes.own_bytes > limit:
                self._end_over_limit("send_buffer", "too many stanzas were not read")

    def _write(self, stanza: bytes) -> None:
        if self.connection is not None:
            self.connection.send(stanza)

    def _keep(self, stanza: bytes, token: Token) -> bool:
        """Keep a stanza until it is acknowledged; return False if that ended the session."""
        assert self.management is not None  # noqa: S101
        context = self._context
        self.count_unacknowledged(len(stanza) + STANZA_OVERHEAD)
        if not self.management.send(stanza, token):
            self._end_over_limit("unacknowledged_bytes", "too many stanzas were not acknowledged")
        elif context.unacknowledged_bytes > context.settings.limits.unacknowledged_total_bytes:
            bare = context.admission.end_largest()
            context.refusals.add("unacknowledged_total_bytes", source=bare)
        return not self.ended

    def count_unacknowledged(self, size: int) -> None:
        """Add `size` to the unacknowledged bytes of the session, and to those of all sessions."""
        if not self.ended:  # the whole count was removed at the end
            self.unacknowledged_bytes += size
            self._context.unacknowledged_bytes += size

    def _end_over_limit(self, rule: str, text: str) -> None:
        self._context.refusals.add(rule, source=self.bare)
        self.fail("resource-constraint", text)

    @property
    def unacknowledged_stanzas(self) -> int:
        """Number of unacknowledged stanzas, without relayed and stored ones."""
        return 0 if self.management is None else self.management.bounded

    @property
    def all_unacknowledged_stanzas(self) -> int:
        """Number of all unacknowledged stanzas, also of those relayed or stored."""
        return 0 if self.management is None else len(self.management.unacknowledged)

    @property
    def last_input(self) -> float | None:
        """The event loop's time at which the peer last sent something, or lost its connection; None
        before the session is bound."""
        if self.connection is not None:
            return self.connection.last_input
        return None if self._timer is None else self._timer.when() - self._resume_time

    @property
    def buffered_bytes(self) -> int:
        """Bytes in the connection's write buffers."""
        return 0 if self.connection is None else self.connection.backlog()

    # Delivery and acknowledgement of sent stanzas

    def before_flush(self, output: list[bytes]) -> None:
        """Add a request for acknowledgement to the connection's output, if one is due."""
        if self.management is None:
            return
        if self._acknowledgement_urgent or self.management.wants_request():
            output.append(self._request_acknowledgement(self.management))
        elif self.management.bytes and self._acknowledgement_requested is None:
            self._context.schedule_check(self)

    def after_flush(self, connection: SessionConnection) -> None:
        """Record that the connection has written its output."""
        self._writes.mark_flushed(connection.written)
        self._remove_sent(connection)

    def check_peer(self) -> bool:
        """Check that the peer reads and acknowledges; record deliveries that the store failed to
        record before. Return whether another check is needed."""
        if self.ended:
            return False
        if self._confirmations:
            receipts, self._confirmations = self._confirmations, []
            self._confirm(receipts)
        if self.connection is not None:
            if self._writes.bytes:
                self._remove_sent(self.connection)
                self._check_progress(self.connection)
            if self.management is not None and self.management.bytes:
                self._check_acknowledgement(self.connection, self.management)
        requested = self._acknowledgement_requested is not None
        return bool(self._writes.bytes or self._confirmations or requested)

    def _check_progress(self, connection: SessionConnection) -> None:
        """End the session if no stanza leaves the write buffers for too long."""
        now, position = self._context.loop.time(), connection.written - connection.backlog()
        if not self._writes.bytes:
            self._sent_position = -1
        elif position != self._sent_position:
            self._sent_position, self._sent_at = position, now
        elif now - self._sent_at > self._context.settings.limits.stalled_time:
            self.fail("connection-timeout", "the peer does not read")

    def _check_acknowledgement(
        self, connection: SessionConnection, managed: Management[Token]
    ) -> None:
        """Request an acknowledgement, or end the session if a request was not answered in time."""
        limits = self._context.settings.limits
        timeout = max(limits.resume_time, limits.stalled_time)
        if self._acknowledgement_requested is None:
            connection.send(self._request_acknowledgement(managed))
        elif self._context.loop.time() - self._acknowledgement_requested > timeout:
            self.fail("connection-timeout", "the peer does not acknowledge")

    def _request_acknowledgement(self, managed: Management[Token]) -> bytes:
        self._acknowledgement_requested = self._context.loop.time()
        self._acknowledgement_urgent = False
        self._context.schedule_check(self)
        return managed.request()

    def _remove_sent(self, connection: SessionConnection) -> None:
        self._handle_delivered(self._writes.remove_sent(connection.written - connection.backlog()))
        if self._writes.bytes:
            self._context.schedule_check(self)
        else:
            self.tracking = self.management is not None

    def _handle_delivered(self, tokens: list[Token]) -> None:
        """Record that the stanzas with these tokens were delivered; send the presence that the
        overflow keeps, as far as there is room now."""
        receipts = []
        for token in tokens:
            if isinstance(token, Receipt):
                receipts.append(token)
            elif token is not None and token.source:
                self._shares.remove(token.source, token.size)
        self._confirm(receipts)
        if tokens and self._overflow is not None:
            self._overflow.send_kept()

    def _confirm(self, receipts: list[Receipt]) -> None:
        """Record in the store that stored stanzas were delivered; retry later if that fails."""

        def answer(outcome: StoreError | None) -> None:
            if outcome is not None:
                self._confirmations += receipts
                self._context.schedule_check(self)

        receipts = [receipt for receipt in receipts if receipt is not AWAITS_ANSWER]
        if receipts:
            confirm, generation = self._context.lifecycle.acknowledge, self.generation
            self._context.store.submit(lambda tx: confirm(tx, generation, receipts), answer)

    def acknowledge(self, managed: Management[Token], h: int) -> None:
        """Drop the stanzas that the peer has handled; raises `StreamError`."""
        before = managed.bytes
        tokens = managed.acknowledge(h)
        self.count_unacknowledged(managed.bytes - before - STANZA_OVERHEAD * len(tokens))
        self._acknowledgement_requested = None
        self._handle_delivered(tokens)

    # Stream management (XEP-0198)

    def handle_management(self, item: Stanza) -> None:
        """Handle an element of stream management; raises `StreamError`."""
        managed = self.management
        if item.name == management.ENABLE and managed is None:
            self._write(self._enable(item))
        elif item.name in (management.ENABLE, management.RESUME) or managed is None:
            self._write(management.failed("unexpected-request"))
        elif item.name == management.REQUEST:
            self._acknowledge_in_order()
        elif item.name == management.ACK:
            self.acknowledge(managed, management.read_ack(item))
        else:
            raise StreamError("unsupported-stanza-type")

    def _enable(self, item: Stanza) -> bytes:
        try:
            return self.enable_management(management.read_enable(item))
        except StanzaError as error:
            return management.failed(error.condition)

    def enable_management(self, request: EnableRequest) -> bytes:
        """Enable stream management; return the answer."""
        limits = self._context.settings.limits
        self.management = Management(
            limits.unacknowledged_stanzas,
            limits.unacknowledged_bytes,
            counts=is_own,  # relayed stanzas and rows have their own limits
        )
        self.tracking = True
        wanted = limits.resume_time if request.max is None else float(request.max)
        self._resume_time = min(wanted, limits.resume_time)
        if not request.resume or self._resume_time < 1:
            return management.enabled()
        self.sm_id = secrets.token_urlsafe(ID_BYTES)
        self._registry.mark_resumable(self)
        return management.enabled(self.sm_id, int(self._resume_time))

    @property
    def handled(self) -> int:
        """Number of the peer's stanzas that were handled."""
        return 0 if self.management is None else self.management.h

    def _acknowledge_in_order(self) -> None:
        """Answer a request for acknowledgement after the stanzas before it are handled."""
        if self.in_flight == 0:
            self._write_acknowledgement()
            return

        def answer(_outcome: object) -> None:
            self.in_flight -= 1
            self._write_acknowledgement()
            self._continue()

        self.in_flight += 1
        self._context.store.submit(lambda _tx: None, answer)

    def _write_acknowledgement(self) -> None:
        if self.management is not None:
            self._write(self.management.answer())

    # Lifecycle

    def attach(self, connection: SessionConnection) -> None:
        """Continue on a connection, and send unacknowledged stanzas again, in order.

        They are followed by stanzas that were sent before stream management was enabled and never
        left the old connection; these must be acknowledged from now on.
        """
        self.connection = connection
        self._context.admission.mark_attached(self)
        if self._timer is not None:
            self._timer.cancel()
        if self.management is None:
            return
        for kept in self.management.unacknowledged:
            connection.send(kept.stanza)
        self._acknowledgement_urgent = bool(self.management.bytes)
        for stanza, token in self._writes.take_all():
            if isinstance(token, Unstored):
                if token.source:
                    self._shares.remove(token.source, token.size)
                self.deliver(token.message, None)
            elif not self.ended:
                self._send(stanza, token)

    def lose_connection(self) -> None:
        """Wait to be resumed, or end, because the connection was lost."""
        if not self.sm_id:
            self.set_end_reason("lost")
            self.finish()
            return
        self._wait_for_resume()
        self._detach_in_store()

    def _wait_for_resume(self) -> None:
        self.connection = None
        self._context.admission.mark_detached(self)
        self._timer = self._context.loop.call_later(self._resume_time, self._on_resume_timeout)

    def _on_resume_timeout(self) -> None:
        self.set_end_reason("not-resumed")
        self.finish()

    def _detach_in_store(self) -> None:
        """Mark the session as detached in the store; if that fails, it counts as connected."""
        detach, generation = self._context.lifecycle.detach, self.generation
        self._context.store.submit(lambda tx: detach(tx, generation), lambda _outcome: None)

    def resume(
        self, connection: SessionConnection, h: int, on_done: Callable[[bool], None]
    ) -> None:
        """Resume on a new connection, after the units of work in flight.

        An old connection is closed, and its unread input is dropped.

        Args:
            h: number of the gateway's stanzas that the peer has handled.
            on_done: called with whether the session is resumed, and if so, has to call `attach`;
                not called if the new connection is closed.
        """
        if self.connection is not None:
            old = self.connection
            self._wait_for_resume()
            old.detach("conflict", "resumed by another connection")
        if self._successor is not None:
            self._successor[0].end("conflict", "resumed by another connection")
        self._successor = (connection, h, on_done)
        if self.in_flight == 0:
            self._resume_in_store()

    def _resume_in_store(self) -> None:
        successor = self._successor
        resume, generation = self._context.lifecycle.resume, self.generation

        def answer(outcome: bool | StoreError) -> None:
            if self._successor is successor and successor is not None:
                self._successor = None
                self._finish_resume(*successor, outcome is True)

        self._context.store.submit(lambda tx: resume(tx, generation), answer)

    def _finish_resume(
        self,
        connection: SessionConnection,
        h: int,
        on_done: Callable[[bool], None],
        is_stored: bool,
    ) -> None:
        if self.ended or not is_stored or self.management is None:
            on_done(False)
            return
        if connection.closed:
            self._detach_in_store()
            return
        try:
            self.acknowledge(self.management, h)
        except StreamError as error:
            connection.fail(error)
            self.set_end_reason(error.condition)
            self.finish()
            return
        on_done(True)

    def end(self, reason: EndReason) -> None:
        """End for a reason of the core, with its stream error.

        If the session has ended, its removal from the store is tried at once for the session that
        replaces it.
        """
        if reason is EndReason.REPLACED and self._teardown is not None:
            self._teardown.retry_now()
            return
        condition, text, logged = _ENDS[reason]
        if logged:
            self.set_end_reason(logged)
        self.fail(condition, text)

    def fail(self, condition: str, text: str = "") -> None:
        """End with a stream error, which is sent if there is a connection."""
        self.set_end_reason(condition)
        self.end_error = self.end_error or StreamError(condition, text)
        if self.connection is not None:
            self.connection.end(condition, text)
        self.finish()

    def set_end_reason(self, reason: str) -> None:
        """Set the reason for the session's end, for the event log, unless it is set already."""
        self._end_reason = self._end_reason or reason

    def finish(self) -> None:
        """End without a stream error, and route the undelivered stanzas again."""
        if self.ended:
            return
        self.ended = True
        self.connection = None
        if self._timer is not None:
            self._timer.cancel()
        self._registry.mark_ended(self)
        self._context.unacknowledged_bytes -= self.unacknowledged_bytes
        self.unacknowledged_bytes = 0
        self._teardown = SessionTeardown(
            self._context,
            self.generation,
            self._undelivered(),
            self._end_reason or "closed",
            self._remove,
        )
        self._teardown.start()

    def _undelivered(self) -> list[SentMessage]:
        """Return the messages that the peer may lack and that are not stored in the database."""
        tokens = self._writes.tokens()
        if self.management is not None:
            tokens += [kept.token for kept in self.management.unacknowledged]
        return [token.message for token in tokens if isinstance(token, Unstored)]

    def _remove(self) -> None:
        self._registry.remove_session(self.generation)
        self.management = None  # so that stanzas whose units of work run later are not counted
