from __future__ import annotations

import pytest

from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import BIND
from edge.xmpp.stream import negotiation
from edge.xmpp.stream.actions import Action, Bind, ManageStream, Resume, Send
from edge.xmpp.stream.management import failed
from edge.xmpp.stream.states import State
from tests.helpers.negotiation import (
    BIND_REQUEST,
    ENABLE,
    HEADER,
    RESUME,
    ServerStream,
    condition,
    sent,
    types,
)


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
        ("<resource>x\u00a0\U0001f6b0</resource>".encode(), "x \U0001f6b0"),
    ],
)
def test_requested_resources_are_read(payload: bytes, resource: str | None) -> None:
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


@pytest.mark.parametrize(
    ("opener", "allowed"),
    [
        (b"pump1@gw.example", True), (b"PUMP1@gw.example/fw", True), (b"pump2@gw.example", False),
        (b"localhost", True), (b"localhost/fw", True), (b"@", False), (b"", False),
    ],
)  # fmt: skip
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


def test_an_invalid_resume_request_is_refused() -> None:
    stream = ServerStream().to(State.UNBOUND)
    assert stream.feed(RESUME.replace(b" h='7'", b"")) == [Send(failed("bad-request"))]
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
        if attempt % 3 == 0:
            stream.feed(RESUME)
            actions, refusal = stream.negotiation.not_resumed(), failed("item-not-found")
        elif attempt % 3 == 1:
            actions, refusal = stream.feed(ENABLE), failed("unexpected-request")
        else:
            stream.feed(BIND_REQUEST)
            actions = stream.negotiation.bind_refused(StanzaError("resource-constraint"))
            refusal = b"<iq type='error' id='b'><error type='wait'><resource-constraint "
        assert sent(actions).startswith(refusal)
        if attempt < negotiation.MAX_BIND_FAILURES:
            assert (types(actions), stream.state) == ([Send], State.UNBOUND)
    assert condition(actions) == "policy-violation"


def test_management_elements_go_to_the_session() -> None:
    stream = ServerStream().to(State.BOUND)
    for element in (ENABLE, RESUME, b"<r xmlns='urn:xmpp:sm:3'/>", b"<x xmlns='urn:xmpp:sm:3'/>"):
        (action,) = stream.feed(element)
        assert isinstance(action, ManageStream)
        assert action.item.raw == element
    older = ENABLE.replace(b"sm:3", b"sm:2")
    assert condition(stream.feed(older)) == "unsupported-stanza-type"
