"""Tests of the stream errors that a client's faults lead to (RFC 6120, section 4.9.3).

`test_hostile_xml` has all faults of the XML itself.
"""

from __future__ import annotations

import re

import pytest

from edge.xmpp.errors import STREAM_CONDITIONS, StreamError, UsageError
from edge.xmpp.parser import MAX_STANZA_BYTES, ParseError
from edge.xmpp.stream.actions import Action, Close
from edge.xmpp.stream.states import State
from tests.helpers.negotiation import BIND_REQUEST, HEADER, PLAIN, STARTTLS, ServerStream, sent

DECLARATION = b"<?xml version='1.0'?>"
BARE = HEADER.removeprefix(DECLARATION)


def error_sent(stream: ServerStream, data: bytes) -> str:
    """Feed data that ends the stream; return the condition of the error that is sent."""
    actions: list[Action] = []
    try:
        actions += stream.feed(data)
    except ParseError as error:
        for item in error.items:
            actions += stream.negotiation.receive(item)
        actions += stream.negotiation.fail(error)
    assert actions[-1] == Close()
    match = re.search(
        rb"<stream:error><([a-z-]+) xmlns='urn:ietf:params:xml:ns:xmpp-streams'/>"
        rb"(?:<text xmlns='urn:ietf:params:xml:ns:xmpp-streams' xml:lang='en'>[^<]+</text>)?"
        rb"</stream:error></stream:stream>$",
        sent(actions),
    )
    assert match is not None
    condition = match[1].decode()
    assert condition in STREAM_CONDITIONS
    return condition


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (b"<html/>", "invalid-namespace"),
        (b"\x16\x03\x01\x02\x00\x01", "not-well-formed"),  # TLS without STARTTLS
        (HEADER.decode().encode("utf-16"), "unsupported-encoding"),
        (b"<!DOCTYPE x>" + BARE, "restricted-xml"),
        (BARE.replace(b"stream:stream", b"s:stream"), "not-well-formed"),
        (b"<stream:stream" + b" " * MAX_STANZA_BYTES, "policy-violation"),
    ],
)
def test_faults_before_the_stream(data: bytes, condition: str) -> None:
    assert error_sent(ServerStream(), data) == condition


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (b"<presence><x></presence>", "not-well-formed"),
        (b"<message><body>&bomb;</body></message>", "restricted-xml"),
        (b"text", "bad-format"),
        (BARE, "bad-format"),  # a stream within a stream
        (b"<message>" + b"x" * MAX_STANZA_BYTES, "policy-violation"),
        (b"<message>" + b"<a>" * 100, "policy-violation"),
        (b"<message>" + b"<a/>" * 2100 + b"</message>", "policy-violation"),
        (b"<compress xmlns='http://jabber.org/protocol/compress'/>", "unsupported-stanza-type"),
        (b"<message xmlns='jabber:server'/>", "unsupported-stanza-type"),
        (b"<message xmlns=''/>", "unsupported-stanza-type"),
        (b"<stream:features/>", "unsupported-stanza-type"),
        (b"<iq xmlns='urn:x'/>", "unsupported-stanza-type"),
        (PLAIN, "policy-violation"),
    ],
)
def test_faults_within_the_stream(data: bytes, condition: str) -> None:
    assert error_sent(ServerStream().to(State.BOUND), data) == condition


@pytest.mark.parametrize(
    ("state", "data", "condition"),
    [
        (State.CLEAR, b"<presence/>", "not-authorized"),
        (State.SECURE, b"<message to='gw.example'/>", "not-authorized"),
        (State.SECURE, BIND_REQUEST, "not-authorized"),
        (State.SECURE, b"<enable xmlns='urn:xmpp:sm:3'/>", "not-authorized"),
        (State.UNBOUND, b"<presence/>", "not-authorized"),
        (State.UNBOUND, b"<iq type='get' id='1'><q xmlns='jabber:iq:roster'/></iq>",
         "not-authorized"),
        (State.UNBOUND, STARTTLS, "policy-violation"),
        (State.UNBOUND, PLAIN, "policy-violation"),
        (State.BINDING, b"<presence/>", "policy-violation"),
        (State.AUTHENTICATED, BARE.replace(b" to=", b" from='other@gw.example' to="),
         "invalid-from"),
        (State.SECURE, BARE, "bad-format"),
    ],
)  # fmt: skip
def test_unexpected_elements(state: State, data: bytes, condition: str) -> None:
    assert error_sent(ServerStream().to(state), data) == condition


@pytest.mark.parametrize("name", sorted(STREAM_CONDITIONS))
def test_every_condition_can_be_sent(name: str) -> None:
    stream = ServerStream().to(State.BOUND)
    actions = stream.negotiation.fail(StreamError(name, "why"))
    assert f"<stream:error><{name} ".encode() in sent(actions)


def test_see_other_host_is_not_used() -> None:
    assert "see-other-host" not in STREAM_CONDITIONS
    with pytest.raises(UsageError):
        StreamError("see-other-host")
