from __future__ import annotations

import pytest

from edge.xmpp.errors import StreamError
from edge.xmpp.parser import StreamParser
from edge.xmpp.stanza import OversizedStanza, Stanza

HEADER = (
    b"<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' id='1'>"
)
BEFORE = b"<iq id='before' to='gw'><a xmlns='urn:a'><b>1</b></a></iq>"
AFTER = b"<iq id='after' to='gw'><a xmlns='urn:a'><b>2</b></a></iq>"
ATTRIBUTES = b"".join(b" a%d=''" % number for number in range(10))

OVERSIZED = {
    "elements": (b"<message id='m' to='gw'>%b</message>" % (b"<x/>" * 20), "elements"),
    "elements in a child": (
        b"<message id='m' to='gw'><y>%b</y><z/></message>" % (b"<x><w/></x>" * 9),
        "elements",
    ),
    "levels": (b"<message id='m' to='gw'>%b%b</message>" % (b"<x>" * 9, b"</x>" * 9), "levels"),
    "attributes of its own": (
        b"<message id='m' to='gw'%b><x><y/></x></message>" % ATTRIBUTES,
        "at",
    ),
    "attributes of a child": (
        b"<message id='m' to='gw'><x%b><y/></x><x><y/></x></message>" % ATTRIBUTES,
        "attributes",
    ),
    "attributes of a grandchild": (
        b"<message id='m' to='gw'><x><y%b/></x></message>" % ATTRIBUTES,
        "attributes",
    ),
    "no children": (b"<message id='m' to='gw'%b/>" % ATTRIBUTES, "attributes"),
}


def parser(*, tolerant: bool = True) -> StreamParser:
    stream_parser = StreamParser(4096, 6, 12, 8, tolerant=tolerant)
    stream_parser.feed(HEADER)
    return stream_parser


@pytest.mark.parametrize("size", [1, 7, 4096])
@pytest.mark.parametrize("name", OVERSIZED)
def test_an_oversized_stanza_leaves_its_neighbours_intact(name: str, size: int) -> None:
    oversized, what = OVERSIZED[name]
    stream_parser, found = parser(), []
    data = BEFORE + oversized + AFTER
    for start in range(0, len(data), size):
        found += stream_parser.feed(data[start : start + size])
    before, returned, after = found
    assert isinstance(returned, OversizedStanza)
    assert what in returned.text
    assert (returned.name, returned.attrs["id"], returned.attrs["to"]) == (
        "{jabber:client}message",
        "m",
        "gw",
    )
    assert returned.children == []
    assert returned.size == len(oversized)
    for stanza, raw in ((before, BEFORE), (after, AFTER)):
        assert type(stanza) is Stanza
        assert stanza.raw == raw
        assert stanza.children[0].raw == raw[raw.index(b"<a") : -5]
        assert stanza.children[0].children[0].tree().text == ("1" if raw == BEFORE else "2")


@pytest.mark.parametrize("name", OVERSIZED)
def test_a_strict_parser_fails(name: str) -> None:
    with pytest.raises(StreamError, match="policy-violation"):
        parser(tolerant=False).feed(OVERSIZED[name][0])


def test_bytes_and_the_header_are_limited_too() -> None:
    with pytest.raises(StreamError, match="more than 4096 bytes"):
        parser().feed(b"<message>%b</message>" % (b"x" * 5000))
    with pytest.raises(StreamError, match="attributes"):
        StreamParser(4096, 6, 12, 8, tolerant=True).feed(HEADER[:-1] + ATTRIBUTES + b">")
