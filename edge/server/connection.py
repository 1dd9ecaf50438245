"""What a socket is sent: bytes to stanzas, each in its turn; writing and TLS are `channel`'s.

It carries out what `negotiation` asks for until a session is bound, and hands stanzas to the
session from then on. It is not read while it has to wait: for a result that negotiation needs, for
its own stanzas to be committed, for the store to have room, for its peer to take what is sent, or
since it sent too much at once (`pace`).
White space that keeps a connection alive is taken; none is sent, since TCP looks after that. What
a stanza means is not known here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from edge.server import login_throttle, tls
from edge.server.channel import Channel
from edge.server.keepalive import keep_alive
from edge.server.login import Login
from edge.server.read_rate import Pace
from edge.server.session import Session
from edge.server.shared import Shared
from edge.xmpp.errors import StreamError
from edge.xmpp.parser import ParseError, StreamParser
from edge.xmpp.stanza import STANZA_NAMES, Item, Stanza
from edge.xmpp.stream import actions, management
from edge.xmpp.stream.actions import Action
from edge.xmpp.stream.negotiation import Negotiation

SLICE: Final = 4096
"""Bytes that are parsed at once: as stanzas they take up to 80 times as much. What more was read
waits as it came."""

IN_TURN: Final = frozenset((management.REQUEST, management.ACK))
"""What does not wait for the stanzas before it, of all that is no stanza."""


class Connection(Channel):
    """A device's connection; `direct` if it speaks TLS from the first byte (XEP-0368)."""

    def __init__(self, shared: Shared, *, direct: bool = False) -> None:
        limits = shared.settings.limits
        super().__init__(shared, direct=direct)
        self._limits = limits
        self._parser = StreamParser(
            limits.stranger_stanza_bytes,
            limits.stanza_depth,
            limits.stanza_elements,
            limits.stanza_attributes,
        )
        self._negotiation = self._negotiate()
        self._login: Login | None = None
        self._items: deque[Item | StreamError] = deque()
        self._unread = b""
        self._next_turn: asyncio.Handle | None = None
        self._stalled: asyncio.TimerHandle | None = None  # the peer takes nothing just now
        self._timer: asyncio.TimerHandle | None = None
        self._pace = Pace(shared, self.who, self._pump)

    def _negotiate(self, *, certificate: bool = False) -> Negotiation:
        settings, limits = self._shared.settings, self._limits
        return Negotiation(
            settings.gateway.domain,
            require_tls=settings.xmpp.require_tls,
            secure=self._direct,
            certificate=certificate,
            limits=(limits.stranger_stanza_bytes, limits.stanza_bytes),
            features=self._shared.router.stream_features,
        )

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; a connection too many is told so and closed."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101
        self._plain = transport
        self._adopt(transport)
        keep_alive(transport)
        peer = transport.get_extra_info("peername")
        self._source = login_throttle.source(peer[0] if peer else "")
        if not self._shared.registry.add(self, self._source, self._shared.loop.time()):
            self._shared.tally.add("connections", source=self.who())
            self.end("resource-constraint", "too many connections")
            return
        self._timer = self._shared.loop.call_later(self._limits.authenticate_time, self._time_out)
        if not self._direct:
            self._login = Login(self._shared, self, self._negotiation, self._source)

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was read."""
        if self.over:
            return
        self._pace.read(nbytes)
        if self._unread:  # TLS has some left after it was asked to stop
            self._unread += self._shared.buffer[:nbytes]
        elif nbytes > SLICE:
            self._unread = bytes(self._shared.buffer[SLICE:nbytes])
            self._feed(self._shared.buffer[:SLICE])
        else:
            self._feed(self._shared.buffer[:nbytes])
        self._pump()

    def pause_writing(self) -> None:
        """Stop reading: the peer does not take what it is sent. After a while, cut it off."""
        if self._transport is not None:
            self._stalled = self._shared.loop.call_later(
                self._limits.stalled_time, self._transport.abort
            )
            self._settle()

    def resume_writing(self) -> None:
        """Read again."""
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        self._pump()

    def connection_lost(self, _error: Exception | None) -> None:
        """Forget the connection; its session may wait for another."""
        if self._transport is None:
            return
        self._transport = self._plain = None
        self._stop()
        self._parser.close()
        for timer in (self._timer, self._stalled):
            if timer is not None:
                timer.cancel()
        if failures := self._negotiation.failures:
            self._shared.tally.add("authentication", failures, self._source)
        self._shared.registry.remove(self)
        if (session := self._session) is not None:
            self._session = None
            session.lost()

    # What others ask of a connection.

    def end(self, condition: str, text: str = "", *, at_once: bool = False) -> None:
        """Send a stream error and close; `at_once`, without waiting for the peer."""
        self.fail(StreamError(condition, text))
        if at_once and self._transport is not None:
            self._shared.tally.add("connections", source=self.who())
            self._transport.abort()

    def fail(self, error: StreamError) -> None:
        """Send a stream error and close."""
        self._items.clear()
        self._unread = b""
        if self._session is not None:
            self._session.because(error.condition)
        # in a handshake, nothing can be said
        self._perform([actions.Close()] if self._securing else self._negotiation.fail(error))

    def dismiss(self, condition: str, text: str) -> None:
        """End, without the session: it goes on with another connection."""
        self._session = None
        self.end(condition, text)

    def read_on(self) -> None:
        """Go on, if nothing else holds the connection back."""
        if self._items or not self._reading:
            self._pump()

    @property
    def more(self) -> bool:
        """Whether the peer has sent more than what was handled."""
        return bool(self._items or self._unread or self._parser.pending)

    # How it goes on.

    def _time_out(self) -> None:
        self._shared.tally.add("authenticate_time", source=self.who())
        self.end("connection-timeout", "not bound in time")

    def _take_turn(self) -> None:
        self._next_turn = None
        self._pump()

    def _feed(self, data: bytes | memoryview) -> None:
        try:
            self._items += self._parser.feed(data)
        except ParseError as error:
            self._unread = b""
            self._items += error.items
            self._items.append(error)

    def _pump(self) -> None:
        """Handle what was read, until something has to be waited for, or others have a turn."""
        items = self._items
        left = self._limits.session_units
        while not self._held_back():
            if not items:
                if not self._unread:
                    break
                data, self._unread = self._unread[:SLICE], self._unread[SLICE:]
                self._feed(data)
                continue
            if left == 0:
                self._next_turn = self._shared.loop.call_soon(self._take_turn)
                break
            left -= 1
            session = self._session
            if session is None:
                self._negotiated(items.popleft())
                continue
            item = items[0]
            if isinstance(item, Stanza) and item.name in STANZA_NAMES:
                if self._pace.holds():
                    break
                sender = item.attrs.get("from")
                if sender is None or session.is_sender(sender):
                    items.popleft()
                    self._pace.took()
                    session.take(item)
                else:
                    items[0] = StreamError("invalid-from")
            elif session.in_flight and not (isinstance(item, Stanza) and item.name in IN_TURN):
                break  # what ends the stream comes after the answers to what came before it
            else:
                self._negotiated(items.popleft())
        self._settle()

    def _negotiated(self, item: Item | StreamError) -> None:
        if self._login is not None:
            self._login.heard()
        if isinstance(item, StreamError):
            self._shared.tally.add(item.condition, source=self.who())
            self.fail(item)
        else:
            self._perform(self._negotiation.receive(item, more=self.more))

    def _held_back(self) -> bool:
        session = self._session
        if session is None:
            waits = self._securing or self._negotiation.waiting
        else:
            waits = (
                session.in_flight >= self._limits.session_units
                or session.in_flight_bytes >= self._limits.session_bytes
                or session.slow
            )
        return (
            waits
            or self.over
            or self._stalled is not None
            or self._next_turn is not None
            or self._shared.store.full
        )

    def _settle(self) -> None:
        """Read or do not read, as it is now."""
        wanted = not (self._items or self._unread or self._held_back() or self._pace.holds())
        if self._transport is None or wanted is self._reading:
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # What negotiation asks for.

    def go_on(self, wanted: list[Action]) -> None:
        """Do what negotiation asks for, and then what was held back meanwhile."""
        self._perform(wanted)
        self._pump()

    def begin(self, session: Session, wanted: list[Action]) -> None:
        """Go on with a session that is bound or resumed."""
        self._session = session
        self._login = None
        self._shared.registry.known(self)
        if self._timer is not None:
            self._timer.cancel()
        self._perform(wanted)
        session.attach(self)
        self._pump()

    def logged_in(self) -> None:
        """Take larger stanzas: the peer has logged in."""
        self._parser.set_limit(self._limits.stanza_bytes)

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
                    self._session.take(stanza)
                case actions.ManageStream(item) if self._session is not None:
                    self._manage(self._session, item)
                case _ if self._login is not None:
                    self._login.do(action)

    def _manage(self, session: Session, item: Stanza) -> None:
        try:
            session.manage(item)
        except StreamError as error:
            self._negotiated(error)

    def _secured(self, fingerprint: bytes | None) -> None:
        wanted: list[Action] = []
        shown = fingerprint is not None
        if self._direct:
            self._negotiation = self._negotiate(certificate=shown)
        else:
            wanted = self._negotiation.tls_established(certificate=shown)
        self._login = Login(self._shared, self, self._negotiation, self._source, fingerprint)
        self.go_on(wanted)

    def _stop(self) -> None:
        self.over = True
        self._pace.stop()
        self._items.clear()
        self._unread = b""
        if self._login is not None:
            self._login.stop()

    def _close(self) -> None:
        """Write what was to be sent and close; the session, if there is one, is over."""
        session = self._session
        self._session = None
        self._stop()
        if session is not None:
            session.finish()
        transport = self._transport
        if transport is None:
            return
        self.flush()
        if self._securing:
            transport.abort()
            return
        transport.close()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._shared.loop.call_later(tls.LINGER, transport.abort)
