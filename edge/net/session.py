"""One connection: bytes in to stanzas, work to the store, answers out.

It carries out what `wire.negotiation` asks for until the session is bound, and hands stanzas to the
router from then on. It is not read while it has to wait: for a result that negotiation needs, for
its own stanzas to be committed, for the store to have room, or for its peer to take what is sent.
What a stanza means is not known here.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections import deque
from typing import TYPE_CHECKING, Final

from edge import credentials
from edge.errors import StoreBusy, StoreError, StoreFull
from edge.handlers.router import guarded, refusal
from edge.net.shared import Shared
from edge.store import accounts, sessions
from edge.wire import actions
from edge.wire.errors import StanzaError, StreamError
from edge.wire.negotiation import Negotiation
from edge.wire.parser import StreamParser
from edge.wire.stanza import Stanza
from edge.wire.states import State

if TYPE_CHECKING:
    from edge.credentials import Credentials
    from edge.store.database import Transaction
    from edge.wire.actions import Action
    from edge.wire.stanza import Item

LINGER: Final = 5.0
"""Seconds that a peer has to take the last bytes and close; then the connection is aborted."""

SILENCE: Final = (60, 15, 4)
"""Seconds of silence before TCP probes a peer, between probes, and how many go unanswered."""

FINGERPRINT: Final = "SCRAM-SHA-256"
"""The credentials that PLAIN is checked against."""


class Session(asyncio.BufferedProtocol):
    """A device's connection."""

    def __init__(self, shared: Shared) -> None:
        limits = shared.settings.limits
        self._shared = shared
        self._limits = limits
        self._parser = StreamParser(
            limits.stranger_stanza_bytes,
            limits.stanza_depth,
            limits.stanza_elements,
            limits.stanza_attributes,
        )
        self._negotiation = Negotiation(
            shared.settings.gateway.domain, require_tls=shared.settings.xmpp.require_tls
        )
        self._transport: asyncio.Transport | None = None
        self._generation = 0
        self._full = ""
        self._items: deque[Item | StreamError] = deque()
        self._out: list[bytes] = []
        self._in_flight = 0
        self._reading = True
        self._writable = True
        self._over = False
        self._timer: asyncio.TimerHandle | None = None
        self._handshake: asyncio.Task[None] | None = None

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; a connection too many is told so and closed."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101
        self._adopt(transport)
        keep_alive(transport)
        generation = self._shared.registry.add(self)
        if generation is None:
            self.end("resource-constraint", "too many connections")
            return
        self._generation = generation
        self._timer = self._shared.loop.call_later(
            self._limits.authenticate_time, self.end, "connection-timeout", "not bound in time"
        )

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Read into the buffer that all sessions share: it is used up before the next read."""
        return self._shared.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was read."""
        if self._over:
            return
        try:
            self._items += self._parser.feed(self._shared.buffer[:nbytes])
        except StreamError as error:
            self._items += error.items
            self._items.append(error)
        self._pump()

    def eof_received(self) -> bool:
        """Let the transport close: who stops sending is not heard any more."""
        return False

    def pause_writing(self) -> None:
        """Stop reading: the peer does not take what it is sent."""
        self._writable = False
        self._settle()

    def resume_writing(self) -> None:
        """Read again."""
        self._writable = True
        self._pump()

    def connection_lost(self, _error: Exception | None) -> None:
        """Forget the connection; the store forgets the session."""
        if self._transport is None:
            return
        self._transport = None
        self._over = True
        self._items.clear()
        self._parser.close()
        if self._timer is not None:
            self._timer.cancel()
        self._shared.registry.remove(self._generation)
        if self._full:
            generation = self._generation
            self._shared.store.submit(lambda tx: sessions.end(tx, generation), _ended)

    # What others ask of a session.

    def end(self, condition: str, text: str = "") -> None:
        """Send a stream error and close."""
        self._items.clear()
        self._perform(self._negotiation.fail(StreamError(condition, text)))

    def read_on(self) -> None:
        """Go on, if nothing else holds the session back."""
        if self._items or not self._reading:
            self._pump()

    def send(self, data: bytes) -> None:
        """Send in the next round of the event loop, together with what else there is by then."""
        if self._transport is None or not data:
            return
        if not self._out:
            self._shared.will_flush(self)
        self._out.append(data)

    def flush(self) -> None:
        """Write what was to be sent."""
        if self._transport is not None and self._out:
            self._transport.write(b"".join(self._out))
        self._out.clear()

    # How a session goes on.

    def _pump(self) -> None:
        """Handle what was parsed, until something has to be waited for."""
        items, negotiation = self._items, self._negotiation
        while items and not self._held_back():
            item = items.popleft()
            if isinstance(item, StreamError):
                self._perform(negotiation.fail(item))
            elif negotiation.state is State.BOUND and isinstance(item, Stanza):
                self._route(item)
            else:
                more = bool(items or self._parser.pending)
                self._perform(negotiation.receive(item, more=more))
        self._settle()

    def _held_back(self) -> bool:
        return (
            self._over
            or not self._writable
            or self._in_flight >= self._limits.session_units
            or self._shared.store.full
            or self._negotiation.waiting
        )

    def _settle(self) -> None:
        """Read or do not read, as it is now."""
        wanted = not (self._items or self._held_back())
        if self._transport is None or wanted is self._reading:
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _route(self, stanza: Stanza) -> None:
        work = self._shared.router.route(stanza, self._full)
        if isinstance(work, bytes):
            self._answer_in_turn(work)
            return
        self._in_flight += 1
        self._shared.store.submit(
            guarded(work, self._generation),
            lambda outcome: self._done(stanza, outcome),
            stanza.size,
        )

    def _answer_in_turn(self, answer: bytes) -> None:
        """Send an answer that takes no work, after those that do and came before it."""
        if self._in_flight == 0:
            self.send(answer)
        elif answer:
            self._in_flight += 1
            self._shared.store.submit(lambda _tx: answer, self._done_with)

    def _done_with(self, outcome: bytes | StoreError) -> None:
        self._in_flight -= 1
        if isinstance(outcome, bytes):
            self.send(outcome)
        self._pump()

    def _done(self, stanza: Stanza, outcome: bytes | StoreError) -> None:
        if isinstance(outcome, StoreError):
            outcome = refusal(stanza, _stanza_error(outcome), self._full)
        self._done_with(outcome)

    # What negotiation asks for.

    def _perform(self, wanted: list[Action]) -> None:
        for action in wanted:
            match action:
                case actions.Send(data):
                    self.send(data)
                case actions.Route(stanza):
                    self._route(stanza)
                case actions.Restart():
                    self._parser.reset()
                case actions.StartTls():
                    self._parser.reset()
                    self.flush()
                    self._handshake = self._shared.loop.create_task(self._start_tls())
                case actions.Close():
                    self._close()
                case _:
                    self._ask(action)

    def _ask(self, action: Action) -> None:
        """Have done outside of negotiation what it needs the result of, or tells."""
        match action:
            case actions.LookUp(username, mechanism):
                self._look_up(username, mechanism)
            case actions.Verify(password, keys):
                self._verify(password, keys)
            case actions.Authenticated():
                self._parser.limit(self._limits.stanza_bytes)
                self._shared.registry.known(self._generation)
            case actions.Bind(resource):
                self._bind(resource or secrets.token_hex(8))

    def _go_on(self, wanted: list[Action]) -> None:
        self._perform(wanted)
        self._pump()

    async def _start_tls(self) -> None:
        plain = self._transport
        if plain is None:
            return
        try:
            async with self._shared.handshakes:
                transport = await self._shared.loop.start_tls(
                    plain,
                    self,
                    self._shared.tls,
                    server_side=True,
                    ssl_handshake_timeout=self._limits.authenticate_time,
                    ssl_shutdown_timeout=LINGER,
                )
        except OSError as error:  # TLS's own errors and time-outs are OSErrors
            plain.abort()
            self.connection_lost(error)
            return
        if transport is None or self._transport is None:
            plain.abort()
            return
        self._adopt(transport)
        self._go_on(self._negotiation.tls_established())

    def _adopt(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._reading = True
        transport.set_write_buffer_limits(high=self._limits.send_buffer)

    def _look_up(self, username: str, mechanism: str) -> None:
        wanted = FINGERPRINT if mechanism == "PLAIN" else mechanism

        def answer(outcome: Credentials | StoreError | None) -> None:
            keys = None if isinstance(outcome, StoreError) else outcome
            if outcome is None:
                keys = credentials.decoy(username, self._shared.decoy, wanted)
            self._go_on(self._negotiation.found(keys))

        self._shared.store.submit(lambda tx: accounts.credentials(tx, username, wanted), answer)

    def _verify(self, password: str, keys: Credentials) -> None:
        """Hash a password beside the event loop: it takes milliseconds."""
        checked = self._shared.loop.run_in_executor(
            self._shared.hashing, credentials.verify, password, keys
        )

        def answer(done: asyncio.Future[bool]) -> None:
            more = bool(self._items or self._parser.pending)
            right = not done.cancelled() and done.exception() is None and done.result()
            self._go_on(self._negotiation.verified(right, more=more))

        checked.add_done_callback(answer)

    def _bind(self, resource: str) -> None:
        generation, account = self._generation, self._negotiation.username
        bare = f"{account}@{self._negotiation.domain}"
        full = f"{bare}/{resource}"

        def unit(tx: Transaction) -> int | None:
            return sessions.bind(tx, generation, account, bare, full)

        def answer(outcome: int | StoreError | None) -> None:
            if isinstance(outcome, StoreError):
                self._go_on(self._negotiation.refused(_stanza_error(outcome)))
                return
            if outcome is not None:
                self._shared.registry.end(outcome, "conflict", "replaced by a new session")
            if self._over:  # the connection was lost meanwhile
                self._shared.store.submit(lambda tx: sessions.end(tx, generation), _ended)
                return
            self._full = full
            if self._timer is not None:
                self._timer.cancel()
            self._go_on(self._negotiation.bound(full))

        self._shared.store.submit(unit, answer)

    def _close(self) -> None:
        self._over = True
        if self._transport is None:
            return
        self.flush()
        transport = self._transport
        if self._handshake is not None and not self._handshake.done():
            transport.abort()
            return
        transport.close()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._shared.loop.call_later(LINGER, transport.abort)


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """Let the kernel find out that a silent peer is gone."""
    connection = transport.get_extra_info("socket")
    idle, interval, count = SILENCE
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, count)


def _stanza_error(error: StoreError) -> StanzaError:
    if isinstance(error, StoreFull | StoreBusy):
        return StanzaError("resource-constraint", "the gateway's disk has no room just now")
    return StanzaError("internal-server-error", type="wait")


def _ended(_outcome: StoreError | None) -> None:
    """Pass over how a session's end went: its row ends with the process at the latest."""
