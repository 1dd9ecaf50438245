"""Stream negotiation with its parser and without sockets, and the bytes that a client sends."""

from __future__ import annotations

import base64
import re
from itertools import count
from typing import Any

from scramp import ScramClient

from edge import credentials
from edge.xmpp.namespaces import BIND, SASL, TLS
from edge.xmpp.parser import StreamParser
from edge.xmpp.stanza import Item
from edge.xmpp.stream.actions import Action, Close, LoginFailure, RestartStream, Send, StartTls
from edge.xmpp.stream.negotiation import Negotiation
from edge.xmpp.stream.states import State

HEADER = (
    b"<?xml version='1.0'?><stream:stream to='gw.example' version='1.0' xmlns='jabber:client' "
    b"xmlns:stream='http://etherx.jabber.org/streams'>"
)
STARTTLS = f"<starttls xmlns='{TLS}'/>".encode()
_RESOURCE = f"<bind xmlns='{BIND}'><resource>fw</resource></bind>"
BIND_REQUEST = f"<iq id='b' type='set'>{_RESOURCE}</iq>".encode()
KEYS = {keys.mechanism: keys for keys in credentials.derive("pencil")}
SHA256 = KEYS["SCRAM-SHA-256"]


def b64(message: bytes) -> bytes:
    return base64.b64encode(message)


def auth(mechanism: str, initial: bytes | None = None) -> bytes:
    text = b"" if initial is None else b64(initial) or b"="
    return b"<auth xmlns='%b' mechanism='%b'>%b</auth>" % (SASL.encode(), mechanism.encode(), text)


def response(message: bytes) -> bytes:
    return b"<response xmlns='%b'>%b</response>" % (SASL.encode(), b64(message))


def authenticate(mechanism: str, initial: bytes | None = None, inline: bytes = b"") -> bytes:
    first = b"" if initial is None else b"<initial-response>%b</initial-response>" % b64(initial)
    return b"<authenticate xmlns='urn:xmpp:sasl:2' mechanism='%b'>%b%b</authenticate>" % (
        mechanism.encode(),
        first,
        inline,
    )


def response2(message: bytes) -> bytes:
    return b"<response xmlns='urn:xmpp:sasl:2'>%b</response>" % b64(message)


ABORT = b"<abort xmlns='%b'/>" % SASL.encode()
ABORT2 = b"<abort xmlns='urn:xmpp:sasl:2'/>"
RESUME = b"<resume xmlns='urn:xmpp:sm:3' previd='p1' h='7'/>"
ENABLE = b"<enable xmlns='urn:xmpp:sm:3' resume='true'/>"
PLAIN = auth("PLAIN", b"\0Pump1\0pencil")


class ServerStream:
    """The server side of a stream: a negotiation with its parser."""

    def __init__(self, **options: Any) -> None:
        ids = count(1)
        self.parser = StreamParser()
        self.negotiation = Negotiation("gw.example", stream_id=lambda: f"s{next(ids)}", **options)
        self.scram: ScramClient | None = None

    @property
    def state(self) -> State:
        return self.negotiation.state

    def items(self, data: bytes) -> list[Item]:
        return self.parser.feed(data)

    def feed(self, data: bytes) -> list[Action]:
        """Feed bytes and return the actions; a restart resets the parser."""
        items = self.items(data)
        actions: list[Action] = []
        while items:
            item = items.pop(0)
            more = bool(items or self.parser.pending)
            actions += self.negotiation.receive(item, more=more)
        return self.perform(actions)

    def perform(self, actions: list[Action]) -> list[Action]:
        if any(isinstance(action, RestartStream | StartTls) for action in actions):
            self.parser.reset()
        return actions

    def first_message(self, mechanism: str = "SCRAM-SHA-256", name: str = "Pump1") -> bytes:
        self.scram = ScramClient([mechanism], name, "pencil")
        first: str = self.scram.get_client_first()
        return first.encode()

    def proof(self, actions: list[Action]) -> bytes:
        assert self.scram is not None
        self.scram.set_server_first(content(actions).decode())
        final = self.scram.get_client_final().encode()
        return response2(final) if self.state is State.CHALLENGED2 else response(final)

    def to(self, state: State) -> ServerStream:
        """Bring the stream to a state by the shortest path."""
        for step in PATHS[state]:
            if step is not None:
                self.feed(step)
            elif self.state is State.STARTING_TLS:
                self.negotiation.tls_established(certificate=state is State.IDENTIFYING)
            elif self.state is State.LOOKING_UP:
                self.perform(self.negotiation.credentials_found(SHA256))
            elif self.state is State.VERIFYING:
                self.perform(self.negotiation.password_verified(True))
            elif self.state is State.DENIED:
                self.negotiation.report_failure()
            elif self.state is State.RESUMING:
                self.negotiation.not_resumed()
            else:
                self.negotiation.bound("pump1@gw.example/fw")
        assert self.state is state
        return self


_SECURE = [HEADER, STARTTLS, None, HEADER]
_AUTHENTICATED = [*_SECURE, PLAIN, None, None]
PATHS: dict[State, list[bytes | None]] = {
    State.CONNECTED: [],
    State.CLEAR: [HEADER],
    State.STARTING_TLS: [HEADER, STARTTLS],
    State.ENCRYPTED: [HEADER, STARTTLS, None],
    State.SECURE: _SECURE,
    State.PROMPTED: [*_SECURE, auth("SCRAM-SHA-256")],
    State.PROMPTED2: [*_SECURE, authenticate("SCRAM-SHA-256")],
    State.LOOKING_UP: [*_SECURE, PLAIN],
    State.IDENTIFYING: [*_SECURE, auth("EXTERNAL", b"")],
    State.CHALLENGED: [*_SECURE, auth("SCRAM-SHA-256", b"n,,n=pump1,r=abc"), None],
    State.CHALLENGED2: [*_SECURE, authenticate("SCRAM-SHA-256", b"n,,n=pump1,r=abc"), None],
    State.VERIFYING: [*_SECURE, PLAIN, None],
    State.DENIED: [*_SECURE, auth("PLAIN", b"wrong")],
    State.AUTHENTICATED: _AUTHENTICATED,
    State.UNBOUND: [*_AUTHENTICATED, HEADER],
    State.RESUMING: [*_AUTHENTICATED, HEADER, RESUME],
    State.BINDING: [*_AUTHENTICATED, HEADER, BIND_REQUEST],
    State.BOUND: [*_AUTHENTICATED, HEADER, BIND_REQUEST, None],
    State.CLOSED: [HEADER, b"</stream:stream>"],
}


def sent(actions: list[Action]) -> bytes:
    return b"".join(action.data for action in actions if isinstance(action, Send))


def types(actions: list[Action]) -> list[type]:
    return [type(action) for action in actions]


def content(actions: list[Action]) -> bytes:
    """Decode the message in a challenge or success."""
    match = re.search(rb"<(?:challenge|success)[^>]*>([^<]*)<", sent(actions))
    assert match is not None
    return base64.b64decode(match[1])


def condition(actions: list[Action]) -> str:
    """Return the condition of the stream error that is sent before the connection is closed."""
    assert types(actions)[-1] is Close
    match = re.search(rb"<stream:error><([a-z-]+) ", sent(actions))
    assert match is not None
    assert sent(actions).endswith(b"</stream:error></stream:stream>")
    return match[1].decode()


def failure(stream: ServerStream, actions: list[Action]) -> str:
    """Report the failure of these actions, and return its condition."""
    assert types(actions) == [LoginFailure]
    output = sent(stream.negotiation.report_failure())
    match = re.match(
        rb"<failure xmlns='urn:ietf:params:xml:ns:xmpp-sasl'><([a-z-]+)/></failure>", output
    ) or re.match(
        rb"<failure xmlns='urn:xmpp:sasl:2'><([a-z-]+) xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>"
        rb"</failure>",
        output,
    )
    assert match is not None
    name = match[1].decode()
    assert isinstance(actions[0], LoginFailure)
    assert actions[0].condition == name
    return name


def offered_mechanisms(features: bytes) -> tuple[list[str], list[str]]:
    """Return the offered mechanisms, for SASL and for SASL2."""
    old, _, new = features.partition(b"<authentication ")
    first, second = (re.findall(rb"<mechanism>([^<]*)<", part) for part in (old, new))
    return [name.decode() for name in first], [name.decode() for name in second]
