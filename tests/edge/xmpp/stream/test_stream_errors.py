"""What a client does wrong on its stream, and the condition that it is told (RFC 6120, 4.9.3)."""

from __future__ import annotations

import re

import pytest

from edge.xmpp.errors import STREAM_CONDITIONS, StreamError, UsageError
from edge.xmpp.parser import MAX_STANZA_BYTES, ParseError
from edge.xmpp.stream.actions import Action, Close
from edge.xmpp.stream.states import State
from tests.helpers.negotiation import BIND_REQUEST, HEADER, PLAIN, STARTTLS, Wire, sent

DECLARATION = b"<?xml version='1.0'?>"
BARE = HEADER.removeprefix(DECLARATION)


def told(wire: Wire, data: bytes) -> str:
    """Feed what ends the stream; returns the condition that is told."""
    actions: list[Action] = []
    try:
        actions += wire.feed(data)
    except ParseError as error:
        for item in error.items:
            actions += wire.negotiation.receive(item)
        actions += wire.negotiation.fail(error)
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
        (b"GET / HTTP/1.1\r\n\r\n", "not-well-formed"),
        (b"\x16\x03\x01\x02\x00\x01", "not-well-formed"),  # TLS without STARTTLS
        ("\ufeff".encode() + HEADER, "not-well-formed"),
        (HEADER.decode().encode("utf-16"), "unsupported-encoding"),
        (HEADER.decode().encode("utf-16-le"), "unsupported-encoding"),
        (HEADER.replace(b"'1.0'?", b"'1.0' encoding='latin-1'?"), "unsupported-encoding"),
        (HEADER.replace(b"'1.0'?", b"'2.0'?"), "not-well-formed"),
        (b"<!DOCTYPE x>" + BARE, "restricted-xml"),
        (b"<!-- x -->" + BARE, "restricted-xml"),
        (b"<?php x ?>" + BARE, "restricted-xml"),
        (BARE.replace(b"stream:stream", b"s:stream"), "not-well-formed"),
        (BARE.replace(b"etherx", b"ether"), "invalid-namespace"),
        (BARE.replace(b"stream:stream", b"stream:x"), "bad-format"),
        (BARE.replace(b"'1.0'", b"'0.9'"), "unsupported-version"),
        (BARE.replace(b"gw.example", b"other"), "host-unknown"),
        (BARE.replace(b"to='gw.example'", b""), "improper-addressing"),
        (b"<stream:stream" + b" " * MAX_STANZA_BYTES, "policy-violation"),
    ],
)
def test_before_the_stream(data: bytes, condition: str) -> None:
    assert told(Wire(), data) == condition


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (b"<presence><x></presence>", "not-well-formed"),
        (b"<presence from='a' from='b'/>", "not-well-formed"),
        (b"<presence id=a/>", "not-well-formed"),
        (b"<p:presence/>", "not-well-formed"),  # a prefix that is not declared
        (b"<presence id='\xff'/>", "not-well-formed"),
        (b"<message><body>\xc0\x80</body></message>", "not-well-formed"),  # NUL, overlong
        (b"<message><body>\xed\xa0\x80</body></message>", "not-well-formed"),  # a surrogate
        (b"<message><body>\0</body></message>", "not-well-formed"),
        (b"<message><body>&#0;</body></message>", "not-well-formed"),
        (b"<message><body>&#xFFFE;</body></message>", "not-well-formed"),
        (b"<message><body>&bomb;</body></message>", "restricted-xml"),
        (b"<message><!-- x --></message>", "restricted-xml"),
        (b"<message><?x y?></message>", "restricted-xml"),
        (b"<!DOCTYPE x [<!ENTITY a 'b'>]>", "restricted-xml"),
        (b"text", "bad-format"),
        (b"<![CDATA[ ]]><presence/>", "bad-format"),
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
def test_within_the_stream(data: bytes, condition: str) -> None:
    assert told(Wire().to(State.BOUND), data) == condition


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
def test_out_of_place(state: State, data: bytes, condition: str) -> None:
    assert told(Wire().to(state), data) == condition


@pytest.mark.parametrize("name", sorted(STREAM_CONDITIONS))
def test_each_condition_can_be_told(name: str) -> None:
    wire = Wire().to(State.BOUND)
    actions = wire.negotiation.fail(StreamError(name, "why"))
    assert f"<stream:error><{name} ".encode() in sent(actions)


def test_no_client_is_sent_elsewhere() -> None:
    """RFC 6120, section 4.9.3.19, is what a client might follow to another's server."""
    assert "see-other-host" not in STREAM_CONDITIONS
    with pytest.raises(UsageError):
        StreamError("see-other-host")
