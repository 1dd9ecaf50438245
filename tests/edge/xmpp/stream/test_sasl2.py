from __future__ import annotations

import base64
import re
from itertools import product

import pytest

from edge import credentials
from edge.xmpp.errors import StanzaError, UsageError
from edge.xmpp.stream.actions import (
    Action,
    Bind,
    FindCredentials,
    LoginSuccess,
    Resume,
    Route,
    Send,
    VerifyPassword,
)
from edge.xmpp.stream.management import EnableRequest, enabled, failed
from edge.xmpp.stream.requests import ID_CHARACTERS, MAX_TAG_BYTES, bind2_resource
from edge.xmpp.stream.states import State
from tests.helpers.negotiation import (
    ABORT,
    ABORT2,
    BIND_REQUEST,
    HEADER,
    KEYS,
    PLAIN,
    RESUME,
    SHA256,
    ServerStream,
    auth,
    authenticate,
    b64,
    condition,
    failure,
    offered_mechanisms,
    response,
    response2,
    sent,
    types,
)

AGENT = b"<user-agent id='u1'><software>fw</software><device>Pump</device></user-agent>"
BIND2 = b"<bind xmlns='urn:xmpp:bind:0'><tag>fw</tag></bind>"
ENABLING = (
    b"<bind xmlns='urn:xmpp:bind:0'><tag>fw</tag>"
    b"<enable xmlns='urn:xmpp:sm:3' resume='true' max='60'/></bind>"
)
RESOURCE = bind2_resource("fw", "u1")
FULL = f"pump1@gw.example/{RESOURCE}"
IDENTITY = b"<authorization-identifier>%b</authorization-identifier>"
SECRET = b"\0Pump1\0pencil"


def plain(inline: bytes = b"", header: bytes = HEADER) -> tuple[ServerStream, list[Action]]:
    """Authenticate by PLAIN."""
    stream = ServerStream()
    stream.to(State.ENCRYPTED)
    stream.feed(header)
    assert stream.feed(authenticate("PLAIN", SECRET, inline)) == [FindCredentials("pump1", "PLAIN")]
    assert types(stream.negotiation.credentials_found(SHA256)) == [VerifyPassword]
    return stream, stream.negotiation.password_verified(True)


def success(data: bytes) -> tuple[bytes, bytes]:
    """Split the output into the content of `<success/>` and the features."""
    match = re.fullmatch(
        rb"<success xmlns='urn:xmpp:sasl:2'>(.*)</success>(<stream:features.*)?", data
    )
    assert match is not None
    return match[1], match[2] or b""


def test_sasl2_is_offered_under_tls() -> None:
    stream = ServerStream()
    assert b"<authentication" not in sent(stream.feed(HEADER))
    stream = ServerStream().to(State.ENCRYPTED)
    offer = sent(stream.feed(HEADER))
    assert offered_mechanisms(offer)[1] == ["SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN"]
    assert (
        b"<inline><bind xmlns='urn:xmpp:bind:0'><inline><feature var='urn:xmpp:sm:3'/></inline>"
        b"</bind><sm xmlns='urn:xmpp:sm:3'/></inline></authentication>"
    ) in offer


@pytest.mark.parametrize("mechanism", KEYS)
def test_login_by_scram_without_a_new_stream(mechanism: str) -> None:
    stream = ServerStream().to(State.SECURE)
    first = stream.first_message(mechanism)
    assert stream.feed(authenticate(mechanism, first)) == [FindCredentials("pump1", mechanism)]
    challenge = stream.negotiation.credentials_found(KEYS[mechanism])
    assert sent(challenge).startswith(b"<challenge xmlns='urn:xmpp:sasl:2'>")
    actions = stream.feed(stream.proof(challenge))
    assert types(actions) == [LoginSuccess, Send]
    content, features = success(sent(actions))
    data = re.match(rb"<additional-data>([^<]*)</additional-data>", content)
    assert data is not None
    assert stream.scram is not None
    stream.scram.set_server_final(base64.b64decode(data[1]).decode())
    assert content.endswith(IDENTITY % b"pump1@gw.example")
    assert b"<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/>" in features
    assert b"<sm xmlns='urn:xmpp:sm:3'/>" in features
    assert stream.negotiation.username == "pump1"
    assert stream.feed(BIND_REQUEST) == [Bind("fw")]
    assert b"<jid>pump1@gw.example/fw</jid>" in sent(
        stream.negotiation.bound("pump1@gw.example/fw")
    )


def test_success_follows_the_binding() -> None:
    stream, actions = plain(AGENT + BIND2)
    assert actions == [LoginSuccess("pump1"), Bind(RESOURCE)]
    assert stream.negotiation.waiting
    content, features = success(sent(stream.negotiation.bound(FULL)))
    assert content == IDENTITY % FULL.encode() + b"<bound xmlns='urn:xmpp:bind:0'/>"
    assert b"<sm xmlns='urn:xmpp:sm:3'/>" in features
    assert b"xmpp-bind" not in features
    assert types(stream.feed(b"<presence/>")) == [Route]


def test_stream_management_is_enabled_inline() -> None:
    stream, actions = plain(AGENT + ENABLING)
    assert actions[1:] == [Bind(RESOURCE, EnableRequest(True, 60))]
    answer = enabled("id1", 60)
    content, features = success(sent(stream.negotiation.bound(FULL, answer)))
    assert content.endswith(b"<bound xmlns='urn:xmpp:bind:0'>%b</bound>" % answer)
    assert b"urn:xmpp:sm:3" not in features


def test_a_missing_answer_to_enable_is_a_usage_error() -> None:
    stream, _ = plain(AGENT + ENABLING)
    with pytest.raises(UsageError):
        stream.negotiation.bound(FULL)


def test_an_invalid_enable_request_fails_alone() -> None:
    stream, actions = plain(AGENT + ENABLING.replace(b"'true'", b"'maybe'"))
    assert actions[1:] == [Bind(RESOURCE)]
    content, _ = success(sent(stream.negotiation.bound(FULL)))
    assert content.endswith(b"<bound xmlns='urn:xmpp:bind:0'>%b</bound>" % failed("bad-request"))


def test_a_resumed_session_gets_no_features() -> None:
    for inline in (RESUME, AGENT + ENABLING + RESUME):
        stream, actions = plain(inline)
        assert actions == [LoginSuccess("pump1"), Resume("p1", 7)]
        content, features = success(
            sent(stream.negotiation.resumed("pump1@gw.example/fw", "p1", 3))
        )
        assert content == (
            IDENTITY % b"pump1@gw.example/fw"
            + b"<resumed xmlns='urn:xmpp:sm:3' previd='p1' h='3'/>"
        )
        assert features == b""
        assert stream.state is State.BOUND


def test_a_resource_is_bound_if_there_is_no_session_to_resume() -> None:
    stream, _ = plain(AGENT + BIND2 + RESUME)
    assert stream.negotiation.not_resumed(5) == [Bind(RESOURCE)]
    content, _ = success(sent(stream.negotiation.bound(FULL)))
    resume_error = failed("item-not-found", 5)
    assert content == IDENTITY % FULL.encode() + resume_error + b"<bound xmlns='urn:xmpp:bind:0'/>"


def test_a_failed_resumption_without_bind_leaves_the_stream_unbound() -> None:
    stream, _ = plain(RESUME)
    content, features = success(sent(stream.negotiation.not_resumed()))
    assert content == IDENTITY % b"pump1@gw.example" + failed("item-not-found")
    assert features
    assert stream.feed(BIND_REQUEST) == [Bind("fw")]


def test_an_invalid_resume_request_fails_alone() -> None:
    stream, actions = plain(AGENT + BIND2 + RESUME.replace(b"h='7'", b"h='x'"))
    assert actions[1:] == [Bind(RESOURCE)]
    content, _ = success(sent(stream.negotiation.bound(FULL)))
    assert failed("bad-request") in content


def test_a_refused_inline_bind_allows_a_bind_request() -> None:
    stream, _ = plain(AGENT + ENABLING)
    content, features = success(
        sent(stream.negotiation.bind_refused(StanzaError("resource-constraint")))
    )
    assert content == IDENTITY % b"pump1@gw.example"
    assert b"xmpp-bind" in features
    assert stream.feed(BIND_REQUEST) == [Bind("fw")]
    refused = sent(stream.negotiation.bind_refused(StanzaError("resource-constraint")))
    assert refused.startswith(b"<iq type='error' id='b'>")


def test_a_client_without_an_id_gets_a_random_resource() -> None:
    resources = set()
    for inline in (BIND2, b"<user-agent/>" + BIND2, b"<user-agent id=''/>" + BIND2):
        bind = plain(inline)[1][1]
        assert isinstance(bind, Bind)
        assert bind.resource is not None
        assert re.fullmatch(rf"fw/[a-z2-7]{{{ID_CHARACTERS}}}", bind.resource)
        resources.add(bind.resource)
    assert len(resources) == 3


def test_unknown_inline_requests_are_ignored() -> None:
    unknown = b"<x xmlns='u:x'><enable/></x><supported><mechanism>PLAIN</mechanism></supported>"
    bind = b"<bind xmlns='urn:xmpp:bind:0'><active xmlns='urn:xmpp:csi:0'/></bind>"
    assert plain(unknown + AGENT + bind)[1][1:] == [Bind(bind2_resource("", "u1"))]


# The resource


@pytest.mark.parametrize(
    ("tag", "agent", "resource"),
    [
        ("fw", "u1", "fw/xobagdn4fp"),
        ("", "u1", "xobagdn4fp"),
        ("a/b c", "u1", "a/b c/xobagdn4fp"),
        ("\u2168", "u1", "\u2168/xobagdn4fp"),
        ("x" * MAX_TAG_BYTES, "u1", "x" * MAX_TAG_BYTES + "/xobagdn4fp"),
        ("x" * (MAX_TAG_BYTES + 1), "u1", "xobagdn4fp"),
        ("\u200e", "u1", "xobagdn4fp"),
    ],
)
def test_a_resource_depends_on_tag_and_client_id(tag: str, agent: str, resource: str) -> None:
    assert bind2_resource(tag, agent) == resource


# Failures


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [
        (authenticate("PLAIN", SECRET).replace(b" me", b" upgrade='X' me"), "invalid-mechanism"),
        (b"<authenticate xmlns='urn:xmpp:sasl:2'/>", "invalid-mechanism"),
        (authenticate("PLAIN", b"pump1"), "malformed-request"),
        (authenticate("PLAIN", b"other\0pump1\0pencil"), "invalid-authzid"),
        (authenticate("PLAIN", b"x").replace(b64(b"x"), b"!"), "incorrect-encoding"),
        (authenticate("PLAIN", b"x").replace(b64(b"x"), b"<a/>"), "malformed-request"),
    ],
)
def test_invalid_attempts_fail(attempt: bytes, expected: str) -> None:
    stream = ServerStream().to(State.SECURE)
    assert failure(stream, stream.feed(attempt)) == expected
    assert stream.state is State.SECURE


def test_the_first_message_may_follow_an_empty_challenge() -> None:
    stream = ServerStream().to(State.SECURE)
    challenge = stream.feed(authenticate("SCRAM-SHA-256", inline=AGENT + BIND2))
    assert challenge == [Send(b"<challenge xmlns='urn:xmpp:sasl:2'/>")]
    assert stream.feed(response2(stream.first_message())) == [
        FindCredentials("pump1", "SCRAM-SHA-256")
    ]
    actions = stream.feed(stream.proof(stream.negotiation.credentials_found(SHA256)))
    assert actions == [LoginSuccess("pump1"), Bind(RESOURCE)]
    assert b"<additional-data>" in sent(stream.negotiation.bound(FULL))


def test_a_failed_attempt_leaves_no_inline_requests() -> None:
    stream = ServerStream().to(State.SECURE)
    stream.feed(authenticate("SCRAM-SHA-256", stream.first_message(), AGENT + BIND2 + RESUME))
    stream.negotiation.credentials_found(credentials.decoy("pump1", b"s" * 16))
    wrong = b"c=biws,r=x,p=YQ=="
    assert failure(stream, stream.feed(response2(wrong))) == "not-authorized"
    stream.feed(PLAIN)
    stream.negotiation.credentials_found(SHA256)
    assert sent(stream.negotiation.password_verified(True)).startswith(
        b"<success xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>"
    )


def test_failures_of_both_profiles_count_together() -> None:
    stream = ServerStream().to(State.SECURE)
    for attempt in (auth("X"), authenticate("X")):
        stream.feed(attempt)
        assert types(stream.negotiation.report_failure()) == [Send]
    stream.feed(auth("X"))
    assert condition(stream.negotiation.report_failure()) == "policy-violation"


@pytest.mark.parametrize(
    ("state", "element"),
    [
        *product((State.PROMPTED, State.CHALLENGED), (response2(b"n,,n=a,r=b"), ABORT2)),
        *product((State.PROMPTED2, State.CHALLENGED2), (response(b"n,,n=a,r=b"), ABORT)),
        *product((State.PROMPTED, State.CHALLENGED, State.UNBOUND, State.BOUND),
                 (authenticate("PLAIN", SECRET),)),
        *product((State.PROMPTED2, State.CHALLENGED2, State.UNBOUND, State.BOUND), (PLAIN,)),
    ],
)  # fmt: skip
def test_profiles_must_not_be_mixed(state: State, element: bytes) -> None:
    stream = ServerStream().to(state)
    assert condition(stream.feed(element)) == "policy-violation"


def test_an_attempt_can_be_aborted() -> None:
    for state in (State.PROMPTED2, State.CHALLENGED2):
        stream = ServerStream().to(state)
        assert failure(stream, stream.feed(ABORT2)) == "aborted"


@pytest.mark.parametrize(
    ("opener", "authzid", "allowed"),
    [
        (b"pump1@gw.example", b"pump1", True),
        (b"Pump1@GW.example/x", b"pump1@gw.example", True),
        (b"pump2@gw.example", b"", True),
        (b"pump2@gw.example", b"pump1", False),
        (b"gw.example", b"pump1@gw.example", False),
    ],
)
def test_the_authzid_must_match_the_streams_from(
    opener: bytes, authzid: bytes, allowed: bool
) -> None:
    stream = ServerStream().to(State.ENCRYPTED)
    stream.feed(HEADER.replace(b"to=", b"from='%b' to=" % opener))
    actions = stream.feed(authenticate("PLAIN", authzid + SECRET))
    if allowed:
        assert actions == [FindCredentials("pump1", "PLAIN")]
    else:
        assert failure(stream, actions) == "invalid-authzid"


def test_an_equals_sign_does_not_mean_an_empty_message() -> None:
    """XEP-0388, section 2.2."""
    stream = ServerStream().to(State.SECURE)
    request = authenticate("SCRAM-SHA-1", b"x").replace(b64(b"x"), b"=")
    assert failure(stream, stream.feed(request)) == "malformed-request"
