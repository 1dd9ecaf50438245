"""What is bound: a full JID's session, which may outlive its connection (XEP-0198).

It hands stanzas to the router and their work to the store, in order. With stream management, what
came is counted once its unit of work is committed, and a session whose connection is lost waits to
be resumed. When a session is over, what its peer has not got goes back to the store
(`lifecycle.leave`).

Reading, writing and flow control are the connection's; what a stanza means is not known here.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from edge.engine.hooks import OffloadedWork, Work
from edge.engine.router import guarded, refusal
from edge.errors import StoreError
from edge.server.send_queue import Sending
from edge.server.session_teardown import Leaving
from edge.server.shared import Shared
from edge.server.store_errors import rule, stanza_error
from edge.xmpp import jid
from edge.xmpp.errors import StanzaError, StreamError
from edge.xmpp.stanza import Stanza
from edge.xmpp.stream import management
from edge.xmpp.stream.management import EnableRequest, Management

if TYPE_CHECKING:
    from edge.server.connection import Connection

TOKEN_BYTES: Final = 24
"""Of chance in what a session is resumed by: 192 bits, which nobody guesses."""


class Session(Sending):
    """A session; `in_flight` stanzas of it, of `in_flight_bytes`, wait for their commit."""

    __slots__ = (
        "_resume_time", "_successor", "_timer", "_why", "in_flight", "in_flight_bytes", "slow",
        "source", "token",
    )  # fmt: skip

    def __init__(self, shared: Shared, account: str, full: str, source: str) -> None:
        super().__init__(shared, account, full)
        self.source = source  # the address that it counts for, as `throttle.source` gives it
        self.in_flight = 0
        self.in_flight_bytes = 0
        self.slow = False  # a stanza's work is dear: none is taken until it is done
        self.token = ""  # by which it can be resumed
        self._resume_time = 0.0
        self._why = ""  # it ends
        self._timer: asyncio.TimerHandle | None = None
        self._successor: tuple[Connection, int, Callable[[bool], None]] | None = None

    # What the peer sends

    def is_sender(self, address: str) -> bool:
        """Tell whether a stanza's `from` is this session's or its account's (RFC 6120, 8.1.2.1)."""
        try:
            return jid.parse(address).full in (self.full, self.bare)
        except jid.JidError:
            return False

    def take(self, stanza: Stanza) -> None:
        """Handle a stanza."""
        shared = self._shared
        work = shared.router.route(stanza, self.full)
        if isinstance(work, bytes):
            self._answer_in_turn(work)
            return
        self.in_flight += 1
        self.in_flight_bytes += stanza.size
        if isinstance(work, OffloadedWork):
            self._prepare(stanza, work)
        else:
            shared.store.submit(
                guarded(work, self.generation),
                lambda outcome: self._done(stanza, outcome),
                stanza.size,
            )

    def _prepare(self, stanza: Stanza, work: OffloadedWork) -> None:
        """Have work prepared beside the event loop; no stanza overtakes it."""
        self.slow = True
        loop = self._shared.loop
        prepared = loop.run_in_executor(self._shared.hashing, work.prepare)
        prepared.add_done_callback(lambda done: self._prepared(stanza, done))

    def _prepared(self, stanza: Stanza, done: asyncio.Future[Work]) -> None:
        error = None if done.cancelled() else done.exception()
        if isinstance(error, StanzaError):
            self._slow_done(stanza, error)
        elif error is not None or done.cancelled():
            self._slow_done(stanza, StoreError(f"work could not be prepared: {error!r}"))
        else:
            self._shared.store.submit(
                guarded(done.result(), self.generation),
                lambda outcome: self._slow_done(stanza, outcome),
                stanza.size,
            )

    def _slow_done(self, stanza: Stanza, outcome: bytes | StoreError | StanzaError) -> None:
        self.slow = False
        self._done(stanza, outcome)

    def _answer_in_turn(self, answer: bytes) -> None:
        """Send an answer that takes no work, after those that do and came before it."""
        if self.in_flight == 0:
            self._handled()
            self.answer(answer)
        elif answer or self.management is not None:
            self.in_flight += 1
            self._shared.store.submit(lambda _tx: None, lambda _outcome: self._done_with(answer))

    def _done(self, stanza: Stanza, outcome: bytes | StoreError | StanzaError) -> None:
        self.in_flight_bytes -= stanza.size
        if isinstance(outcome, StoreError):
            self._shared.tally.add(rule(outcome), source=self.bare)
            outcome = stanza_error(outcome)
        if isinstance(outcome, StanzaError):
            outcome = refusal(stanza, outcome, self.full)
        self._done_with(outcome)

    def _done_with(self, answer: bytes) -> None:
        self.in_flight -= 1
        self._handled()
        self.answer(answer)
        self._go_on()

    def _handled(self) -> None:
        """Count a stanza: what it asked for is committed, or was refused."""
        if self.management is not None:
            self.management.handled()
            if self.over:
                self._shared.registry.handled(self.token, self.management.h)

    def _go_on(self) -> None:
        if self.connection is not None:
            self.connection.read_on()
        elif self.in_flight == 0 and self._successor is not None:
            self._resume()

    # Stream management (XEP-0198)

    def manage(self, item: Stanza) -> None:
        """Handle an element of stream management; raises `StreamError`."""
        managed = self.management
        if item.name == management.ENABLE and managed is None:
            self._write(self._enable_as(item))
        elif item.name in (management.ENABLE, management.RESUME) or managed is None:
            self._write(management.failed("unexpected-request"))
        elif item.name == management.REQUEST:
            self._tell_in_turn()
        elif item.name == management.ACK:
            self.acknowledged(managed, management.read_ack(item))
        else:
            raise StreamError("unsupported-stanza-type")

    def _enable_as(self, item: Stanza) -> bytes:
        try:
            return self.enable(management.read_enable(item))
        except StanzaError as error:
            return management.failed(error.condition)

    def enable(self, wanted: EnableRequest) -> bytes:
        """Turn stream management on; returns the answer to `<enable/>`."""
        limits = self._shared.settings.limits
        self.management = Management(
            limits.unacknowledged_stanzas,
            limits.unacknowledged_bytes,
            counts=lambda token: token is None,  # others' stanzas and rows have bounds of their own
        )
        self.tracking = True
        asked = limits.resume_time if wanted.max is None else float(wanted.max)
        self._resume_time = min(asked, limits.resume_time)
        if not wanted.resume or self._resume_time < 1:
            return management.enabled()
        self.token = secrets.token_urlsafe(TOKEN_BYTES)
        self._shared.registry.resumable(self)
        return management.enabled(self.token, int(self._resume_time))

    @property
    def handled(self) -> int:
        """How many stanzas of its peer's have been handled."""
        return 0 if self.management is None else self.management.h

    def _tell_in_turn(self) -> None:
        """Tell how many stanzas are handled, once those that came before are."""
        if self.in_flight == 0:
            self._tell()
            return

        def told(_outcome: object) -> None:
            self.in_flight -= 1
            self._tell()
            self._go_on()

        self.in_flight += 1
        self._shared.store.submit(lambda _tx: None, told)

    def _tell(self) -> None:
        if self.management is not None:
            self._write(self.management.answer())

    # Its life

    def attach(self, connection: Connection) -> None:
        """Go on with a connection: send again what is not acknowledged, in order."""
        self.connection = connection
        self._shared.registry.attached(self)
        if self._timer is not None:
            self._timer.cancel()
        self.send_again()

    def lost(self) -> None:
        """Wait to be resumed, or end: the connection was lost."""
        if not self.token:
            self.because("lost")
            self.finish()
            return
        self._wait()
        self._detach()

    def _wait(self) -> None:
        self.connection = None
        self._shared.registry.detached(self)
        self._timer = self._shared.loop.call_later(self._resume_time, self._not_resumed)

    def _not_resumed(self) -> None:
        self.because("not-resumed")
        self.finish()

    def _detach(self) -> None:
        """Have the store know that it waits; where that fails, it passes for connected."""
        detach, generation = self._shared.lifecycle.detach, self.generation
        self._shared.store.submit(lambda tx: detach(tx, generation), lambda _outcome: None)

    def resume(self, connection: Connection, h: int, then: Callable[[bool], None]) -> None:
        """Go on with another connection, once the work that is in flight is done.

        A connection that it still has is closed, and what was not read of it is thrown away.

        Args:
            connection: the new one.
            h: how many stanzas its peer says that it has handled.
            then: called with whether it goes on; if so, `attach` comes next.
        """
        if self.connection is not None:
            old = self.connection
            self._wait()
            old.dismiss("conflict", "resumed by another connection")
        if self._successor is not None:
            self._successor[0].end("conflict", "resumed by another connection")
        self._successor = (connection, h, then)
        if self.in_flight == 0:
            self._resume()

    def _resume(self) -> None:
        wanted = self._successor
        resume, generation = self._shared.lifecycle.resume, self.generation

        def answer(outcome: bool | StoreError) -> None:
            if self._successor is wanted and wanted is not None:
                self._successor = None
                self._go_on_with(*wanted, outcome is True)

        self._shared.store.submit(lambda tx: resume(tx, generation), answer)

    def _go_on_with(
        self, connection: Connection, h: int, then: Callable[[bool], None], found: bool
    ) -> None:
        if self.over or not found or self.management is None:
            then(False)
            return
        if connection.over:  # it was lost meanwhile
            self._detach()
            return
        try:
            self.acknowledged(self.management, h)
        except StreamError as error:
            connection.fail(error)
            self.because(error.condition)
            self.finish()
            return
        then(True)

    def end(self, condition: str, text: str = "") -> None:
        """End with a stream error, if there is a connection to tell it on."""
        self.because(condition)
        if self.connection is not None:
            self.connection.end(condition, text)
        self.finish()

    def replaced(self) -> None:
        """End: another session has the address."""
        if self.over:
            self.on_late()
        else:
            self.because("replaced")
            self.end("conflict", "replaced by a new session")

    def because(self, why: str) -> None:
        """Note why it is about to end, for the event log, if that is not known yet."""
        self._why = self._why or why

    @property
    def why(self) -> str:
        """Why it is over: its peer closed the stream, if it was nothing else."""
        return self._why or "closed"

    def finish(self) -> None:
        """Be over: what the peer has not got goes back where it came from."""
        if self.over:
            return
        self.over = True
        self.connection = None
        if self._timer is not None:
            self._timer.cancel()
        self._shared.registry.over(self)
        self.release()
        Leaving(self._shared, self).begin()
