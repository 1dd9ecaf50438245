"""Stream negotiation: every state with every input, and the roads that clients take."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from edge import credentials
from edge.xmpp.errors import StanzaError, StreamError, UsageError
from edge.xmpp.namespaces import BIND, CLIENT, SASL, STREAMS, TLS
from edge.xmpp.parser import ParseError, StreamParser
from edge.xmpp.stream import negotiation
from edge.xmpp.stream.actions import (
    Action,
    Bind,
    Close,
    FindCredentials,
    LoginFailure,
    LoginSuccess,
    RestartStream,
    Route,
    Send,
    StartTls,
    VerifyPassword,
)
from edge.xmpp.stream.negotiation import Negotiation
from edge.xmpp.stream.requests import classify
from edge.xmpp.stream.sasl_attempt import SASL as FIRST
from edge.xmpp.stream.sasl_attempt import SaslAttempt
from edge.xmpp.stream.states import FROM_PEER, TRANSITIONS, WAITING, Input, Rule, State, diagram
from tests.helpers.negotiation import (
    ABORT,
    ABORT2,
    BIND_REQUEST,
    ENABLE,
    HEADER,
    KEYS,
    PLAIN,
    RESUME,
    SHA256,
    STARTTLS,
    Wire,
    auth,
    authenticate,
    condition,
    content,
    failure,
    kinds,
    offered,
    response,
    response2,
    sent,
)

# Every state with every input

PEER: dict[Input, bytes] = {
    Input.OPEN: HEADER,
    Input.STARTTLS: STARTTLS,
    Input.AUTH: PLAIN,
    Input.RESPONSE: response(b"n,,n=pump1,r=abc"),
    Input.ABORT: ABORT,
    Input.AUTHENTICATE: authenticate("PLAIN", b"\0Pump1\0pencil"),
    Input.RESPONSE2: response2(b"n,,n=pump1,r=abc"),
    Input.ABORT2: ABORT2,
    Input.BIND: BIND_REQUEST,
    Input.RESUME: RESUME,
    Input.MANAGE: ENABLE,
    Input.STANZA: b"<message/>",
    Input.OTHER: b"<enable xmlns='urn:xmpp:sm:2'/>",
    Input.PEER_ERROR: b"<stream:error/>",
    Input.CLOSE: b"</stream:stream>",
}


TOLD: dict[Input, Callable[[Negotiation], list[Action]]] = {
    Input.FAULT: lambda it: it.fail(StreamError("connection-timeout")),
    Input.TLS_ESTABLISHED: lambda it: it.tls_established(),
    Input.FOUND: lambda it: it.credentials_found(SHA256),
    Input.NOT_FOUND: lambda it: it.credentials_found(None),
    Input.IDENTIFIED: lambda it: it.owner_found("pump1"),
    Input.NOT_IDENTIFIED: lambda it: it.owner_found(None),
    Input.REFUSED_ATTEMPT: lambda it: it.attempt_refused(),
    Input.VERIFIED: lambda it: it.password_verified(True),
    Input.NOT_VERIFIED: lambda it: it.password_verified(False),
    Input.REPORT_FAILURE: lambda it: it.report_failure(),
    Input.RESUMED: lambda it: it.resumed("pump1@gw.example/fw", "p1", 3),
    Input.NOT_RESUMED: lambda it: it.not_resumed(),
    Input.BIND_DONE: lambda it: it.bound("pump1@gw.example/fw"),
    Input.BIND_REFUSED: lambda it: it.bind_refused(StanzaError("conflict")),
}


def give(wire: Wire, event: Input) -> list[Action]:
    """Give an input to a negotiation, whatever its state."""
    it = wire.negotiation
    if event in FROM_PEER:
        parser = StreamParser()
        items = parser.feed(HEADER if event is Input.OPEN else HEADER + PEER[event])
        assert classify(items[-1]) is event
        return it.receive(items[-1])
    return TOLD[event](it)


@pytest.mark.parametrize(("state", "event"), list(product(State, Input)), ids=str)
def test_every_state_with_every_input(state: State, event: Input) -> None:
    wire = Wire().to(state)
    if state is State.CLOSED:
        assert give(wire, event) == []
        assert wire.state is State.CLOSED
        return
    transition = TRANSITIONS.get((state, event))
    if transition is None and event not in FROM_PEER:
        with pytest.raises(UsageError):
            give(wire, event)
        assert wire.state is state
        return
    actions = give(wire, event)
    if transition is None:
        assert wire.state is State.CLOSED
        assert actions[-1] == Close()
        if state is not State.STARTING_TLS:
            assert condition(actions) == out_of_place(state, event)
    else:
        assert wire.state in transition.then
    assert (Close() in actions) == (wire.state is State.CLOSED)


def out_of_place(state: State, event: Input) -> str:
    if state in WAITING:
        return "policy-violation"
    if event in (Input.STANZA, Input.BIND, Input.RESUME, Input.MANAGE):
        return "not-authorized"
    return "unsupported-stanza-type" if event is Input.OTHER else "policy-violation"


def test_the_table_is_whole() -> None:
    assert {transition.rule for transition in TRANSITIONS.values()} == set(Rule)
    assert set(negotiation._RULES) == set(Rule)
    reached = {then for transition in TRANSITIONS.values() for then in transition.then}
    assert reached == set(State) - {State.CONNECTED}
    assert not any(state is State.CLOSED for state, _ in TRANSITIONS)
    for state, event in product(set(State) - {State.CLOSED}, (Input.CLOSE, Input.FAULT)):
        assert (state, event) in TRANSITIONS
    for state in WAITING:  # each has a way on that the peer cannot take
        assert any(at is state and event not in FROM_PEER for at, event in TRANSITIONS)


def test_a_rule_that_leaves_the_table_is_our_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire().to(State.UNBOUND)
    astray = TRANSITIONS[State.UNBOUND, Input.BIND]._replace(then=(State.CLOSED,))
    monkeypatch.setitem(TRANSITIONS, (State.UNBOUND, Input.BIND), astray)
    with pytest.raises(UsageError, match="bind led from unbound to binding"):
        wire.feed(BIND_REQUEST)


def test_the_diagram_shows_every_state() -> None:
    drawn = diagram()
    for state in State:
        assert (f" {state.value}" in drawn) == (state is not State.CLOSED)
    assert "    looking_up --> challenged: credentials found" in drawn.splitlines()


def test_the_documents_diagram_is_this_one() -> None:
    document = Path(__file__).parents[4] / "docs" / "explanation" / "architecture.md"
    blocks = re.findall(r"```mermaid\n(stateDiagram-v2\n.*?)\n```", document.read_text(), re.DOTALL)
    assert diagram() in blocks


# The roads that clients take


@pytest.mark.parametrize("mechanism", KEYS)
def test_the_whole_road_with_scram(mechanism: str) -> None:
    wire = Wire(features=b"<c xmlns='u'/>")
    offer = sent(wire.feed(HEADER))
    assert b"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'><required/></starttls>" in offer
    assert b"<mechanism" not in offer
    assert wire.feed(STARTTLS) == [Send(f"<proceed xmlns='{TLS}'/>".encode()), StartTls()]
    assert wire.negotiation.waiting
    assert wire.negotiation.tls_established() == []
    assert wire.negotiation.secure
    offer = sent(wire.feed(HEADER))
    assert offered(offer) == (["SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN"],) * 2
    assert b"starttls" not in offer
    assert b"id='s2'" in offer
    wanted = wire.feed(auth(mechanism, wire.first_message(mechanism)))
    assert wanted == [FindCredentials("pump1", mechanism)]
    assert wire.negotiation.waiting
    proof = wire.proof(wire.negotiation.credentials_found(KEYS[mechanism]))
    assert wire.state not in WAITING
    done = wire.feed(proof)
    assert done[1:] == [LoginSuccess("pump1"), RestartStream()]
    assert wire.scram is not None
    wire.scram.set_server_final(content(done).decode())
    assert wire.negotiation.username == "pump1"
    assert wire.negotiation.mechanism == mechanism
    offer = sent(wire.feed(HEADER))
    assert f"<bind xmlns='{BIND}'/>".encode() in offer
    assert b"<session " in offer
    assert offer.endswith(b"<c xmlns='u'/></stream:features>")
    assert wire.feed(BIND_REQUEST) == [Bind("fw")]
    assert wire.negotiation.waiting
    told = sent(wire.negotiation.bound("pump1@gw.example/fw"))
    assert told == (
        f"<iq type='result' id='b'><bind xmlns='{BIND}'>"
        "<jid>pump1@gw.example/fw</jid></bind></iq>".encode()
    )
    routed = wire.feed(b"<message id='1'/><iq id='2'><bind xmlns='%b'/></iq>" % BIND.encode())
    assert [action.stanza.attrs["id"] for action in routed if isinstance(action, Route)] == [
        "1",
        "2",
    ]
    assert wire.feed(b"</stream:stream>") == [Send(b"</stream:stream>"), Close()]


def test_the_road_with_plain() -> None:
    wire = Wire().to(State.SECURE)
    assert wire.feed(PLAIN) == [FindCredentials("pump1", "PLAIN")]
    assert wire.negotiation.credentials_found(SHA256) == [VerifyPassword("pencil", SHA256)]
    assert "pencil" not in repr(VerifyPassword("pencil", SHA256))
    done = wire.perform(wire.negotiation.password_verified(True))
    assert done == [
        Send(f"<success xmlns='{SASL}'/>".encode()),
        LoginSuccess("pump1"),
        RestartStream(),
    ]


def test_the_first_message_may_come_after_an_empty_challenge() -> None:
    wire = Wire().to(State.SECURE)
    asked = wire.feed(auth("SCRAM-SHA-256"))
    assert asked == [Send(f"<challenge xmlns='{SASL}'/>".encode())]
    assert wire.feed(response(wire.first_message())) == [FindCredentials("pump1", "SCRAM-SHA-256")]
    assert kinds(wire.feed(wire.proof(wire.negotiation.credentials_found(SHA256)))) == [
        Send,
        LoginSuccess,
        RestartStream,
    ]


def test_an_empty_first_message_is_malformed() -> None:
    for road in (auth("SCRAM-SHA-256", b""), auth("PLAIN", b"")):
        wire = Wire().to(State.SECURE)
        assert failure(wire, wire.feed(road)) == "malformed-request"
    empty = f"<response xmlns='{SASL}'/>".encode()
    for state in (State.PROMPTED, State.CHALLENGED):
        wire = Wire().to(state)
        assert failure(wire, wire.feed(empty)) == "malformed-request"


def test_without_tls_scram_is_allowed_where_that_is_configured_and_plain_is_not() -> None:
    wire = Wire(require_tls=False)
    offer = sent(wire.feed(HEADER))
    assert offered(offer) == (["SCRAM-SHA-256", "SCRAM-SHA-1"],) * 2
    assert f"<starttls xmlns='{TLS}'/>".encode() in offer
    assert failure(wire, wire.feed(PLAIN)) == "encryption-required"
    wire.feed(auth("SCRAM-SHA-256", wire.first_message()))
    assert LoginSuccess("pump1") in wire.feed(
        wire.proof(wire.negotiation.credentials_found(SHA256))
    )
    assert b"starttls" not in sent(wire.feed(HEADER))
    assert wire.state is State.UNBOUND


def test_starttls_under_tls_is_refused() -> None:
    refused = Wire().to(State.SECURE).feed(STARTTLS)
    assert sent(refused) == f"<failure xmlns='{TLS}'/></stream:stream>".encode()
    assert refused[-1] == Close()


def test_where_tls_is_required_nothing_goes_on_without() -> None:
    for attempt in (PLAIN, auth("SCRAM-SHA-256", b"n,,n=a,r=b"), auth("SCRAM-SHA-1")):
        wire = Wire().to(State.CLEAR)
        assert failure(wire, wire.feed(attempt)) == "encryption-required"
        assert wire.state is State.CLEAR


# What must not be


@pytest.mark.parametrize("behind", [b"<", b"<presence/>", b"<auth", PLAIN, HEADER[21:]])
def test_what_is_sent_behind_starttls_is_refused(behind: bytes) -> None:
    wire = Wire().to(State.CLEAR)
    try:
        items = wire.items(STARTTLS + behind)
    except ParseError as error:  # a header within a stream, told after the item before it
        items = error.items
    more = len(items) > 1 or wire.parser.pending > 0 or behind == HEADER[21:]
    actions = wire.negotiation.receive(items[0], more=more)
    assert condition(actions) == "policy-violation"
    assert b"proceed" not in sent(actions)
    assert StartTls() not in actions


def test_whitespace_behind_starttls_does_no_harm() -> None:
    assert StartTls() in Wire().to(State.CLEAR).feed(STARTTLS + b"\n")


def test_what_is_sent_ahead_of_success_is_refused() -> None:
    wire = Wire().to(State.SECURE)
    wire.feed(auth("SCRAM-SHA-256", wire.first_message()))
    proof = wire.proof(wire.negotiation.credentials_found(SHA256))
    actions = wire.feed(proof + b"<iq")
    assert condition(actions) == "policy-violation"
    assert b"success" not in sent(actions)
    plain = Wire().to(State.VERIFYING)
    assert condition(plain.negotiation.password_verified(True, more=True)) == "policy-violation"
    assert plain.negotiation.username == ""


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (HEADER.replace(b"etherx", b"other"), "invalid-namespace"),
        (HEADER.replace(b"jabber:client", b"jabber:server"), "invalid-namespace"),
        (HEADER.replace(b"xmlns='jabber:client'", b""), "invalid-namespace"),
        (HEADER.replace(b"<stream:stream", b"<stream:flow"), "bad-format"),
        (
            HEADER.replace(b"stream:stream", b"stream").replace(b"jabber:client", STREAMS.encode()),
            "bad-namespace-prefix",
        ),
        (HEADER.replace(b"gw.example", b"other.example"), "host-unknown"),
        (HEADER.replace(b"gw.example", b"a b"), "host-unknown"),
        (HEADER.replace(b"gw.example", b"a@gw.example"), "host-unknown"),
        (HEADER.replace(b"gw.example", b""), "improper-addressing"),
        (HEADER.replace(b"to='gw.example'", b""), "improper-addressing"),
        (HEADER.replace(b" version='1.0' ", b" "), "unsupported-version"),
        (
            HEADER.replace(b"to='gw.example' version='1.0'", b"to='gw.example' version='0.9'"),
            "unsupported-version",
        ),
        (
            HEADER.replace(b"to='gw.example' version='1.0'", b"to='gw.example' version='x'"),
            "unsupported-version",
        ),
    ],
)
@pytest.mark.parametrize("state", [State.CONNECTED, State.ENCRYPTED, State.AUTHENTICATED])
def test_headers_that_are_refused(state: State, header: bytes, expected: str) -> None:
    actions = Wire().to(state).feed(header)
    assert condition(actions) == expected
    assert sent(actions).startswith(b"<?xml version='1.0'?><stream:stream ")
    assert sent(actions).count(b"<stream:stream ") == 1


@pytest.mark.parametrize(
    "change",
    [
        (b"version='1.0' xmlns", b"version='1.9' xmlns"),
        (b"version='1.0' xmlns", b"version='01.0' xmlns"),
        (b"gw.example", b"GW.Example"),
        (b"stream:", b"s:"),
        (b"version='1.0' xmlns", b"version='2.0' xmlns"),
    ],
)
def test_headers_that_are_accepted(change: tuple[bytes, bytes]) -> None:
    header = HEADER.replace(*change).replace(
        b"xmlns:stream=", b"xmlns:s=" if change[0] == b"stream:" else b"xmlns:stream="
    )
    wire = Wire()
    wire.feed(header)
    assert wire.state is State.CLEAR


def test_the_peers_address_is_answered_to() -> None:
    header = HEADER.replace(b"to=", b"from='Pump1@gw.example' to=")
    assert b" to='pump1@gw.example'" in sent(Wire().feed(header))
    bad = HEADER.replace(b"to=", b"from='@' to=")
    assert b" to=" not in sent(Wire().feed(bad))


def test_a_fault_before_the_header_is_told_within_a_stream() -> None:
    for state in (State.CONNECTED, State.ENCRYPTED, State.AUTHENTICATED):
        actions = Wire().to(state).negotiation.fail(StreamError("not-well-formed", "a<b"))
        assert condition(actions) == "not-well-formed"
        assert sent(actions).startswith(b"<?xml")
        assert b"a&lt;b" in sent(actions)
    actions = Wire().to(State.CLEAR).negotiation.fail(StreamError("reset"))
    assert sent(actions).startswith(b"<stream:error>")


def test_nothing_is_said_in_the_clear_during_a_handshake() -> None:
    for event in (Input.FAULT, Input.CLOSE, Input.STANZA):
        assert give(Wire().to(State.STARTING_TLS), event) == [Close()]


# Failed attempts


def test_three_failures_end_the_stream() -> None:
    wire = Wire().to(State.SECURE)
    for attempt in range(1, negotiation.MAX_SASL_FAILURES + 1):
        wire.feed(PLAIN)
        wire.negotiation.credentials_found(SHA256)
        actions = wire.negotiation.password_verified(False)
        assert actions == [LoginFailure("pump1", "not-authorized")]
        assert wire.negotiation.waiting
        assert wire.negotiation.failures == attempt
        actions = wire.negotiation.report_failure()
        assert b"<not-authorized/></failure>" in sent(actions)
        if attempt < negotiation.MAX_SASL_FAILURES:
            assert kinds(actions) == [Send]
            assert wire.state is State.SECURE
        else:
            assert condition(actions) == "policy-violation"


def test_a_failure_is_forgiven() -> None:
    wire = Wire().to(State.SECURE)
    wire.feed(auth("SCRAM-SHA-256", wire.first_message()))
    wire.negotiation.credentials_found(credentials.decoy("pump1", b"s" * 16))
    assert failure(wire, wire.feed(response(b"c=biws,r=x,p=YQ=="))) == "not-authorized"
    wire.feed(PLAIN)
    assert wire.negotiation.credentials_found(SHA256) == [VerifyPassword("pencil", SHA256)]
    assert LoginSuccess("pump1") in wire.negotiation.password_verified(True)


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [
        (auth("EXTERNAL"), "invalid-mechanism"),
        (auth("SCRAM-SHA-256-PLUS"), "invalid-mechanism"),
        (b"<auth xmlns='%b'/>" % SASL.encode(), "invalid-mechanism"),
        (b"<auth xmlns='%b' mechanism='PLAIN'>!</auth>" % SASL.encode(), "incorrect-encoding"),
        (b"<auth xmlns='%b' mechanism='PLAIN'> YQ==</auth>" % SASL.encode(), "incorrect-encoding"),
        (b"<auth xmlns='%b' mechanism='PLAIN'><a/></auth>" % SASL.encode(), "malformed-request"),
        (auth("PLAIN", b"pump1"), "malformed-request"),
        (auth("PLAIN", b"\0a b\0pencil"), "not-authorized"),
        (auth("PLAIN", b"\0pump1@gw.example\0pencil"), "not-authorized"),
        (auth("PLAIN", b"other\0pump1\0pencil"), "invalid-authzid"),
        (auth("PLAIN", b"pump1@other\0pump1\0pencil"), "invalid-authzid"),
        (auth("PLAIN", b"@\0pump1\0pencil"), "invalid-authzid"),
        (auth("SCRAM-SHA-1", b"n,a=other,n=pump1,r=abc"), "invalid-authzid"),
        (auth("SCRAM-SHA-1", b"p=tls-unique,,n=pump1,r=abc"), "malformed-request"),
    ],
)
def test_attempts_that_are_refused_at_once(attempt: bytes, expected: str) -> None:
    wire = Wire().to(State.SECURE)
    assert failure(wire, wire.feed(attempt)) == expected
    assert (wire.state, wire.negotiation.failures) == (State.SECURE, 1)


@pytest.mark.parametrize(
    "authzid", [b"", b"pump1", b"Pump1", b"pump1@gw.example", b"PUMP1@GW.example"]
)
def test_acting_as_oneself_is_allowed(authzid: bytes) -> None:
    wire = Wire().to(State.SECURE)
    assert wire.feed(auth("PLAIN", authzid + b"\0pump1\0pencil")) == [
        FindCredentials("pump1", "PLAIN")
    ]


def test_an_attempt_can_be_aborted() -> None:
    for state in (State.PROMPTED, State.CHALLENGED):
        wire = Wire().to(state)
        assert failure(wire, wire.feed(ABORT)) == "aborted"
        assert wire.state is State.SECURE
    wrong = f"<response xmlns='{SASL}'>!</response>".encode()
    for state in (State.PROMPTED, State.CHALLENGED):
        wire = Wire().to(state)
        assert failure(wire, wire.feed(wrong)) == "incorrect-encoding"


def test_a_lookup_that_fails_is_not_the_peers_fault() -> None:
    wire = Wire().to(State.LOOKING_UP)
    assert failure(wire, wire.negotiation.credentials_found(None)) == "temporary-auth-failure"


def test_plain_after_scram_that_failed_is_plain() -> None:
    wire = Wire().to(State.CHALLENGED)
    assert failure(wire, wire.feed(ABORT)) == "aborted"
    wire.feed(PLAIN)
    assert kinds(wire.negotiation.credentials_found(SHA256)) == [VerifyPassword]


# Binding


def bind(payload: bytes, attrs: bytes = b"id='b' type='set'") -> bytes:
    return b"<iq %b><bind xmlns='%b'>%b</bind></iq>" % (attrs, BIND.encode(), payload)


@pytest.mark.parametrize(
    ("payload", "resource"),
    [
        (b"", None),
        (b"<resource/>", None),
        (b"<resource></resource>", None),
        (b"<required/>", None),
        (b"<required/><resource>fw</resource>", "fw"),
        (b"<resource>a &amp; b/c</resource>", "a & b/c"),
        ("<resource>\u2168</resource>".encode(), "IX"),
    ],
)
def test_resources(payload: bytes, resource: str | None) -> None:
    assert Wire().to(State.UNBOUND).feed(bind(payload)) == [Bind(resource)]


@pytest.mark.parametrize(
    "request_",
    [
        bind(b"<resource>%b</resource>" % (b"x" * 1024)),
        bind("<resource>\u200e</resource>".encode()),
        bind(b"", b"id='b' type='get'"),
        bind(b"", b"id='b'"),
        bind(b"", b"type='set'"),
        bind(b"").replace(b"iq", b"message"),
    ],
)
def test_requests_to_bind_that_are_refused(request_: bytes) -> None:
    wire = Wire().to(State.UNBOUND)
    refused = sent(wire.feed(request_))
    assert b"<error type='modify'><bad-request " in refused
    assert wire.state is State.UNBOUND
    assert wire.feed(BIND_REQUEST) == [Bind("fw")]


def test_the_session_may_refuse_a_few_times() -> None:
    wire = Wire().to(State.UNBOUND)
    for attempt in range(1, negotiation.MAX_BIND_FAILURES + 1):
        wire.feed(BIND_REQUEST)
        actions = wire.negotiation.bind_refused(StanzaError("resource-constraint"))
        assert b"<error type='wait'><resource-constraint " in sent(actions)
        assert b"id='b'" in sent(actions)
        if attempt < negotiation.MAX_BIND_FAILURES:
            assert wire.state is State.UNBOUND
        else:
            assert condition(actions) == "policy-violation"


def test_ids_of_streams_are_random() -> None:
    header = StreamParser().feed(HEADER)[0]
    made = {sent(Negotiation("gw.example").receive(header)) for _ in range(20)}
    assert len(made) == 20
    assert CLIENT in next(iter(made)).decode()


def test_nothing_but_scram_is_challenged() -> None:
    with pytest.raises(UsageError):
        SaslAttempt(FIRST, "PLAIN", "gw.example", None).check_proof(b"")
