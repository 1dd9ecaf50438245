from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from edge.xmpp.errors import StanzaError, StreamError, UsageError
from edge.xmpp.namespaces import BIND, CLIENT, SESSION, STREAMS, TLS
from edge.xmpp.parser import ParseError, StreamParser
from edge.xmpp.stream import negotiation
from edge.xmpp.stream.actions import (
    Action,
    Bind,
    Close,
    FindCredentials,
    LoginSuccess,
    RestartStream,
    Route,
    Send,
    StartTls,
)
from edge.xmpp.stream.negotiation import Negotiation
from edge.xmpp.stream.requests import classify
from edge.xmpp.stream.states import FROM_PEER, TRANSITIONS, WAITING, Input, Rule, State
from tests.helpers import diagrams
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
    offered_mechanisms,
    response,
    response2,
    sent,
)

PEER_INPUTS: dict[Input, bytes] = {
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


CALLER_INPUTS: dict[Input, Callable[[Negotiation], list[Action]]] = {
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


def apply_input(stream: ServerStream, event: Input) -> list[Action]:
    """Apply an input to a negotiation in any state."""
    target = stream.negotiation
    if event in FROM_PEER:
        parser = StreamParser()
        items = parser.feed(HEADER if event is Input.OPEN else HEADER + PEER_INPUTS[event])
        assert classify(items[-1]) is event
        return target.receive(items[-1])
    return CALLER_INPUTS[event](target)


@pytest.mark.parametrize(("state", "event"), list(product(State, Input)), ids=str)
def test_every_state_with_every_input(state: State, event: Input) -> None:
    stream = ServerStream().to(state)
    if state is State.CLOSED:
        assert apply_input(stream, event) == []
        assert stream.state is State.CLOSED
        return
    transition = TRANSITIONS.get((state, event))
    if transition is None and event not in FROM_PEER:
        with pytest.raises(UsageError):
            apply_input(stream, event)
        assert stream.state is state
        return
    actions = apply_input(stream, event)
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


@pytest.mark.parametrize(
    ("state", "data", "expected"),
    [
        (State.CLEAR, b"<presence/>", "not-authorized"),
        (State.SECURE, b"<message to='gw.example'/>", "not-authorized"),
        (State.SECURE, BIND_REQUEST, "not-authorized"),
        (State.SECURE, ENABLE, "not-authorized"),
        (State.UNBOUND, b"<presence/>", "not-authorized"),
        (State.UNBOUND, STARTTLS, "policy-violation"),
        (State.UNBOUND, PLAIN, "policy-violation"),
        (State.BINDING, b"<presence/>", "policy-violation"),
        (State.BOUND, PLAIN, "policy-violation"),
    ],
)
def test_unexpected_elements_end_the_stream(state: State, data: bytes, expected: str) -> None:
    """The table of transitions must never allow these."""
    assert condition(ServerStream().to(state).feed(data)) == expected


def test_the_state_table_is_complete() -> None:
    assert {transition.rule for transition in TRANSITIONS.values()} == set(Rule)
    assert set(negotiation._RULES) == set(Rule)
    reached = {then for transition in TRANSITIONS.values() for then in transition.then}
    assert reached == set(State) - {State.CONNECTED}
    assert not any(state is State.CLOSED for state, _ in TRANSITIONS)
    for state, event in product(set(State) - {State.CLOSED}, (Input.CLOSE, Input.FAULT)):
        assert (state, event) in TRANSITIONS
    for state in WAITING:  # each has an input that does not come from the peer
        assert any(at is state and event not in FROM_PEER for at, event in TRANSITIONS)


def test_a_rule_with_a_wrong_target_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = ServerStream().to(State.UNBOUND)
    transition = TRANSITIONS[State.UNBOUND, Input.BIND]._replace(then=(State.CLOSED,))
    monkeypatch.setitem(TRANSITIONS, (State.UNBOUND, Input.BIND), transition)
    with pytest.raises(UsageError, match="bind led from unbound to binding"):
        stream.feed(BIND_REQUEST)


def test_the_diagram_shows_every_state() -> None:
    lines = diagrams.of_stream()
    for state in State:
        assert (f" {state.value}" in lines) == (state is not State.CLOSED)
    assert "    looking_up --> challenged: credentials found" in lines.splitlines()


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
    assert offered_mechanisms(offer) == (["SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN"],) * 2
    assert b"starttls" not in offer
    assert b"id='s2'" in offer
    lookup = stream.feed(auth(mechanism, stream.first_message(mechanism)))
    assert lookup == [FindCredentials("pump1", mechanism)]
    assert stream.negotiation.waiting
    proof = stream.proof(stream.negotiation.credentials_found(KEYS[mechanism]))
    assert stream.state not in WAITING
    actions = stream.feed(proof)
    assert actions[1:] == [LoginSuccess("pump1"), RestartStream()]
    assert stream.scram is not None
    stream.scram.set_server_final(content(actions).decode())
    assert stream.negotiation.username == "pump1"
    assert stream.negotiation.mechanism == mechanism
    offer = sent(stream.feed(HEADER))
    assert f"<bind xmlns='{BIND}'/>".encode() in offer
    assert f"<session xmlns='{SESSION}'><optional/></session>".encode() in offer
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


def test_optional_tls_allows_scram_and_not_plain() -> None:
    stream = ServerStream(require_tls=False)
    offer = sent(stream.feed(HEADER))
    assert offered_mechanisms(offer) == (["SCRAM-SHA-256", "SCRAM-SHA-1"],) * 2
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


@pytest.mark.parametrize("following", [b"<", b"<presence/>", b"<auth", PLAIN, HEADER[21:]])
def test_data_after_starttls_is_refused(following: bytes) -> None:
    stream = ServerStream().to(State.CLEAR)
    try:
        items = stream.items(STARTTLS + following)
    except ParseError as error:  # for a header within a stream
        items = error.items
    more = len(items) > 1 or stream.parser.pending > 0 or following == HEADER[21:]
    actions = stream.negotiation.receive(items[0], more=more)
    assert condition(actions) == "policy-violation"
    assert b"proceed" not in sent(actions)
    assert StartTls() not in actions


def test_whitespace_after_starttls_is_accepted() -> None:
    assert StartTls() in ServerStream().to(State.CLEAR).feed(STARTTLS + b"\n")


def test_a_wrong_domain_is_named_with_the_right_one() -> None:
    wrong = b"x" * 100 + b".example"
    actions = ServerStream().to(State.CONNECTED).feed(HEADER.replace(b"gw.example", wrong))
    text = b"'%b' is not served here; this gateway's domain is gw.example" % wrong[:64]
    assert text.replace(b"'", b"&apos;") in sent(actions).replace(b"'", b"&apos;")


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (HEADER.replace(b"etherx", b"other"), "invalid-namespace"),
        (HEADER.replace(b"jabber:client", b"jabber:server"), "invalid-namespace"),
        (HEADER.replace(b"xmlns='jabber:client'", b""), "invalid-namespace"),
        (HEADER.replace(b"<stream:stream", b"<stream:flow"), "bad-format"),
        (HEADER.replace(b"stream:stream", b"stream").replace(b"jabber:client", STREAMS.encode()),
         "bad-namespace-prefix"),
        (HEADER.replace(b"gw.example", b"other.example"), "host-unknown"),
        (HEADER.replace(b"gw.example", b"a b"), "host-unknown"),
        (HEADER.replace(b"gw.example", b"a@gw.example"), "host-unknown"),
        (HEADER.replace(b"gw.example", b""), "improper-addressing"),
        (HEADER.replace(b"to='gw.example'", b""), "improper-addressing"),
        (HEADER.replace(b" version='1.0' ", b" "), "unsupported-version"),
        (HEADER.replace(b"to='gw.example' version='1.0'", b"to='gw.example' version='0.9'"),
         "unsupported-version"),
        (HEADER.replace(b"to='gw.example' version='1.0'", b"to='gw.example' version='x'"),
         "unsupported-version"),
    ],
)  # fmt: skip
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
        assert apply_input(ServerStream().to(State.STARTING_TLS), event) == [Close()]


def test_stream_ids_are_random() -> None:
    header = StreamParser().feed(HEADER)[0]
    headers = {sent(Negotiation("gw.example").receive(header)) for _ in range(20)}
    assert len(headers) == 20
    assert CLIENT in next(iter(headers)).decode()


def test_a_stream_may_begin_under_tls() -> None:
    stream = ServerStream(secure=True)
    assert stream.state is State.ENCRYPTED
    assert stream.negotiation.secure
    offer = sent(stream.feed(HEADER))
    assert offer.startswith(b"<?xml version='1.0'?><stream:stream ")
    assert offered_mechanisms(offer) == (["SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN"],) * 2
    assert b"starttls" not in offer
    assert stream.feed(PLAIN) == [FindCredentials("pump1", "PLAIN")]


def test_limits_are_advertised() -> None:
    stream = ServerStream(limits=(10_240, 65_536))
    before = b"<limits xmlns='urn:xmpp:stream-limits:0'><max-bytes>10240</max-bytes></limits>"
    after = before.replace(b"10240", b"65536")
    assert before in sent(stream.feed(HEADER))
    stream = ServerStream(limits=(10_240, 65_536)).to(State.ENCRYPTED)
    assert before in sent(stream.feed(HEADER))
    stream = ServerStream(limits=(10_240, 65_536)).to(State.AUTHENTICATED)
    assert after in sent(stream.feed(HEADER))
    stream = ServerStream(limits=(10_240, 65_536)).to(State.SECURE)
    stream.feed(authenticate("PLAIN", b"\0pump1\0pencil", b"<bind xmlns='urn:xmpp:bind:0'/>"))
    stream.negotiation.credentials_found(SHA256)
    stream.negotiation.password_verified(True)
    assert after in sent(stream.negotiation.bound("pump1@gw.example/x"))
    assert b"limits" not in sent(ServerStream().feed(HEADER))


def test_stream_management_is_offered_after_authentication_only() -> None:
    offer = b"</session><sm xmlns='urn:xmpp:sm:3'/>"
    assert offer in sent(ServerStream().to(State.AUTHENTICATED).feed(HEADER))
    assert offer not in sent(ServerStream().to(State.ENCRYPTED).feed(HEADER))


def test_errors_carry_an_application_specific_condition() -> None:
    stream = ServerStream().to(State.BOUND)
    error = StreamError("undefined-condition", "t", application=b"<x xmlns='u'/>")
    output = sent(stream.negotiation.fail(error))
    assert output.endswith(b"</text><x xmlns='u'/></stream:error></stream:stream>")
