"""Stream negotiation: certificates, direct TLS, throttled attempts, resumption, limits."""

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
    Wire,
    auth,
    authenticate,
    condition,
    failure,
    kinds,
    offered,
    response,
    sent,
)

ALL = ["EXTERNAL", "SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN"]


# Certificates


def shown(**options: bool) -> Wire:
    """Bring a stream whose peer has shown a certificate to authentication."""
    wire = Wire(secure=True, certificate=True, **options)
    wire.feed(HEADER)
    assert wire.state is State.SECURE
    return wire


def test_external_is_offered_to_who_has_shown_a_certificate() -> None:
    wire = Wire().to(State.STARTING_TLS)
    assert wire.negotiation.tls_established(certificate=True) == []
    assert offered(sent(wire.feed(HEADER))) == (ALL, ALL)
    wire = Wire().to(State.STARTING_TLS)
    wire.negotiation.tls_established()
    assert "EXTERNAL" not in offered(sent(wire.feed(HEADER)))[0]


@pytest.mark.parametrize(
    "authzid",
    [b"", b"pump1", b"pump1@gw.example", b"PUMP1@gw.example", b"Pump1", b"pump1@gw.example/fw"],
)
def test_external(authzid: bytes) -> None:
    wire = shown()
    assert wire.feed(auth("EXTERNAL", authzid)) == [FindCertificateOwner()]
    assert wire.negotiation.waiting
    done = wire.negotiation.owner_found("pump1")
    assert done == [
        Send(b"<success xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>"),
        LoginSuccess("pump1"),
        RestartStream(),
    ]
    assert (wire.negotiation.username, wire.negotiation.mechanism) == ("pump1", "EXTERNAL")


def test_external_after_a_challenge() -> None:
    wire = shown()
    assert sent(wire.feed(auth("EXTERNAL"))) == (
        b"<challenge xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>"
    )
    empty = b"<response xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>"
    assert wire.feed(empty) == [FindCertificateOwner()]


def test_external_by_sasl2() -> None:
    wire = shown()
    assert wire.feed(authenticate("EXTERNAL", b"")) == [FindCertificateOwner()]
    assert kinds(wire.negotiation.owner_found("pump1")) == [LoginSuccess, Send]


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
def test_external_as_another(authzid: bytes) -> None:
    wire = shown()
    wire.feed(auth("EXTERNAL", authzid))
    assert failure(wire, wire.negotiation.owner_found("pump1")) == "invalid-authzid"
    assert wire.negotiation.username == ""


def test_a_certificate_that_is_nobodys() -> None:
    wire = shown()
    wire.feed(auth("EXTERNAL", b""))
    assert failure(wire, wire.negotiation.owner_found(None)) == "not-authorized"


def test_external_without_a_certificate() -> None:
    for wire in (Wire().to(State.SECURE), Wire().to(State.CLEAR), Wire(secure=True)):
        if wire.state is State.ENCRYPTED:
            wire.feed(HEADER)
        assert failure(wire, wire.feed(auth("EXTERNAL", b""))) == "invalid-mechanism"


def test_what_is_sent_ahead_of_success() -> None:
    wire = shown()
    wire.feed(auth("EXTERNAL", b""))
    actions = wire.negotiation.owner_found("pump1", more=True)
    assert condition(actions) == "policy-violation"


def test_a_message_of_external_that_is_malformed() -> None:
    for message in (b"a\0b", b"\xff"):
        wire = shown()
        assert failure(wire, wire.feed(auth("EXTERNAL", message))) == "malformed-request"


# Direct TLS


def test_a_stream_may_begin_under_tls() -> None:
    wire = Wire(secure=True)
    assert wire.state is State.ENCRYPTED
    assert wire.negotiation.secure
    offer = sent(wire.feed(HEADER))
    assert offer.startswith(b"<?xml version='1.0'?><stream:stream ")
    assert offered(offer) == (ALL[1:], ALL[1:])
    assert b"starttls" not in offer
    assert wire.feed(PLAIN) == [FindCredentials("pump1", "PLAIN")]


# Failures are told late


def test_an_attempt_too_many() -> None:
    wire = Wire().to(State.LOOKING_UP)
    actions = wire.negotiation.attempt_refused()
    assert actions == [LoginFailure("pump1", "temporary-auth-failure")]
    assert failure(wire, actions) == "temporary-auth-failure"
    wire = Wire().to(State.IDENTIFYING)
    actions = wire.negotiation.attempt_refused()
    assert actions == [LoginFailure("", "temporary-auth-failure")]
    assert failure(wire, actions) == "temporary-auth-failure"


@pytest.mark.parametrize(
    ("attempt", "name"),
    [
        (auth("PLAIN", b"other\0Pump1\0pencil"), "pump1"),
        (auth("PLAIN", b"\0a b\0pencil"), ""),
        (auth("PLAIN", b"malformed"), ""),
        (auth("X"), ""),
    ],
)
def test_who_failed_is_told_where_it_was_named(attempt: bytes, name: str) -> None:
    wire = Wire().to(State.SECURE)
    actions = wire.feed(attempt)
    assert isinstance(actions[0], LoginFailure)
    assert actions[0].username == name


def test_the_name_of_one_attempt_is_not_that_of_the_next() -> None:
    wire = Wire().to(State.LOOKING_UP)
    wire.negotiation.credentials_found(None)
    wire.negotiation.report_failure()
    assert wire.feed(auth("X")) == [LoginFailure("", "invalid-mechanism")]


def test_a_peer_that_does_not_wait_for_its_failure() -> None:
    wire = Wire().to(State.DENIED)
    assert wire.negotiation.waiting
    assert condition(wire.feed(PLAIN)) == "policy-violation"
    wire = Wire().to(State.DENIED)
    assert sent(wire.feed(b"</stream:stream>")) == b"</stream:stream>"
    wire = Wire().to(State.DENIED)
    assert condition(wire.negotiation.fail(StreamError("system-shutdown"))) == "system-shutdown"


# Who opens the authenticated stream


@pytest.mark.parametrize(
    ("opener", "right"),
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
def test_the_stream_after_authentication_is_opened_from_the_account(
    opener: bytes, right: bool
) -> None:
    wire = Wire().to(State.AUTHENTICATED)
    actions = wire.feed(HEADER.replace(b"to=", b"from='%b' to=" % opener))
    if right:
        assert wire.state is State.UNBOUND
    else:
        assert condition(actions) == "invalid-from"
    before = Wire().to(State.ENCRYPTED)
    before.feed(HEADER.replace(b"to=", b"from='%b' to=" % opener))
    assert before.state is State.SECURE


# Resumption, and stream management before there is a session


def test_a_session_is_resumed_in_place_of_binding() -> None:
    wire = Wire().to(State.UNBOUND)
    assert wire.feed(RESUME) == [Resume("p1", 7)]
    assert wire.negotiation.waiting
    told = wire.negotiation.resumed("pump1@gw.example/fw", "p1", 2**32 - 1)
    assert told == [Send(b"<resumed xmlns='urn:xmpp:sm:3' previd='p1' h='4294967295'/>")]
    assert wire.state is State.BOUND


def test_a_session_that_is_no_more() -> None:
    wire = Wire().to(State.RESUMING)
    assert wire.negotiation.not_resumed(9) == [Send(failed("item-not-found", 9))]
    wire.feed(RESUME)
    assert wire.negotiation.not_resumed() == [Send(failed("item-not-found"))]
    assert wire.feed(BIND_REQUEST) == [Bind("fw")]


@pytest.mark.parametrize(
    "wrong",
    [
        RESUME.replace(b" h='7'", b""),
        RESUME.replace(b"'7'", b"'-1'"),
        RESUME.replace(b" previd='p1'", b""),
        RESUME.replace(b"'p1'", b"''"),
    ],
)
def test_a_request_to_resume_that_is_wrong(wrong: bytes) -> None:
    wire = Wire().to(State.UNBOUND)
    assert wire.feed(wrong) == [Send(failed("bad-request"))]
    assert wire.feed(RESUME) == [Resume("p1", 7)]


def test_nothing_is_managed_before_there_is_a_session() -> None:
    for element in (ENABLE, b"<r xmlns='urn:xmpp:sm:3'/>", b"<a xmlns='urn:xmpp:sm:3' h='1'/>"):
        wire = Wire().to(State.UNBOUND)
        assert wire.feed(element) == [Send(failed("unexpected-request"))]
        assert wire.feed(BIND_REQUEST) == [Bind("fw")]


def test_refusals_are_counted() -> None:
    wire = Wire().to(State.UNBOUND)
    actions: list[Action] = []
    for attempt in range(1, negotiation.MAX_BIND_FAILURES + 1):
        if attempt % 2:
            actions = wire.feed(ENABLE)
        else:
            wire.feed(RESUME)
            actions = wire.negotiation.not_resumed()
        if attempt < negotiation.MAX_BIND_FAILURES:
            assert kinds(actions) == [Send]
    assert condition(actions) == "policy-violation"
    assert sent(actions).startswith(failed("unexpected-request"))


def test_a_bound_streams_management_is_the_sessions() -> None:
    wire = Wire().to(State.BOUND)
    for element in (ENABLE, RESUME, b"<r xmlns='urn:xmpp:sm:3'/>", b"<x xmlns='urn:xmpp:sm:3'/>"):
        (action,) = wire.feed(element)
        assert isinstance(action, ManageStream)
        assert action.item.raw == element
    older = ENABLE.replace(b"sm:3", b"sm:2")
    assert condition(wire.feed(older)) == "unsupported-stanza-type"


# What is advertised


def test_limits_are_advertised() -> None:
    wire = Wire(limits=(10_240, 65_536))
    stranger = b"<limits xmlns='urn:xmpp:stream-limits:0'><max-bytes>10240</max-bytes></limits>"
    known = stranger.replace(b"10240", b"65536")
    assert stranger in sent(wire.feed(HEADER))
    wire = Wire(limits=(10_240, 65_536)).to(State.ENCRYPTED)
    assert stranger in sent(wire.feed(HEADER))
    wire = Wire(limits=(10_240, 65_536)).to(State.AUTHENTICATED)
    assert known in sent(wire.feed(HEADER))
    wire = Wire(limits=(10_240, 65_536)).to(State.SECURE)
    wire.feed(authenticate("PLAIN", b"\0pump1\0pencil", b"<bind xmlns='urn:xmpp:bind:0'/>"))
    wire.negotiation.credentials_found(SHA256)
    wire.negotiation.password_verified(True)
    assert known in sent(wire.negotiation.bound("pump1@gw.example/x"))
    assert b"limits" not in sent(Wire().feed(HEADER))


def test_stream_management_is_offered_after_authentication_alone() -> None:
    offer = b"</session><sm xmlns='urn:xmpp:sm:3'/>"
    assert offer in sent(Wire().to(State.AUTHENTICATED).feed(HEADER))
    assert offer not in sent(Wire().to(State.ENCRYPTED).feed(HEADER))


def test_errors_carry_an_applications_condition() -> None:
    wire = Wire().to(State.BOUND)
    error = StreamError("undefined-condition", "t", application=b"<x xmlns='u'/>")
    told = sent(wire.negotiation.fail(error))
    assert told.endswith(b"</text><x xmlns='u'/></stream:error></stream:stream>")


def test_a_response_that_is_too_long_for_scram() -> None:
    wire = Wire().to(State.PROMPTED)
    assert failure(wire, wire.feed(response(b"x" * 5000))) == "malformed-request"
