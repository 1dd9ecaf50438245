from __future__ import annotations

import pytest

from edge import credentials
from edge.xmpp.errors import StreamError, UsageError
from edge.xmpp.namespaces import SASL
from edge.xmpp.stream import negotiation
from edge.xmpp.stream.actions import (
    FindCertificateOwner,
    FindCredentials,
    LoginFailure,
    LoginSuccess,
    RestartStream,
    Send,
    VerifyPassword,
)
from edge.xmpp.stream.sasl_attempt import SASL as FIRST
from edge.xmpp.stream.sasl_attempt import SaslAttempt
from edge.xmpp.stream.states import State
from tests.helpers.negotiation import (
    ABORT,
    HEADER,
    PLAIN,
    SHA256,
    ServerStream,
    auth,
    authenticate,
    condition,
    failure,
    offered_mechanisms,
    response,
    sent,
    types,
)


def test_login_by_plain() -> None:
    stream = ServerStream().to(State.SECURE)
    assert stream.feed(PLAIN) == [FindCredentials("pump1", "PLAIN")]
    assert stream.negotiation.credentials_found(SHA256) == [VerifyPassword("pencil", SHA256)]
    assert "pencil" not in repr(VerifyPassword("pencil", SHA256))
    actions = stream.perform(stream.negotiation.password_verified(True))
    assert actions == [
        Send(f"<success xmlns='{SASL}'/>".encode()),
        LoginSuccess("pump1"),
        RestartStream(),
    ]


def test_the_first_message_may_follow_an_empty_challenge() -> None:
    stream = ServerStream().to(State.SECURE)
    actions = stream.feed(auth("SCRAM-SHA-256"))
    assert actions == [Send(f"<challenge xmlns='{SASL}'/>".encode())]
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


def test_required_tls_refuses_authentication_without_it() -> None:
    for attempt in (PLAIN, auth("SCRAM-SHA-256", b"n,,n=a,r=b"), auth("SCRAM-SHA-1")):
        stream = ServerStream().to(State.CLEAR)
        assert failure(stream, stream.feed(attempt)) == "encryption-required"
        assert stream.state is State.CLEAR


def test_data_before_success_is_refused() -> None:
    stream = ServerStream().to(State.SECURE)
    stream.feed(auth("SCRAM-SHA-256", stream.first_message()))
    proof = stream.proof(stream.negotiation.credentials_found(SHA256))
    actions = stream.feed(proof + b"<iq")
    assert condition(actions) == "policy-violation"
    assert b"success" not in sent(actions)
    plain = ServerStream().to(State.VERIFYING)
    assert condition(plain.negotiation.password_verified(True, more=True)) == "policy-violation"
    assert plain.negotiation.username == ""
    external = with_certificate()
    external.feed(auth("EXTERNAL", b""))
    assert condition(external.negotiation.owner_found("pump1", more=True)) == "policy-violation"


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


@pytest.mark.parametrize("state", [State.PROMPTED, State.CHALLENGED])
def test_a_response_may_abort_or_be_invalid(state: State) -> None:
    stream = ServerStream().to(state)
    assert failure(stream, stream.feed(ABORT)) == "aborted"
    assert stream.state is State.SECURE
    stream = ServerStream().to(state)
    invalid = f"<response xmlns='{SASL}'>!</response>".encode()
    assert failure(stream, stream.feed(invalid)) == "incorrect-encoding"


def test_only_scram_has_a_challenge() -> None:
    with pytest.raises(UsageError):
        SaslAttempt(FIRST, "PLAIN", "gw.example", None).check_proof(b"")


ALL = ["EXTERNAL", "SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN"]


def with_certificate(**options: bool) -> ServerStream:
    """Return a stream that waits for authentication of a peer with a certificate."""
    stream = ServerStream(secure=True, certificate=True, **options)
    stream.feed(HEADER)
    assert stream.state is State.SECURE
    return stream


def test_external_is_offered_if_there_is_a_certificate() -> None:
    stream = ServerStream().to(State.STARTING_TLS)
    assert stream.negotiation.tls_established(certificate=True) == []
    assert offered_mechanisms(sent(stream.feed(HEADER))) == (ALL, ALL)
    stream = ServerStream().to(State.STARTING_TLS)
    stream.negotiation.tls_established()
    assert "EXTERNAL" not in offered_mechanisms(sent(stream.feed(HEADER)))[0]


@pytest.mark.parametrize(
    "authzid",
    [b"", b"pump1", b"pump1@gw.example", b"PUMP1@gw.example", b"Pump1", b"pump1@gw.example/fw"],
)
def test_login_by_external(authzid: bytes) -> None:
    stream = with_certificate()
    assert stream.feed(auth("EXTERNAL", authzid)) == [FindCertificateOwner()]
    assert stream.negotiation.waiting
    actions = stream.negotiation.owner_found("pump1")
    assert actions == [
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
        b"pump2", b"pump2@gw.example", b"pump2@gw.example/fw", b"gw.example/pump1", b"pump1@other",
        b"@",
    ],
)  # fmt: skip
def test_external_refuses_another_identity(authzid: bytes) -> None:
    stream = with_certificate()
    stream.feed(auth("EXTERNAL", authzid))
    assert failure(stream, stream.negotiation.owner_found("pump1")) == "invalid-authzid"
    assert stream.negotiation.username == ""


def test_a_certificate_without_an_owner_fails() -> None:
    stream = with_certificate()
    stream.feed(auth("EXTERNAL", b""))
    assert failure(stream, stream.negotiation.owner_found(None)) == "not-authorized"


def test_expired_certificate_is_named_to_its_owner() -> None:
    """RFC 6120, section 6.5.3."""
    stream = with_certificate()
    stream.feed(auth("EXTERNAL", b""))
    actions = stream.negotiation.owner_found(None, expired=True)
    assert failure(stream, actions) == "credentials-expired"


def test_external_needs_a_certificate() -> None:
    for stream in (
        ServerStream().to(State.SECURE),
        ServerStream().to(State.CLEAR),
        ServerStream(secure=True),
    ):
        if stream.state is State.ENCRYPTED:
            stream.feed(HEADER)
        assert failure(stream, stream.feed(auth("EXTERNAL", b""))) == "invalid-mechanism"


@pytest.mark.parametrize(("state", "name"), [(State.LOOKING_UP, "pump1"), (State.IDENTIFYING, "")])
def test_a_refused_attempt_is_a_temporary_failure(state: State, name: str) -> None:
    stream = ServerStream().to(state)
    actions = stream.negotiation.attempt_refused()
    assert actions == [LoginFailure(name, "temporary-auth-failure")]
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
    actions = stream.negotiation.credentials_found(None)
    assert failure(stream, actions) == "temporary-auth-failure"
    assert stream.feed(auth("X")) == [LoginFailure("", "invalid-mechanism")]


def test_a_peer_must_wait_for_the_report_of_a_failure() -> None:
    stream = ServerStream().to(State.DENIED)
    assert stream.negotiation.waiting
    assert condition(stream.feed(PLAIN)) == "policy-violation"
    stream = ServerStream().to(State.DENIED)
    assert sent(stream.feed(b"</stream:stream>")) == b"</stream:stream>"
    stream = ServerStream().to(State.DENIED)
    assert condition(stream.negotiation.fail(StreamError("system-shutdown"))) == "system-shutdown"
