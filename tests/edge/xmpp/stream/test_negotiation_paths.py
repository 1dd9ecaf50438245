"""Tests of stream negotiation: certificates, direct TLS, failures, resumption and limits."""

from __future__ import annotations

import pytest

from edge.xmpp.errors import StreamError
from edge.xmpp.stream import negotiation
from edge.xmpp.stream.actions import (
    Action,
    Bind,
    FindCertificateOwner,
    FindCredentials,
    LoginFailure,
    LoginSuccess,
    ManageStream,
    RestartStream,
    Resume,
    Send,
)
from edge.xmpp.stream.management import failed
from edge.xmpp.stream.states import State
from tests.helpers.negotiation import (
    BIND_REQUEST,
    ENABLE,
    HEADER,
    PLAIN,
    RESUME,
    SHA256,
    ServerStream,
    auth,
    authenticate,
    condition,
    failure,
    offered,
    response,
    sent,
    types,
)

ALL = ["EXTERNAL", "SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN"]


# Certificates


def with_certificate(**options: bool) -> ServerStream:
    """Return a stream that waits for authentication of a peer with a certificate."""
    stream = ServerStream(secure=True, certificate=True, **options)
    stream.feed(HEADER)
    assert stream.state is State.SECURE
    return stream


def test_external_is_offered_if_there_is_a_certificate() -> None:
    stream = ServerStream().to(State.STARTING_TLS)
    assert stream.negotiation.tls_established(certificate=True) == []
    assert offered(sent(stream.feed(HEADER))) == (ALL, ALL)
    stream = ServerStream().to(State.STARTING_TLS)
    stream.negotiation.tls_established()
    assert "EXTERNAL" not in offered(sent(stream.feed(HEADER)))[0]


@pytest.mark.parametrize(
    "authzid",
    [b"", b"pump1", b"pump1@gw.example", b"PUMP1@gw.example", b"Pump1", b"pump1@gw.example/fw"],
)
def test_login_by_external(authzid: bytes) -> None:
    stream = with_certificate()
    assert stream.feed(auth("EXTERNAL", authzid)) == [FindCertificateOwner()]
    assert stream.negotiation.waiting
    done = stream.negotiation.owner_found("pump1")
    assert done == [
        Send(b"<success xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>"),
        LoginSuccess("pump1"),
        RestartStream(),
    ]
    assert (stream.negotiation.username, stream.negotiation.mechanism) == ("pump1", "EXTERNAL")


def test_external_after_a_challenge() -> None:
    stream = with_certificate()
    assert sent(stream.feed(auth("EXTERNAL"))) == (
        b"<challenge xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>"
    )
    empty = b"<response xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>"
    assert stream.feed(empty) == [FindCertificateOwner()]


def test_external_by_sasl2() -> None:
    stream = with_certificate()
    assert stream.feed(authenticate("EXTERNAL", b"")) == [FindCertificateOwner()]
    assert types(stream.negotiation.owner_found("pump1")) == [LoginSuccess, Send]


@pytest.mark.parametrize(
    "authzid",
    [
        b"pump2",
        b"pump2@gw.example",
        b"pump2@gw.example/fw",
        b"gw.example/pump1",
        b"pump1@other",
        b"@",
    ],
)
def test_external_refuses_another_identity(authzid: bytes) -> None:
    stream = with_certificate()
    stream.feed(auth("EXTERNAL", authzid))
    assert failure(stream, stream.negotiation.owner_found("pump1")) == "invalid-authzid"
    assert stream.negotiation.username == ""


def test_a_certificate_without_an_owner_fails() -> None:
    stream = with_certificate()
    stream.feed(auth("EXTERNAL", b""))
    assert failure(stream, stream.negotiation.owner_found(None)) == "not-authorized"


def test_external_needs_a_certificate() -> None:
    for stream in (
        ServerStream().to(State.SECURE),
        ServerStream().to(State.CLEAR),
        ServerStream(secure=True),
    ):
        if stream.state is State.ENCRYPTED:
            stream.feed(HEADER)
        assert failure(stream, stream.feed(auth("EXTERNAL", b""))) == "invalid-mechanism"


def test_data_ahead_of_success_ends_the_stream() -> None:
    stream = with_certificate()
    stream.feed(auth("EXTERNAL", b""))
    actions = stream.negotiation.owner_found("pump1", more=True)
    assert condition(actions) == "policy-violation"


# Direct TLS


def test_a_stream_may_begin_under_tls() -> None:
    stream = ServerStream(secure=True)
    assert stream.state is State.ENCRYPTED
    assert stream.negotiation.secure
    offer = sent(stream.feed(HEADER))
    assert offer.startswith(b"<?xml version='1.0'?><stream:stream ")
    assert offered(offer) == (ALL[1:], ALL[1:])
    assert b"starttls" not in offer
    assert stream.feed(PLAIN) == [FindCredentials("pump1", "PLAIN")]


# Delayed failures


def test_a_refused_attempt_is_a_temporary_failure() -> None:
    stream = ServerStream().to(State.LOOKING_UP)
    actions = stream.negotiation.attempt_refused()
    assert actions == [LoginFailure("pump1", "temporary-auth-failure")]
    assert failure(stream, actions) == "temporary-auth-failure"
    stream = ServerStream().to(State.IDENTIFYING)
    actions = stream.negotiation.attempt_refused()
    assert actions == [LoginFailure("", "temporary-auth-failure")]
    assert failure(stream, actions) == "temporary-auth-failure"


@pytest.mark.parametrize(
    ("attempt", "name"),
    [
        (auth("PLAIN", b"other\0Pump1\0pencil"), "pump1"),
        (auth("PLAIN", b"\0a b\0pencil"), ""),
        (auth("PLAIN", b"malformed"), ""),
        (auth("X"), ""),
    ],
)
def test_a_failure_names_the_account_if_known(attempt: bytes, name: str) -> None:
    stream = ServerStream().to(State.SECURE)
    actions = stream.feed(attempt)
    assert isinstance(actions[0], LoginFailure)
    assert actions[0].username == name


def test_a_failure_does_not_name_an_earlier_attempts_account() -> None:
    stream = ServerStream().to(State.LOOKING_UP)
    stream.negotiation.credentials_found(None)
    stream.negotiation.report_failure()
    assert stream.feed(auth("X")) == [LoginFailure("", "invalid-mechanism")]


def test_a_peer_must_wait_for_the_report_of_a_failure() -> None:
    stream = ServerStream().to(State.DENIED)
    assert stream.negotiation.waiting
    assert condition(stream.feed(PLAIN)) == "policy-violation"
    stream = ServerStream().to(State.DENIED)
    assert sent(stream.feed(b"</stream:stream>")) == b"</stream:stream>"
    stream = ServerStream().to(State.DENIED)
    assert condition(stream.negotiation.fail(StreamError("system-shutdown"))) == "system-shutdown"


# The authenticated stream


@pytest.mark.parametrize(
    ("opener", "allowed"),
    [
        (b"pump1@gw.example", True),
        (b"PUMP1@gw.example/fw", True),
        (b"pump2@gw.example", False),
        (b"localhost", True),
        (b"localhost/fw", True),
        (b"@", False),
        (b"", False),
    ],
)
def test_the_authenticated_stream_must_be_from_the_account(opener: bytes, allowed: bool) -> None:
    stream = ServerStream().to(State.AUTHENTICATED)
    actions = stream.feed(HEADER.replace(b"to=", b"from='%b' to=" % opener))
    if allowed:
        assert stream.state is State.UNBOUND
    else:
        assert condition(actions) == "invalid-from"
    before = ServerStream().to(State.ENCRYPTED)
    before.feed(HEADER.replace(b"to=", b"from='%b' to=" % opener))
    assert before.state is State.SECURE


# Resumption, and stream management before there is a session


def test_a_session_is_resumed_instead_of_binding() -> None:
    stream = ServerStream().to(State.UNBOUND)
    assert stream.feed(RESUME) == [Resume("p1", 7)]
    assert stream.negotiation.waiting
    answer = stream.negotiation.resumed("pump1@gw.example/fw", "p1", 2**32 - 1)
    assert answer == [Send(b"<resumed xmlns='urn:xmpp:sm:3' previd='p1' h='4294967295'/>")]
    assert stream.state is State.BOUND


def test_an_unknown_session_is_not_resumed() -> None:
    stream = ServerStream().to(State.RESUMING)
    assert stream.negotiation.not_resumed(9) == [Send(failed("item-not-found", 9))]
    stream.feed(RESUME)
    assert stream.negotiation.not_resumed() == [Send(failed("item-not-found"))]
    assert stream.feed(BIND_REQUEST) == [Bind("fw")]


@pytest.mark.parametrize(
    "wrong",
    [
        RESUME.replace(b" h='7'", b""),
        RESUME.replace(b"'7'", b"'-1'"),
        RESUME.replace(b" previd='p1'", b""),
        RESUME.replace(b"'p1'", b"''"),
    ],
)
def test_an_invalid_resume_request_is_refused(wrong: bytes) -> None:
    stream = ServerStream().to(State.UNBOUND)
    assert stream.feed(wrong) == [Send(failed("bad-request"))]
    assert stream.feed(RESUME) == [Resume("p1", 7)]


def test_stream_management_needs_a_session() -> None:
    for element in (ENABLE, b"<r xmlns='urn:xmpp:sm:3'/>", b"<a xmlns='urn:xmpp:sm:3' h='1'/>"):
        stream = ServerStream().to(State.UNBOUND)
        assert stream.feed(element) == [Send(failed("unexpected-request"))]
        assert stream.feed(BIND_REQUEST) == [Bind("fw")]


def test_too_many_refused_requests_end_the_stream() -> None:
    stream = ServerStream().to(State.UNBOUND)
    actions: list[Action] = []
    for attempt in range(1, negotiation.MAX_BIND_FAILURES + 1):
        if attempt % 2:
            actions = stream.feed(ENABLE)
        else:
            stream.feed(RESUME)
            actions = stream.negotiation.not_resumed()
        if attempt < negotiation.MAX_BIND_FAILURES:
            assert types(actions) == [Send]
    assert condition(actions) == "policy-violation"
    assert sent(actions).startswith(failed("unexpected-request"))


def test_management_elements_go_to_the_session() -> None:
    stream = ServerStream().to(State.BOUND)
    for element in (ENABLE, RESUME, b"<r xmlns='urn:xmpp:sm:3'/>", b"<x xmlns='urn:xmpp:sm:3'/>"):
        (action,) = stream.feed(element)
        assert isinstance(action, ManageStream)
        assert action.item.raw == element
    older = ENABLE.replace(b"sm:3", b"sm:2")
    assert condition(stream.feed(older)) == "unsupported-stanza-type"


# Advertised features


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


def test_a_too_long_response_is_malformed() -> None:
    stream = ServerStream().to(State.PROMPTED)
    assert failure(stream, stream.feed(response(b"x" * 5000))) == "malformed-request"
