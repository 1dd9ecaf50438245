"""Tests of stream negotiation: the state table, TLS, SASL and binding."""

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
    ServerStream,
    auth,
    authenticate,
    condition,
    content,
    failure,
    offered,
    response,
    response2,
    sent,
    types,
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


CALLER: dict[Input, Callable[[Negotiation], list[Action]]] = {
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


def give(stream: ServerStream, event: Input) -> list[Action]:
    """Give an input to a negotiation, whatever its state."""
    it = stream.negotiation
    if event in FROM_PEER:
        parser = StreamParser()
        items = parser.feed(HEADER if event is Input.OPEN else HEADER + PEER[event])
        assert classify(items[-1]) is event
        return it.receive(items[-1])
    return CALLER[event](it)


@pytest.mark.parametrize(("state", "event"), list(product(State, Input)), ids=str)
def test_every_state_with_every_input(state: State, event: Input) -> None:
    stream = ServerStream().to(state)
    if state is State.CLOSED:
        assert give(stream, event) == []
        assert stream.state is State.CLOSED
        return
    transition = TRANSITIONS.get((state, event))
    if transition is None and event not in FROM_PEER:
        with pytest.raises(UsageError):
            give(stream, event)
        assert stream.state is state
        return
    actions = give(stream, event)
    if transition is None:
        assert stream.state is State.CLOSED
        assert actions[-1] == Close()
        if state is not State.STARTING_TLS:
            assert condition(actions) == expected_condition(state, event)
    else:
        assert stream.state in transition.then
    assert (Close() in actions) == (stream.state is State.CLOSED)


def expected_condition(state: State, event: Input) -> str:
    if state in WAITING:
        return "policy-violation"
    if event in (Input.STANZA, Input.BIND, Input.RESUME, Input.MANAGE):
        return "not-authorized"
    return "unsupported-stanza-type" if event is Input.OTHER else "policy-violation"


def test_the_state_table_is_complete() -> None:
    assert {transition.rule for transition in TRANSITIONS.values()} == set(Rule)
    assert set(negotiation._RULES) == set(Rule)
    reached = {then for transition in TRANSITIONS.values() for then in transition.then}
    assert reached == set(State) - {State.CONNECTED}
    assert not any(state is State.CLOSED for state, _ in TRANSITIONS)
    for state, event in product(set(State) - {State.CLOSED}, (Input.CLOSE, Input.FAULT)):
        assert (state, event) in TRANSITIONS
    for state in WAITING:  # each has an input that is not the peer's
        assert any(at is state and event not in FROM_PEER for at, event in TRANSITIONS)


def test_a_rule_that_leads_elsewhere_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = ServerStream().to(State.UNBOUND)
    astray = TRANSITIONS[State.UNBOUND, Input.BIND]._replace(then=(State.CLOSED,))
    monkeypatch.setitem(TRANSITIONS, (State.UNBOUND, Input.BIND), astray)
    with pytest.raises(UsageError, match="bind led from unbound to binding"):
        stream.feed(BIND_REQUEST)


def test_the_diagram_shows_every_state() -> None:
    drawn = diagram()
    for state in State:
        assert (f" {state.value}" in drawn) == (state is not State.CLOSED)
    assert "    looking_up --> challenged: credentials found" in drawn.splitlines()


def test_the_document_has_the_diagram() -> None:
    document = Path(__file__).parents[4] / "docs" / "explanation" / "architecture.md"
    blocks = re.findall(r"```mermaid\n(stateDiagram-v2\n.*?)\n```", document.read_text(), re.DOTALL)
    assert diagram() in blocks


# Successful logins


@pytest.mark.parametrize("mechanism", KEYS)
def test_login_by_scram_and_binding(mechanism: str) -> None:
    stream = ServerStream(features=b"<c xmlns='u'/>")
    offer = sent(stream.feed(HEADER))
    assert b"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'><required/></starttls>" in offer
    assert b"<mechanism" not in offer
    assert stream.feed(STARTTLS) == [Send(f"<proceed xmlns='{TLS}'/>".encode()), StartTls()]
    assert stream.negotiation.waiting
    assert stream.negotiation.tls_established() == []
    assert stream.negotiation.secure
    offer = sent(stream.feed(HEADER))
    assert offered(offer) == (["SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN"],) * 2
    assert b"starttls" not in offer
    assert b"id='s2'" in offer
    wanted = stream.feed(auth(mechanism, stream.first_message(mechanism)))
    assert wanted == [FindCredentials("pump1", mechanism)]
    assert stream.negotiation.waiting
    proof = stream.proof(stream.negotiation.credentials_found(KEYS[mechanism]))
    assert stream.state not in WAITING
    done = stream.feed(proof)
    assert done[1:] == [LoginSuccess("pump1"), RestartStream()]
    assert stream.scram is not None
    stream.scram.set_server_final(content(done).decode())
    assert stream.negotiation.username == "pump1"
    assert stream.negotiation.mechanism == mechanism
    offer = sent(stream.feed(HEADER))
    assert f"<bind xmlns='{BIND}'/>".encode() in offer
    assert b"<session " in offer
    assert offer.endswith(b"<c xmlns='u'/></stream:features>")
    assert stream.feed(BIND_REQUEST) == [Bind("fw")]
    assert stream.negotiation.waiting
    answer = sent(stream.negotiation.bound("pump1@gw.example/fw"))
    assert answer == (
        f"<iq type='result' id='b'><bind xmlns='{BIND}'>"
        "<jid>pump1@gw.example/fw</jid></bind></iq>".encode()
    )
    routed = stream.feed(b"<message id='1'/><iq id='2'><bind xmlns='%b'/></iq>" % BIND.encode())
    assert [action.stanza.attrs["id"] for action in routed if isinstance(action, Route)] == [
        "1",
        "2",
    ]
    assert stream.feed(b"</stream:stream>") == [Send(b"</stream:stream>"), Close()]


def test_login_by_plain() -> None:
    stream = ServerStream().to(State.SECURE)
    assert stream.feed(PLAIN) == [FindCredentials("pump1", "PLAIN")]
    assert stream.negotiation.credentials_found(SHA256) == [VerifyPassword("pencil", SHA256)]
    assert "pencil" not in repr(VerifyPassword("pencil", SHA256))
    done = stream.perform(stream.negotiation.password_verified(True))
    assert done == [
        Send(f"<success xmlns='{SASL}'/>".encode()),
        LoginSuccess("pump1"),
        RestartStream(),
    ]


def test_the_first_message_may_follow_an_empty_challenge() -> None:
    stream = ServerStream().to(State.SECURE)
    asked = stream.feed(auth("SCRAM-SHA-256"))
    assert asked == [Send(f"<challenge xmlns='{SASL}'/>".encode())]
    assert stream.feed(response(stream.first_message())) == [
        FindCredentials("pump1", "SCRAM-SHA-256")
    ]
    assert types(stream.feed(stream.proof(stream.negotiation.credentials_found(SHA256)))) == [
        Send,
        LoginSuccess,
        RestartStream,
    ]


def test_an_empty_first_message_is_malformed() -> None:
    for attempt in (auth("SCRAM-SHA-256", b""), auth("PLAIN", b"")):
        stream = ServerStream().to(State.SECURE)
        assert failure(stream, stream.feed(attempt)) == "malformed-request"
    empty = f"<response xmlns='{SASL}'/>".encode()
    for state in (State.PROMPTED, State.CHALLENGED):
        stream = ServerStream().to(state)
        assert failure(stream, stream.feed(empty)) == "malformed-request"


def test_optional_tls_allows_scram_and_not_plain() -> None:
    stream = ServerStream(require_tls=False)
    offer = sent(stream.feed(HEADER))
    assert offered(offer) == (["SCRAM-SHA-256", "SCRAM-SHA-1"],) * 2
    assert f"<starttls xmlns='{TLS}'/>".encode() in offer
    assert failure(stream, stream.feed(PLAIN)) == "encryption-required"
    stream.feed(auth("SCRAM-SHA-256", stream.first_message()))
    assert LoginSuccess("pump1") in stream.feed(
        stream.proof(stream.negotiation.credentials_found(SHA256))
    )
    assert b"starttls" not in sent(stream.feed(HEADER))
    assert stream.state is State.UNBOUND


def test_starttls_under_tls_is_refused() -> None:
    refused = ServerStream().to(State.SECURE).feed(STARTTLS)
    assert sent(refused) == f"<failure xmlns='{TLS}'/></stream:stream>".encode()
    assert refused[-1] == Close()


def test_required_tls_refuses_authentication_without_it() -> None:
    for attempt in (PLAIN, auth("SCRAM-SHA-256", b"n,,n=a,r=b"), auth("SCRAM-SHA-1")):
        stream = ServerStream().to(State.CLEAR)
        assert failure(stream, stream.feed(attempt)) == "encryption-required"
        assert stream.state is State.CLEAR


# Faults


@pytest.mark.parametrize("behind", [b"<", b"<presence/>", b"<auth", PLAIN, HEADER[21:]])
def test_data_behind_starttls_is_refused(behind: bytes) -> None:
    stream = ServerStream().to(State.CLEAR)
    try:
        items = stream.items(STARTTLS + behind)
    except ParseError as error:  # for a header within a stream
        items = error.items
    more = len(items) > 1 or stream.parser.pending > 0 or behind == HEADER[21:]
    actions = stream.negotiation.receive(items[0], more=more)
    assert condition(actions) == "policy-violation"
    assert b"proceed" not in sent(actions)
    assert StartTls() not in actions


def test_whitespace_behind_starttls_is_accepted() -> None:
    assert StartTls() in ServerStream().to(State.CLEAR).feed(STARTTLS + b"\n")


def test_data_ahead_of_success_is_refused() -> None:
    stream = ServerStream().to(State.SECURE)
    stream.feed(auth("SCRAM-SHA-256", stream.first_message()))
    proof = stream.proof(stream.negotiation.credentials_found(SHA256))
    actions = stream.feed(proof + b"<iq")
    assert condition(actions) == "policy-violation"
    assert b"success" not in sent(actions)
    plain = ServerStream().to(State.VERIFYING)
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
def test_invalid_headers_are_refused(state: State, header: bytes, expected: str) -> None:
    actions = ServerStream().to(state).feed(header)
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
def test_valid_headers_are_accepted(change: tuple[bytes, bytes]) -> None:
    header = HEADER.replace(*change).replace(
        b"xmlns:stream=", b"xmlns:s=" if change[0] == b"stream:" else b"xmlns:stream="
    )
    stream = ServerStream()
    stream.feed(header)
    assert stream.state is State.CLEAR


def test_our_header_is_addressed_to_the_peers_from() -> None:
    header = HEADER.replace(b"to=", b"from='Pump1@gw.example' to=")
    assert b" to='pump1@gw.example'" in sent(ServerStream().feed(header))
    bad = HEADER.replace(b"to=", b"from='@' to=")
    assert b" to=" not in sent(ServerStream().feed(bad))


def test_an_error_before_the_header_is_sent_in_a_stream() -> None:
    for state in (State.CONNECTED, State.ENCRYPTED, State.AUTHENTICATED):
        actions = ServerStream().to(state).negotiation.fail(StreamError("not-well-formed", "a<b"))
        assert condition(actions) == "not-well-formed"
        assert sent(actions).startswith(b"<?xml")
        assert b"a&lt;b" in sent(actions)
    actions = ServerStream().to(State.CLEAR).negotiation.fail(StreamError("reset"))
    assert sent(actions).startswith(b"<stream:error>")


def test_nothing_is_sent_during_a_tls_handshake() -> None:
    for event in (Input.FAULT, Input.CLOSE, Input.STANZA):
        assert give(ServerStream().to(State.STARTING_TLS), event) == [Close()]


# Failed attempts


def test_three_failures_end_the_stream() -> None:
    stream = ServerStream().to(State.SECURE)
    for attempt in range(1, negotiation.MAX_SASL_FAILURES + 1):
        stream.feed(PLAIN)
        stream.negotiation.credentials_found(SHA256)
        actions = stream.negotiation.password_verified(False)
        assert actions == [LoginFailure("pump1", "not-authorized")]
        assert stream.negotiation.waiting
        assert stream.negotiation.failures == attempt
        actions = stream.negotiation.report_failure()
        assert b"<not-authorized/></failure>" in sent(actions)
        if attempt < negotiation.MAX_SASL_FAILURES:
            assert types(actions) == [Send]
            assert stream.state is State.SECURE
        else:
            assert condition(actions) == "policy-violation"


def test_a_login_may_succeed_after_a_failure() -> None:
    stream = ServerStream().to(State.SECURE)
    stream.feed(auth("SCRAM-SHA-256", stream.first_message()))
    stream.negotiation.credentials_found(credentials.decoy("pump1", b"s" * 16))
    assert failure(stream, stream.feed(response(b"c=biws,r=x,p=YQ=="))) == "not-authorized"
    stream.feed(PLAIN)
    assert stream.negotiation.credentials_found(SHA256) == [VerifyPassword("pencil", SHA256)]
    assert LoginSuccess("pump1") in stream.negotiation.password_verified(True)


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
def test_invalid_attempts_fail(attempt: bytes, expected: str) -> None:
    stream = ServerStream().to(State.SECURE)
    assert failure(stream, stream.feed(attempt)) == expected
    assert (stream.state, stream.negotiation.failures) == (State.SECURE, 1)


@pytest.mark.parametrize(
    "authzid", [b"", b"pump1", b"Pump1", b"pump1@gw.example", b"PUMP1@GW.example"]
)
def test_the_own_identity_is_a_valid_authzid(authzid: bytes) -> None:
    stream = ServerStream().to(State.SECURE)
    assert stream.feed(auth("PLAIN", authzid + b"\0pump1\0pencil")) == [
        FindCredentials("pump1", "PLAIN")
    ]


def test_a_failed_look_up_is_a_temporary_failure() -> None:
    stream = ServerStream().to(State.LOOKING_UP)
    assert failure(stream, stream.negotiation.credentials_found(None)) == "temporary-auth-failure"


def test_plain_may_follow_an_aborted_scram() -> None:
    stream = ServerStream().to(State.CHALLENGED)
    assert failure(stream, stream.feed(ABORT)) == "aborted"
    stream.feed(PLAIN)
    assert types(stream.negotiation.credentials_found(SHA256)) == [VerifyPassword]


@pytest.mark.parametrize("state", [State.PROMPTED, State.CHALLENGED])
def test_a_response_may_abort_or_be_invalid(state: State) -> None:
    stream = ServerStream().to(state)
    assert failure(stream, stream.feed(ABORT)) == "aborted"
    assert stream.state is State.SECURE
    stream = ServerStream().to(state)
    invalid = f"<response xmlns='{SASL}'>!</response>".encode()
    assert failure(stream, stream.feed(invalid)) == "incorrect-encoding"


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
    assert ServerStream().to(State.UNBOUND).feed(bind(payload)) == [Bind(resource)]


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
def test_invalid_bind_requests_are_refused(request_: bytes) -> None:
    stream = ServerStream().to(State.UNBOUND)
    refused = sent(stream.feed(request_))
    assert b"<error type='modify'><bad-request " in refused
    assert stream.state is State.UNBOUND
    assert stream.feed(BIND_REQUEST) == [Bind("fw")]


def test_too_many_refused_bind_requests_end_the_stream() -> None:
    stream = ServerStream().to(State.UNBOUND)
    for attempt in range(1, negotiation.MAX_BIND_FAILURES + 1):
        stream.feed(BIND_REQUEST)
        actions = stream.negotiation.bind_refused(StanzaError("resource-constraint"))
        assert b"<error type='wait'><resource-constraint " in sent(actions)
        assert b"id='b'" in sent(actions)
        if attempt < negotiation.MAX_BIND_FAILURES:
            assert stream.state is State.UNBOUND
        else:
            assert condition(actions) == "policy-violation"


def test_stream_ids_are_random() -> None:
    header = StreamParser().feed(HEADER)[0]
    headers = {sent(Negotiation("gw.example").receive(header)) for _ in range(20)}
    assert len(headers) == 20
    assert CLIENT in next(iter(headers)).decode()


def test_only_scram_has_a_challenge() -> None:
    with pytest.raises(UsageError):
        SaslAttempt(FIRST, "PLAIN", "gw.example", None).check_proof(b"")
