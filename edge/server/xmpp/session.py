"""A session of XMPP: a bound full JID, which may outlive its connection (XEP-0198).

With stream management, a stanza of the peer is counted as handled when its unit of work is
committed, a sent stanza is kept until it is acknowledged, also while there is no connection, and a
session that loses its connection waits to be resumed. Without it, the session is that of the core.

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
from typing import Final, NamedTuple, TypeAlias

from edge.engine.dispatch.encoding import encode
from edge.engine.dispatch.outputs import EndReason
from edge.engine.rules import access
from edge.engine.store.database import AWAITS_ANSWER, Receipt, SentMessage
from edge.errors import StoreError
from edge.routing.xmpp.router import Router, refusal
from edge.server.server_context import ServerContext
from edge.server.session import Session, SessionConnection, SessionRegistry
from edge.server.write_tracker import STANZA_OVERHEAD, Token, Unstored, is_own
from edge.server.xmpp.errors import event_name, stanza_error
from edge.xmpp import PROTOCOL
from edge.xmpp.errors import StanzaError, StreamError
from edge.xmpp.stanza import Stanza
from edge.xmpp.stream import management
from edge.xmpp.stream.management import EnableRequest, Management

ResumeAnswer: TypeAlias = Callable[[bool | StreamError], None]
"""A function that is called with whether a session is resumed, or with the peer's error."""

ID_BYTES: Final = 24
"""Random bytes of the id by which a session is resumed: 192 bits cannot be guessed."""


ENDED_SESSIONS: Final = 256
"""Maximum number of ended sessions that are remembered, so that a peer that cannot resume learns
how many of its stanzas were handled."""


class EndedSession(NamedTuple):
    """The account of an ended session, and the number of stanzas handled from its device."""

    account: str
    handled: int


class ResumableSessions:
    """The sessions of a listener that can be resumed, by their ids, and what is remembered of those
    that have ended."""

    def __init__(self) -> None:
        self._sessions: dict[str, XmppSession] = {}
        self._ended: dict[str, EndedSession] = {}

    def add(self, session: XmppSession) -> None:
        """Make a session resumable by its id."""
        self._sessions[session.sm_id] = session

    def find(self, sm_id: str) -> XmppSession | None:
        """Return the session that can be resumed by an id, if any."""
        return self._sessions.get(sm_id)

    def mark_ended(self, session: XmppSession) -> None:
        """Record that a session, resumable or not, has ended."""
        if self._sessions.pop(session.sm_id, None) is not None:
            self._ended[session.sm_id] = EndedSession(session.account, session.handled)
            if len(self._ended) > ENDED_SESSIONS:
                del self._ended[next(iter(self._ended))]

    def update_ended(self, sm_id: str, handled: int) -> None:
        """Set `h` of an ended session (XEP-0198), if a stanza was handled after its end."""
        if (ended := self._ended.get(sm_id)) is not None:
            self._ended[sm_id] = ended._replace(handled=handled)

    def handled_by_ended(self, sm_id: str, account: str) -> int | None:
        """Return the number of stanzas that an account's ended session had handled, if known."""
        ended = self._ended.get(sm_id)
        if ended is None or not access.may_resume(account, ended.account):
            return None
        return ended.handled


class Streams(NamedTuple):
    """The parts that all streams of a listener share.

    Attributes:
        resumable: the sessions that can be resumed.
    """

    router: Router
    resumable: ResumableSessions


class XmppSession(Session[Stanza]):
    """A session of XMPP: its stanzas, its stream management and its resumption.

    Attributes:
        management: the stream management state, if enabled.
        sm_id: the id by which it can be resumed, or "".
    """

    protocol = PROTOCOL

    __slots__ = (
        "_acknowledgement_requested", "_acknowledgement_urgent", "_resumable", "_resume_time",
        "_router", "_successor", "_timer", "management", "sm_id",
    )  # fmt: skip

    def __init__(
        self,
        context: ServerContext,
        streams: Streams,
        registry: SessionRegistry,
        generation: int,
        account: str,
        full: str,
        source: str,
    ) -> None:
        super().__init__(context, registry, generation, account, full, source)
        self._router = streams.router
        self._resumable = streams.resumable
        self.management: Management[Token] | None = None
        self.sm_id = ""
        self._acknowledgement_requested: float | None = None  # when; None if answered
        self._acknowledgement_urgent = False  # a row waits for one that was not requested yet
        self._resume_time = 0.0
        self._timer: asyncio.TimerHandle | None = None  # ends the wait to be resumed
        self._successor: tuple[SessionConnection, int, ResumeAnswer] | None = None

    # Receiving

    def handle(self, stanza: Stanza) -> None:
        """Route a stanza and submit its unit of work."""
        if self.management is not None:
            stanza.acknowledged = True
        work = self._router.route(stanza, self.full)
        if not isinstance(work, bytes):
            self.submit(stanza, work, stanza.size)
        elif work or self.management is not None:
            self.in_order(partial(self.answer, work))

    def refusal(self, stanza: Stanza, error: StoreError) -> bytes:
        """Return the error that answers a stanza whose unit of work has failed."""
        return refusal(stanza, stanza_error(error), self.full)

    def _continue(self) -> None:
        if self.connection is not None:
            self.connection.resume_reading()
        elif self.in_flight == 0 and self._successor is not None:
            self._resume_in_store()

    # Sending

    def answer(self, answer: bytes) -> None:
        """Count a stanza of the peer as handled, and send its answer."""
        managed = self.management
        if managed is not None:
            managed.handled()
            if self.ended:
                self._resumable.update_ended(self.sm_id, managed.h)
        if self.ended or not answer:
            return
        connection = self.connection
        if (managed is None or self.keep(answer, None)) and connection is not None:
            connection.send(answer)

    def encode(self, message: SentMessage) -> bytes:
        """Return the stanza of a message, or empty bytes if XMPP has none for its type."""
        return encode(self._context.engine, PROTOCOL, message)

    def keep(self, data: bytes, token: Token) -> bool:
        """Keep a stanza until it is acknowledged; return False if that ended the session."""
        context, managed = self._context, self.management
        if isinstance(token, Receipt) and token != AWAITS_ANSWER:
            self._acknowledgement_urgent = True
        self.count_unacknowledged(len(data) + STANZA_OVERHEAD)
        if managed is not None and not managed.send(data, token):
            context.refusals.add("unacknowledged_bytes", source=self.bare)
            self.end(EndReason.UNACKNOWLEDGED)
        elif context.unacknowledged_bytes > context.settings.limits.unacknowledged_total_bytes:
            bare = context.admission.end_largest()
            context.refusals.add("unacknowledged_total_bytes", source=bare)
        return not self.ended

    @property
    def unacknowledged_stanzas(self) -> int:
        """Number of unacknowledged stanzas, without relayed and stored ones."""
        return 0 if self.management is None else self.management.bounded

    @property
    def all_unacknowledged_stanzas(self) -> int | None:
        """Number of all unacknowledged stanzas, also of those relayed or stored."""
        return 0 if self.management is None else len(self.management.unacknowledged)

    @property
    def last_input(self) -> float | None:
        """The event loop's time at which the peer last sent something, or lost its connection; None
        before the session is bound."""
        if self.connection is not None:
            return self.connection.last_input
        return None if self._timer is None else self._timer.when() - self._resume_time

    # Acknowledgement of sent stanzas

    def before_flush(self, output: list[bytes]) -> None:
        """Add a request for acknowledgement to the connection's output, if one is due."""
        if self.management is None:
            return
        if self._acknowledgement_urgent or self.management.wants_request():
            output.append(self._request_acknowledgement(self.management))
        elif self.management.bytes and self._acknowledgement_requested is None:
            self._context.schedule_check(self)

    def check_peer(self) -> bool:
        """Check that the peer reads and acknowledges; return whether another check is needed."""
        is_needed = super().check_peer()
        if self.connection is not None and self.management is not None and self.management.bytes:
            self._check_acknowledgement(self.connection, self.management)
        return not self.ended and (is_needed or self._acknowledgement_requested is not None)

    def _check_acknowledgement(
        self, connection: SessionConnection, managed: Management[Token]
    ) -> None:
        """Request an acknowledgement, or end the session if a request was not answered in time."""
        limits = self._context.settings.limits
        timeout = max(limits.resume_time, limits.stalled_time)
        if self._acknowledgement_requested is None:
            connection.send(self._request_acknowledgement(managed))
        elif self._context.loop.time() - self._acknowledgement_requested > timeout:
            self.end(EndReason.SILENT)

    def _request_acknowledgement(self, managed: Management[Token]) -> bytes:
        self._acknowledgement_requested = self._context.loop.time()
        self._acknowledgement_urgent = False
        self._context.schedule_check(self)
        return managed.request()

    def acknowledge(self, managed: Management[Token], h: int) -> None:
        """Drop the stanzas that the peer has handled; raises `StreamError`."""
        before = managed.bytes
        tokens = managed.acknowledge(h)
        self.count_unacknowledged(managed.bytes - before - STANZA_OVERHEAD * len(tokens))
        self._acknowledgement_requested = None
        if tokens:
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
            self.in_order(lambda: self._write(managed.answer()))
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
        self.tracking = self.acknowledges = True
        wanted = limits.resume_time if request.max is None else float(request.max)
        self._resume_time = min(wanted, limits.resume_time)
        if not request.resume or self._resume_time < 1:
            return management.enabled()
        self.sm_id = secrets.token_urlsafe(ID_BYTES)
        self._resumable.add(self)
        return management.enabled(self.sm_id, int(self._resume_time))

    @property
    def handled(self) -> int:
        """Number of the peer's stanzas that were handled."""
        return 0 if self.management is None else self.management.h

    # Lifecycle

    def attach(self, connection: SessionConnection) -> None:
        """Continue on a connection, and send unacknowledged stanzas again, in order.

        They are followed by stanzas that were sent before stream management was enabled and never
        left the old connection; these must be acknowledged from now on.
        """
        super().attach(connection)
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
            super().lose_connection()
            return
        self._wait_for_resume()
        self._detach_in_store()

    def _wait_for_resume(self) -> None:
        self.connection = None
        self._context.admission.mark_detached(self)
        self._timer = self._context.loop.call_later(self._resume_time, self._on_resume_timeout)

    def _on_resume_timeout(self) -> None:
        self.set_end_name("not-resumed")
        self.finish()

    def _detach_in_store(self) -> None:
        """Mark the session as detached in the store; if that fails, it counts as connected."""
        detach, generation = self._context.lifecycle.detach, self.generation
        self._context.store.submit(lambda tx: detach(tx, generation), lambda _outcome: None)

    def resume(self, connection: SessionConnection, h: int, on_done: ResumeAnswer) -> None:
        """Resume on a new connection, after the units of work in flight.

        An old connection is closed, and its unread input is dropped.

        Args:
            h: number of the gateway's stanzas that the peer has handled.
            on_done: called with whether the session is resumed, and if so, has to call `attach`; or
                with an error, if `h` is impossible; not called if the new connection is closed.
        """
        if self.connection is not None:
            old = self.connection
            self._wait_for_resume()
            old.detach(EndReason.MOVED)
        if self._successor is not None:
            self._successor[0].end(EndReason.MOVED)
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
        on_done: ResumeAnswer,
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
            self.set_end_name(error.condition)
            on_done(error)
            self.finish()
            return
        on_done(True)

    def end_name(self, reason: EndReason) -> str:
        """Return the name of a reason in the event log: the condition of its stream error, or a
        name of its own."""
        return event_name(reason)

    def finish(self) -> None:
        """End without a stream error, and route the undelivered stanzas again."""
        if self._timer is not None:
            self._timer.cancel()
        if not self.ended:
            self._resumable.mark_ended(self)
        super().finish()

    def _undelivered(self) -> list[Token]:
        tokens = super()._undelivered()
        if self.management is not None:
            tokens += [kept.token for kept in self.management.unacknowledged]
        return tokens

    def _remove(self) -> None:
        super()._remove()
        self.management = None  # so that stanzas whose units of work run later are not counted
