"""SASL2 and Bind 2: what a client asks for at once, and what it is told when that is done."""

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
    Close,
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
    Wire,
    auth,
    authenticate,
    b64,
    condition,
    failure,
    kinds,
    offered,
    response,
    response2,
    sent,
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


def plain(inline: bytes = b"", header: bytes = HEADER) -> tuple[Wire, list[Action]]:
    """Authenticate by PLAIN."""
    wire = Wire()
    wire.to(State.ENCRYPTED)
    wire.feed(header)
    assert wire.feed(authenticate("PLAIN", SECRET, inline)) == [FindCredentials("pump1", "PLAIN")]
    assert kinds(wire.negotiation.credentials_found(SHA256)) == [VerifyPassword]
    return wire, wire.negotiation.password_verified(True)


def success(data: bytes) -> tuple[bytes, bytes]:
    """Split what is told into success's content, and the features after it."""
    match = re.fullmatch(
        rb"<success xmlns='urn:xmpp:sasl:2'>(.*)</success>(<stream:features.*)?", data
    )
    assert match is not None
    return match[1], match[2] or b""


def test_what_is_offered() -> None:
    wire = Wire()
    assert b"<authentication" not in sent(wire.feed(HEADER))
    wire = Wire().to(State.ENCRYPTED)
    offer = sent(wire.feed(HEADER))
    assert offered(offer)[1] == ["SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN"]
    assert (
        b"<inline><bind xmlns='urn:xmpp:bind:0'><inline><feature var='urn:xmpp:sm:3'/></inline>"
        b"</bind><sm xmlns='urn:xmpp:sm:3'/></inline></authentication>"
    ) in offer


@pytest.mark.parametrize("mechanism", KEYS)
def test_scram_without_a_new_stream(mechanism: str) -> None:
    wire = Wire().to(State.SECURE)
    first = wire.first_message(mechanism)
    assert wire.feed(authenticate(mechanism, first)) == [FindCredentials("pump1", mechanism)]
    challenge = wire.negotiation.credentials_found(KEYS[mechanism])
    assert sent(challenge).startswith(b"<challenge xmlns='urn:xmpp:sasl:2'>")
    done = wire.feed(wire.proof(challenge))
    assert kinds(done) == [LoginSuccess, Send]
    told, features = success(sent(done))
    data = re.match(rb"<additional-data>([^<]*)</additional-data>", told)
    assert data is not None
    assert wire.scram is not None
    wire.scram.set_server_final(base64.b64decode(data[1]).decode())
    assert told.endswith(IDENTITY % b"pump1@gw.example")
    assert b"<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/>" in features
    assert b"<sm xmlns='urn:xmpp:sm:3'/>" in features
    assert wire.negotiation.username == "pump1"
    assert wire.feed(BIND_REQUEST) == [Bind("fw")]
    assert b"<jid>pump1@gw.example/fw</jid>" in sent(wire.negotiation.bound("pump1@gw.example/fw"))


def test_plain_without_anything_else() -> None:
    wire, done = plain()
    told, features = success(sent(done))
    assert told == IDENTITY % b"pump1@gw.example"
    assert features
    assert wire.state is State.UNBOUND


def test_a_resource_is_bound_before_success_is_told() -> None:
    wire, done = plain(AGENT + BIND2)
    assert done == [LoginSuccess("pump1"), Bind(RESOURCE)]
    assert wire.negotiation.waiting
    told, features = success(sent(wire.negotiation.bound(FULL)))
    assert told == IDENTITY % FULL.encode() + b"<bound xmlns='urn:xmpp:bind:0'/>"
    assert b"<sm xmlns='urn:xmpp:sm:3'/>" in features
    assert b"xmpp-bind" not in features
    assert kinds(wire.feed(b"<presence/>")) == [Route]


def test_stream_management_is_enabled_with_it() -> None:
    wire, done = plain(AGENT + ENABLING)
    assert done[1:] == [Bind(RESOURCE, EnableRequest(True, 60))]
    answer = enabled("id1", 60)
    told, features = success(sent(wire.negotiation.bound(FULL, answer)))
    assert told.endswith(b"<bound xmlns='urn:xmpp:bind:0'>%b</bound>" % answer)
    assert b"urn:xmpp:sm:3" not in features


def test_stream_management_that_is_asked_for_is_answered() -> None:
    wire, _ = plain(AGENT + ENABLING)
    with pytest.raises(UsageError):
        wire.negotiation.bound(FULL)


def test_a_request_to_enable_that_is_wrong_fails_alone() -> None:
    wire, done = plain(AGENT + ENABLING.replace(b"'true'", b"'maybe'"))
    assert done[1:] == [Bind(RESOURCE)]
    told, _ = success(sent(wire.negotiation.bound(FULL)))
    assert told.endswith(b"<bound xmlns='urn:xmpp:bind:0'>%b</bound>" % failed("bad-request"))


def test_a_session_is_resumed_and_nothing_is_told_but_that() -> None:
    for inline in (RESUME, AGENT + ENABLING + RESUME):
        wire, done = plain(inline)
        assert done == [LoginSuccess("pump1"), Resume("p1", 7)]
        told, features = success(sent(wire.negotiation.resumed("pump1@gw.example/fw", "p1", 3)))
        assert told == (
            IDENTITY % b"pump1@gw.example/fw"
            + b"<resumed xmlns='urn:xmpp:sm:3' previd='p1' h='3'/>"
        )
        assert features == b""
        assert wire.state is State.BOUND


def test_where_nothing_can_be_resumed_a_resource_is_bound() -> None:
    wire, _ = plain(AGENT + BIND2 + RESUME)
    assert wire.negotiation.not_resumed(5) == [Bind(RESOURCE)]
    told, _ = success(sent(wire.negotiation.bound(FULL)))
    gone = failed("item-not-found", 5)
    assert told == IDENTITY % FULL.encode() + gone + b"<bound xmlns='urn:xmpp:bind:0'/>"


def test_where_nothing_can_be_resumed_and_no_resource_is_wanted() -> None:
    wire, _ = plain(RESUME)
    told, features = success(sent(wire.negotiation.not_resumed()))
    assert told == IDENTITY % b"pump1@gw.example" + failed("item-not-found")
    assert features
    assert wire.feed(BIND_REQUEST) == [Bind("fw")]


def test_a_request_to_resume_that_is_wrong_fails_alone() -> None:
    wire, done = plain(AGENT + BIND2 + RESUME.replace(b"h='7'", b"h='x'"))
    assert done[1:] == [Bind(RESOURCE)]
    told, _ = success(sent(wire.negotiation.bound(FULL)))
    assert failed("bad-request") in told


def test_a_resource_that_cannot_be_bound_leaves_the_old_way() -> None:
    wire, _ = plain(AGENT + ENABLING)
    told, features = success(
        sent(wire.negotiation.bind_refused(StanzaError("resource-constraint")))
    )
    assert told == IDENTITY % b"pump1@gw.example"
    assert b"xmpp-bind" in features
    assert wire.feed(BIND_REQUEST) == [Bind("fw")]
    refused = sent(wire.negotiation.bind_refused(StanzaError("resource-constraint")))
    assert refused.startswith(b"<iq type='error' id='b'>")


def test_a_client_without_an_id_gets_a_resource_of_chance() -> None:
    resources = set()
    for inline in (BIND2, b"<user-agent/>" + BIND2, b"<user-agent id=''/>" + BIND2):
        bind = plain(inline)[1][1]
        assert isinstance(bind, Bind)
        assert bind.resource is not None
        assert re.fullmatch(rf"fw/[a-z2-7]{{{ID_CHARACTERS}}}", bind.resource)
        resources.add(bind.resource)
    assert len(resources) == 3


def test_what_is_not_known_is_passed_over() -> None:
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
        ("\u2168", "u1", "IX/xobagdn4fp"),
        ("x" * MAX_TAG_BYTES, "u1", "x" * MAX_TAG_BYTES + "/xobagdn4fp"),
        ("x" * (MAX_TAG_BYTES + 1), "u1", "xobagdn4fp"),
        ("\u200e", "u1", "xobagdn4fp"),
    ],
)
def test_resources_are_stable(tag: str, agent: str, resource: str) -> None:
    assert bind2_resource(tag, agent) == resource


def test_resources_tell_clients_apart_and_not_their_ids() -> None:
    made = {bind2_resource("fw", f"{number}") for number in range(1000)}
    assert len(made) == 1000
    identity = "d4565fa7-4d72-4749-b3d3-740edbf87770"
    assert identity[:6] not in bind2_resource("fw", identity)


# Failures


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [
        (authenticate("EXTERNAL", b""), "invalid-mechanism"),
        (authenticate("SCRAM-SHA-256-PLUS"), "invalid-mechanism"),
        (authenticate("PLAIN", SECRET).replace(b" me", b" upgrade='X' me"), "invalid-mechanism"),
        (b"<authenticate xmlns='urn:xmpp:sasl:2'/>", "invalid-mechanism"),
        (authenticate("PLAIN", b""), "malformed-request"),
        (authenticate("PLAIN", b"pump1"), "malformed-request"),
        (authenticate("PLAIN", b"other\0pump1\0pencil"), "invalid-authzid"),
        (authenticate("PLAIN", b"x").replace(b64(b"x"), b"!"), "incorrect-encoding"),
        (authenticate("PLAIN", b"x").replace(b64(b"x"), b"<a/>"), "malformed-request"),
    ],
)
def test_attempts_that_are_refused(attempt: bytes, expected: str) -> None:
    wire = Wire().to(State.SECURE)
    assert failure(wire, wire.feed(attempt)) == expected
    assert wire.state is State.SECURE


def test_the_first_message_may_come_later() -> None:
    wire = Wire().to(State.SECURE)
    asked = wire.feed(authenticate("SCRAM-SHA-256", inline=AGENT + BIND2))
    assert asked == [Send(b"<challenge xmlns='urn:xmpp:sasl:2'/>")]
    assert wire.feed(response2(wire.first_message())) == [FindCredentials("pump1", "SCRAM-SHA-256")]
    done = wire.feed(wire.proof(wire.negotiation.credentials_found(SHA256)))
    assert done == [LoginSuccess("pump1"), Bind(RESOURCE)]
    assert b"<additional-data>" in sent(wire.negotiation.bound(FULL))


def test_a_failure_leaves_nothing_behind() -> None:
    wire = Wire().to(State.SECURE)
    wire.feed(authenticate("SCRAM-SHA-256", wire.first_message(), AGENT + BIND2 + RESUME))
    wire.negotiation.credentials_found(credentials.decoy("pump1", b"s" * 16))
    wrong = b"c=biws,r=x,p=YQ=="
    assert failure(wire, wire.feed(response2(wrong))) == "not-authorized"
    wire.feed(PLAIN)
    wire.negotiation.credentials_found(SHA256)
    assert sent(wire.negotiation.password_verified(True)).startswith(
        b"<success xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>"
    )


def test_attempts_of_both_profiles_count_together() -> None:
    wire = Wire().to(State.SECURE)
    for attempt in (auth("X"), authenticate("X")):
        wire.feed(attempt)
        assert kinds(wire.negotiation.report_failure()) == [Send]
    wire.feed(auth("X"))
    assert condition(wire.negotiation.report_failure()) == "policy-violation"


@pytest.mark.parametrize(
    ("state", "given"),
    [
        *product((State.PROMPTED, State.CHALLENGED), (response2(b"n,,n=a,r=b"), ABORT2)),
        *product((State.PROMPTED2, State.CHALLENGED2), (response(b"n,,n=a,r=b"), ABORT)),
        *product((State.PROMPTED, State.CHALLENGED, State.UNBOUND, State.BOUND),
                 (authenticate("PLAIN", SECRET),)),
        *product((State.PROMPTED2, State.CHALLENGED2, State.UNBOUND, State.BOUND), (PLAIN,)),
    ],
)  # fmt: skip
def test_the_two_profiles_are_not_mixed(state: State, given: bytes) -> None:
    wire = Wire().to(state)
    assert condition(wire.feed(given)) == "policy-violation"


def test_aborted() -> None:
    for state in (State.PROMPTED2, State.CHALLENGED2):
        wire = Wire().to(state)
        assert failure(wire, wire.feed(ABORT2)) == "aborted"


def test_what_is_sent_ahead_of_success_ends_the_stream() -> None:
    wire = Wire().to(State.SECURE)
    wire.feed(authenticate("PLAIN", SECRET, BIND2))
    wire.negotiation.credentials_found(SHA256)
    actions = wire.negotiation.password_verified(True, more=True)
    assert condition(actions) == "policy-violation"
    assert actions[-1] == Close()
    assert wire.negotiation.username == ""


@pytest.mark.parametrize(
    ("opener", "authzid", "right"),
    [
        (b"pump1@gw.example", b"pump1", True),
        (b"Pump1@GW.example/x", b"pump1@gw.example", True),
        (b"pump2@gw.example", b"", True),
        (b"pump2@gw.example", b"pump1", False),
        (b"gw.example", b"pump1@gw.example", False),
    ],
)
def test_the_identity_is_that_which_the_stream_was_opened_from(
    opener: bytes, authzid: bytes, right: bool
) -> None:
    wire = Wire().to(State.ENCRYPTED)
    wire.feed(HEADER.replace(b"to=", b"from='%b' to=" % opener))
    actions = wire.feed(authenticate("PLAIN", authzid + SECRET))
    if right:
        assert actions == [FindCredentials("pump1", "PLAIN")]
    else:
        assert failure(wire, actions) == "invalid-authzid"


def test_in_the_clear_scram_where_that_is_configured() -> None:
    wire = Wire(require_tls=False)
    wire.feed(HEADER)
    assert failure(wire, wire.feed(authenticate("PLAIN", SECRET))) == "encryption-required"
    wire.feed(authenticate("SCRAM-SHA-1", wire.first_message("SCRAM-SHA-1")))
    done = wire.feed(wire.proof(wire.negotiation.credentials_found(KEYS["SCRAM-SHA-1"])))
    assert kinds(done) == [LoginSuccess, Send]


def test_encoding() -> None:
    """`=` is no message here (XEP-0388, section 2.2), and does no harm."""
    wire = Wire().to(State.SECURE)
    request = authenticate("SCRAM-SHA-1", b"x").replace(b64(b"x"), b"=")
    assert failure(wire, wire.feed(request)) == "malformed-request"
