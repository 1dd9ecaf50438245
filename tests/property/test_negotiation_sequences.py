"""Properties of stream negotiation with any sequence of elements and random results.

Negotiation follows its table: it raises nothing, sends well-formed streams, authenticates only with
proof, and ends the stream after a few failures.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge import credentials
from edge.xmpp.errors import StanzaError, StreamError
from edge.xmpp.parser import ParseError, StreamParser
from edge.xmpp.stream import actions, management
from edge.xmpp.stream.actions import Action
from edge.xmpp.stream.negotiation import MAX_BIND_FAILURES, MAX_SASL_FAILURES, Negotiation
from edge.xmpp.stream.states import State
from tests.helpers.negotiation import (
    ABORT,
    ABORT2,
    BIND_REQUEST,
    ENABLE,
    HEADER,
    KEYS,
    PLAIN,
    RESUME,
    STARTTLS,
    ServerStream,
    auth,
    authenticate,
    response,
    response2,
    sent,
)

EXAMPLES = 5000 if os.environ.get("FIELDPOST_TEST_LONG") == "1" else 200
SECRET = b"\0Pump1\0pencil"
BIND2 = b"<bind xmlns='urn:xmpp:bind:0'><tag>fw</tag>" + ENABLE + b"</bind>"
VOCABULARY = [
    HEADER,
    HEADER.replace(b"to=", b"from='pump1@gw.example' to="),
    HEADER.replace(b"gw.example", b"other.example"),
    STARTTLS,
    PLAIN,
    auth("EXTERNAL", b""),
    auth("EXTERNAL", b"other"),
    auth("SCRAM-SHA-256"),
    auth("SCRAM-SHA-256", b"n,,n=pump1,r=abc"),
    auth("X"),
    response(b"n,,n=pump1,r=abc"),
    response(b"c=biws,r=abc,p=YQ=="),
    ABORT,
    authenticate("PLAIN", SECRET),
    authenticate("PLAIN", SECRET, BIND2 + RESUME),
    authenticate("EXTERNAL", b"", BIND2),
    authenticate("SCRAM-SHA-1"),
    authenticate("SCRAM-SHA-1", b"n,,n=pump1,r=abc", RESUME),
    response2(b"n,,n=pump1,r=abc"),
    response2(b"c=biws,r=abc,p=YQ=="),
    ABORT2,
    BIND_REQUEST,
    BIND_REQUEST.replace(b"'set'", b"'get'"),
    RESUME,
    RESUME.replace(b"'7'", b"'x'"),
    ENABLE,
    b"<presence/>",
    b"<x xmlns='u:x'/>",
    b" ",
]
END = b"</stream:stream>"
VALID = [
    [HEADER, STARTTLS, HEADER, PLAIN, HEADER, BIND_REQUEST],
    [HEADER, STARTTLS, HEADER, authenticate("PLAIN", SECRET, BIND2 + RESUME)],
    [HEADER, STARTTLS, HEADER, auth("EXTERNAL", b""), HEADER, RESUME, BIND_REQUEST],
]


class Session:
    """A caller of the negotiation, with random results of its actions."""

    def __init__(self, choose: Callable[[int], int], *, secure: bool = False) -> None:
        self.negotiation = Negotiation(
            "gw.example", limits=(10_000, 60_000), secure=secure, certificate=secure
        )
        self.parser = StreamParser()
        self.client = StreamParser(1_000_000)  # parses the output
        self.choose = choose
        self.proved = False
        self.authenticated = 0
        self.refusals = 0

    def feed(self, data: bytes) -> None:
        if self.negotiation.state is State.CLOSED:
            return
        try:
            items = self.parser.feed(data)
        except ParseError as error:
            for item in error.items:
                self.perform(self.negotiation.receive(item))
            self.perform(self.negotiation.fail(error))
            return
        for item in items:
            self.perform(self.negotiation.receive(item))

    def perform(self, wanted: list[Action]) -> None:
        assert (actions.Close() in wanted) <= (self.negotiation.state is State.CLOSED)
        for action in wanted:
            self.do(action)

    def do(self, action: Action) -> None:
        match action:
            case actions.Send(data):
                self.read(data)
            case actions.RestartStream() | actions.StartTls():
                self.parser.reset()
                self.client.reset()
                if action == actions.StartTls():
                    certificate = bool(self.choose(2))
                    self.perform(self.negotiation.tls_established(certificate=certificate))
            case actions.LoginSuccess(username):
                assert self.proved
                assert username == self.negotiation.username == "pump1"
                self.authenticated += 1
            case _:
                assert (
                    not isinstance(action, actions.Route | actions.ManageStream)
                    or self.authenticated
                )
                self.answer(action)

    def read(self, data: bytes) -> None:
        """Check that the client reads complete elements, and none after the end."""
        if data.startswith(b"<success ") and b"sasl:2" in data:
            assert self.authenticated
        self.client.feed(data)
        assert self.client.pending == 0

    def answer(self, action: Action) -> None:
        it = self.negotiation
        luck = self.choose(3)
        self.proved |= luck == 0 and isinstance(
            action, actions.VerifyPassword | actions.FindCertificateOwner
        )
        match action:
            case actions.FindCredentials(_, mechanism):
                keys = KEYS.get(mechanism, KEYS["SCRAM-SHA-256"])
                decoy = credentials.decoy("pump1", b"s" * 16, keys.mechanism)
                wanted = [
                    lambda: it.credentials_found(keys),
                    lambda: it.credentials_found(decoy),
                    it.attempt_refused,
                ]
                self.perform(wanted[luck]())
            case actions.FindCertificateOwner():
                wanted = [lambda: it.owner_found("pump1"), lambda: it.owner_found(None)]
                self.perform((wanted[luck] if luck < 2 else it.attempt_refused)())
            case actions.VerifyPassword():
                self.perform(it.password_verified(luck == 0))
            case actions.LoginFailure():
                self.refusals += 1
                assert it.failures == self.refusals <= MAX_SASL_FAILURES
                self.perform(it.report_failure())
            case actions.Bind(resource, enable):
                made = management.failed("resource-constraint") if enable else b""
                full = f"pump1@gw.example/{resource}"
                refusal = StanzaError("resource-constraint")
                self.perform(it.bound(full, made) if luck else it.bind_refused(refusal))
            case actions.Resume(previd, _):
                full = "pump1@gw.example/fw"
                self.perform(it.not_resumed() if luck else it.resumed(full, previd, 3))


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """Draw a valid sequence with elements added, removed or repeated."""
    sequence = list(draw(st.sampled_from(VALID)))
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(sequence)))
        if draw(st.booleans()):
            sequence.insert(at, draw(st.sampled_from(VOCABULARY)))
        else:
            sequence[at : at + 1] = []
    return [*sequence, *draw(st.lists(st.sampled_from([*VOCABULARY, END]), max_size=8))]


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    sequence=st.one_of(streams(), st.lists(st.sampled_from(VOCABULARY), max_size=12)),
    secure=st.booleans(),
    data=st.data(),
)
def test_any_sequence_of_elements(sequence: list[bytes], secure: bool, data: st.DataObject) -> None:
    def choose(count: int) -> int:
        return data.draw(st.integers(0, count - 1))

    session = Session(choose, secure=secure)
    for piece in sequence:
        session.feed(piece)
        assert not session.negotiation.waiting
    it = session.negotiation
    assert session.authenticated <= 1
    assert (it.state is State.BOUND) <= (session.authenticated == 1)
    assert (it.username != "") == (session.authenticated == 1)
    session.perform(it.fail(StreamError("system-shutdown")))
    assert it.state is State.CLOSED


@pytest.mark.parametrize(
    ("sequence", "answers", "expected"),
    [
        (VALID[0], [1, 0, 0, 1], State.BOUND),
        (VALID[0], [1, 0, 0, 0], State.UNBOUND),
        (VALID[1], [1, 0, 0, 0], State.BOUND),  # resumed
        (VALID[1], [1, 0, 0, 1, 1], State.BOUND),  # bound
        (VALID[1], [1, 0, 0, 1, 0], State.UNBOUND),
        (VALID[2], [1, 0, 1, 1], State.BOUND),
        (VALID[2][:-1], [1, 0, 0], State.BOUND),
    ],
)
def test_valid_sequences_lead_to_a_session(
    sequence: list[bytes], answers: list[int], expected: State
) -> None:
    """This shows that the random sequences are variations of valid ones."""
    given = iter(answers)
    session = Session(lambda _count: next(given))
    for piece in sequence:
        session.feed(piece)
    assert session.negotiation.state is expected
    assert session.authenticated == 1
    assert list(given) == []


@settings(max_examples=EXAMPLES // 4, deadline=None)
@given(sequence=st.lists(st.sampled_from([RESUME, ENABLE, BIND_REQUEST]), min_size=8, max_size=8))
def test_repeated_requests_end_the_stream(sequence: list[bytes]) -> None:
    """All are refused, until the stream ends."""
    refusals = 0
    it = ServerStream().to(State.UNBOUND)
    for piece in sequence:
        wanted = it.feed(piece)
        match wanted:
            case [actions.Resume()]:
                wanted = it.negotiation.not_resumed()
            case [actions.Bind()]:
                wanted = it.negotiation.bind_refused(StanzaError("conflict"))
        refusals += 1
        assert re.match(rb"<failed |<iq type='error'", sent(wanted))
        assert (actions.Close() in wanted) == (refusals == MAX_BIND_FAILURES)
        if it.state is State.CLOSED:
            break
    assert refusals == MAX_BIND_FAILURES
