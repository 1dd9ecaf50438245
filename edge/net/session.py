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

from edge.errors import StoreError
from edge.handlers.feature import Slow
from edge.handlers.router import guarded, refusal
from edge.net import login
from edge.net.shared import Shared
from edge.wire import actions, management
from edge.wire.errors import StanzaError, StreamError
from edge.wire.negotiation import Negotiation
from edge.wire.parser import StreamParser
from edge.wire.requests import STANZAS
from edge.wire.stanza import Stanza
from edge.wire.states import State

if TYPE_CHECKING:
    from edge.wire.actions import Action
    from edge.wire.stanza import Item

SILENCE: Final = (60, 15, 4)
"""Seconds of silence before TCP probes a peer, between probes, and how many go unanswered."""


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
        self._in_flight_bytes = 0
        self._next_turn: asyncio.Handle | None = None
        self._stalled: asyncio.TimerHandle | None = None
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
            self._shared.tally.add("connections")
            self.end("resource-constraint", "too many connections")
            return
        self._generation = generation
        self._timer = self._shared.loop.call_later(self._limits.authenticate_time, self._time_out)

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
        if self._transport is not None:
            self._stalled = self._shared.loop.call_later(
                self._limits.stalled_time, self._transport.abort
            )

    def resume_writing(self) -> None:
        """Read again."""
        self._writable = True
        if self._stalled is not None:
            self._stalled.cancel()
        self._pump()

    def connection_lost(self, _error: Exception | None) -> None:
        """Forget the connection; the store forgets the session."""
        if self._transport is None:
            return
        self._transport = None
        self._over = True
        self._items.clear()
        self._parser.close()
        for timer in (self._timer, self._stalled):
            if timer is not None:
                timer.cancel()
        if failures := self._negotiation.failures:
            self._shared.tally.add("authentication", failures)
        self._shared.registry.remove(self._generation)
        if self._full:
            login.unbind(self._shared, self._generation)

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
        if self._over or not data:
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

    def _time_out(self) -> None:
        self._shared.tally.add("authenticate_time")
        self.end("connection-timeout", "not bound in time")

    def _take_turn(self) -> None:
        self._next_turn = None
        self._pump()

    def _pump(self) -> None:
        """Handle what was parsed, until something has to be waited for, or others have a turn."""
        items, negotiation = self._items, self._negotiation
        left = self._limits.session_units
        while items and not self._held_back():
            if left == 0:
                self._next_turn = self._shared.loop.call_soon(self._take_turn)
                break
            left -= 1
            if self._in_flight and not isinstance(items[0], Stanza):
                break  # what ends the stream comes after the answers to what came before it
            item, bound = items.popleft(), negotiation.state is State.BOUND
            if isinstance(item, StreamError):
                self._shared.tally.add(item.condition)
                self._perform(negotiation.fail(item))
            elif bound and isinstance(item, Stanza) and item.name in STANZAS:
                self._route(item)
            else:
                more = bool(items or self._parser.pending)
                self._perform(negotiation.receive(item, more=more))
        self._settle()

    def _held_back(self) -> bool:
        return (
            self._over
            or not self._writable
            or self._next_turn is not None
            or self._in_flight >= self._limits.session_units
            or self._in_flight_bytes >= self._limits.session_bytes
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
        if isinstance(work, Slow):
            work = work.prepare()
        self._in_flight += 1
        self._in_flight_bytes += stanza.size
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
            self._shared.store.submit(lambda _tx: None, lambda _outcome: self._done_with(answer))

    def _done_with(self, answer: bytes) -> None:
        self._in_flight -= 1
        self.send(answer)
        self.read_on()

    def _done(self, stanza: Stanza, outcome: bytes | StoreError) -> None:
        self._in_flight_bytes -= stanza.size
        if isinstance(outcome, StoreError):
            self._shared.tally.add("database")
            outcome = refusal(stanza, login.stanza_error(outcome), self._full)
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
        shared, negotiation = self._shared, self._negotiation
        match action:
            case actions.LookUp(username, mechanism):
                login.look_up(
                    shared, username, mechanism, lambda keys: self._go_on(negotiation.found(keys))
                )
            case actions.Verify(password, keys):
                login.verify(shared, password, keys, self._verified)
            case actions.Denied():
                self._go_on(negotiation.tell_failure())
            case actions.Resume():
                self._go_on(negotiation.not_resumed())
            case actions.Manage():
                self.send(management.failed("feature-not-implemented"))
            case actions.Authenticated():
                self._parser.limit(self._limits.stanza_bytes)
                shared.registry.known(self._generation)
            case actions.Bind(resource):
                self._bind(resource or secrets.token_hex(8))

    def _go_on(self, wanted: list[Action]) -> None:
        self._perform(wanted)
        self._pump()

    async def _start_tls(self) -> None:
        plain = self._transport
        if plain is None:
            return
        transport = await login.secure(self._shared, self, plain)
        if transport is None or self._transport is None:
            plain.abort()
            self.connection_lost(None)  # asyncio does not call it during a handshake
            return
        self._adopt(transport)
        self._go_on(self._negotiation.tls_established())

    def _adopt(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._reading = True
        transport.set_write_buffer_limits(high=self._limits.send_buffer)

    def _verified(self, right: bool) -> None:
        more = bool(self._items or self._parser.pending)
        self._go_on(self._negotiation.verified(right, more=more))

    def _bind(self, resource: str) -> None:
        account = self._negotiation.username
        bare = f"{account}@{self._negotiation.domain}"
        binding = login.Binding(self._generation, account, bare, f"{bare}/{resource}")

        def bound(error: StanzaError | None) -> None:
            if error is not None:
                self._go_on(self._negotiation.refused(error))
                return
            if self._over:  # the connection was lost meanwhile
                login.unbind(self._shared, binding.generation)
                return
            self._full = binding.full
            if self._timer is not None:
                self._timer.cancel()
            enabled = management.failed("feature-not-implemented")
            self._go_on(self._negotiation.bound(binding.full, enabled))

        login.bind(self._shared, binding, bound)

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
        self._timer = self._shared.loop.call_later(login.LINGER, transport.abort)


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """Let the kernel find out that a silent peer is gone."""
    connection = transport.get_extra_info("socket")
    idle, interval, count = SILENCE
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, count)
