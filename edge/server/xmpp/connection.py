"""A device's connection by XMPP: its parser, and the negotiation of its stream.

Until a session is bound, the connection carries out the actions of the stream negotiation; after
that it passes stanzas to the session. White space that keeps a connection alive is accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from edge import jid
from edge.engine.outputs import EndReason
from edge.server.connection import Connection
from edge.server.login import Login
from edge.server.registry import Registry
from edge.server.server_context import ServerContext
from edge.server.tls import TlsServer
from edge.server.xmpp.errors import stream_error
from edge.server.xmpp.login import LoginSteps
from edge.server.xmpp.session import Streams, XmppSession
from edge.xmpp.errors import StreamError
from edge.xmpp.parser import ParseError, StreamParser
from edge.xmpp.stanza import STANZA_NAMES, Item, Stanza
from edge.xmpp.stream import actions, management
from edge.xmpp.stream.actions import Action
from edge.xmpp.stream.negotiation import Negotiation

OUT_OF_ORDER: Final = frozenset((management.REQUEST, management.ACK))
"""The elements, other than stanzas, that are handled while stanzas are in flight; all others wait
for the answers to these stanzas."""

Input: TypeAlias = Item | StreamError
"""An item of the stream, or the error after which nothing more can be read."""


class XmppConnection(Connection[Input, XmppSession]):
    """A connection of XMPP."""

    def __init__(
        self,
        context: ServerContext,
        streams: Streams,
        tls_server: TlsServer,
        registry: Registry[XmppSession],
    ) -> None:
        super().__init__(context, tls_server, registry)
        limits = self._limits
        self._streams = streams
        self._parser = StreamParser(
            limits.stranger_stanza_bytes,
            limits.stanza_depth,
            limits.stanza_elements,
            limits.stanza_attributes,
            envelopes=streams.envelopes,
        )
        self._negotiation = self._new_negotiation()
        self._steps: LoginSteps | None = None

    def _new_negotiation(self, *, certificate: bool = False) -> Negotiation:
        settings, limits = self._context.settings, self._limits
        return Negotiation(
            settings.gateway.domain,
            require_tls=settings.xmpp.require_tls,
            secure=self.secure,
            certificate=certificate,
            limits=(limits.stranger_stanza_bytes, limits.stanza_bytes),
            features=self._streams.router.stream_features,
        )

    def begin(self, login: Login) -> None:
        """Begin the negotiation, or continue it after STARTTLS."""
        certificate = login.certificate is not None
        wanted: list[Action] = []
        if self._direct:
            self._negotiation = self._new_negotiation(certificate=certificate)
        elif self.secure:
            wanted = self._negotiation.tls_established(certificate=certificate)
        self._steps = LoginSteps(
            self._context, self._streams, self._registry, self, self._negotiation, login
        )
        self._perform(wanted)

    # Input

    @property
    def has_more(self) -> bool:
        """Return whether the peer has sent more than was handled."""
        return bool(self._items or self._unparsed or self._parser.pending)

    def is_waiting(self) -> bool:
        """Return whether the negotiation waits for a result."""
        return self._negotiation.waiting

    def parse(self, data: bytes | memoryview) -> Sequence[Input]:
        """Return the items that end in this part of the input, and an error if there is one."""
        try:
            return self._parser.feed(data)
        except ParseError as error:
            self._unparsed = b""
            return [*error.items, error]

    def handle(self, item: Input) -> bool:
        """Handle an item, if it has not to wait: a stanza for the rate limit, and others for the
        answers to earlier stanzas."""
        session = self._session
        if session is None:
            self._negotiate(item)
        elif isinstance(item, Stanza) and item.name in STANZA_NAMES:
            if self._rate_limiter.is_paused():
                return False
            sender = item.attrs.get("from")
            if sender is None or _is_own_address(session, sender):
                self._rate_limiter.count_request()
                session.handle(item)
            else:
                self._items.insert(0, StreamError("invalid-from"))
        elif session.in_flight and not (isinstance(item, Stanza) and item.name in OUT_OF_ORDER):
            return False  # the end of the stream comes after the answers to earlier stanzas
        else:
            self._negotiate(item)
        return True

    # Negotiation

    def _negotiate(self, item: Input) -> None:
        if self._login is not None:
            self._login.note_input()
        if isinstance(item, StreamError):
            self._context.refusals.add(item.condition, source=self.peer)
            self.fail(item)
        else:
            self._perform(self._negotiation.receive(item, more=self.has_more))

    def continue_with(self, wanted: list[Action]) -> None:
        """Carry out actions of the negotiation, then handle the input that waited for them."""
        self._perform(wanted)
        self._process()

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
                    self.close()
                case actions.Route(stanza) if self._session is not None:
                    self._session.handle(stanza)
                case actions.ManageStream(item) if self._session is not None:
                    self._manage_stream(self._session, item)
                case _ if self._steps is not None:
                    self._steps.perform(action)

    def _manage_stream(self, session: XmppSession, item: Stanza) -> None:
        try:
            session.handle_management(item)
        except StreamError as error:
            self._negotiate(error)

    def accept_large_stanzas(self) -> None:
        """Raise the limit on the size of stanzas, because the peer is authenticated."""
        self._parser.set_limit(self._limits.stanza_bytes)

    def release_idle(self) -> None:
        """Free memory that is needed only while the peer sends."""
        self._parser.release_if_idle()

    def start_session(self, session: XmppSession, wanted: list[Action]) -> None:
        """Carry out the negotiation's actions `wanted`, then begin or resume a session."""
        self._steps = None
        self._bind(session)
        self._perform(wanted)
        session.attach(self)
        self._process()
        self._parser.release()  # most devices send little

    # The end

    def end(self, reason: EndReason) -> None:
        """Send the stream error of the reason, and close."""
        self.fail(stream_error(reason))

    def fail(self, error: StreamError) -> None:
        """Send a stream error and close."""
        self._items.clear()
        self._unparsed = b""
        if self._session is not None:
            self._session.set_end_name(error.condition)
        # nothing can be sent during a handshake
        self._perform([actions.Close()] if self._handshaking else self._negotiation.fail(error))

    def connection_lost(self, error: Exception | None) -> None:
        """Free the parser, and remove the connection."""
        self._parser.close()
        super().connection_lost(error)


def _is_own_address(session: XmppSession, address: str) -> bool:
    """Return whether a stanza's `from` is the session's full or bare JID (RFC 6120, section
    8.1.2.1)."""
    try:
        return jid.parse(address).full in (session.full, session.bare)
    except jid.JidError:
        return False
