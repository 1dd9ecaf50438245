"""Plain envelopes for tests, and the comparison of their parser with the stream parser."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from edge.xmpp.envelopes import EnvelopeParser
from edge.xmpp.parser import ParseError, StreamParser
from edge.xmpp.stanza import Item, Stanza, parse_fragment
from tests.fuzz.fuzz_parser import same
from tests.helpers.parser_corpus import HEADER, Flat, flat

READING: Final = (
    b"<message xmlns='jabber:client'><fields xmlns='urn:xmpp:iot:sensordata' seqnr='47'>"
    b"<node nodeId='boiler-1'><timestamp value='2026-06-07T16:24:30Z'>"
    b"<numeric name='Temperature' value='63.4' unit='\xc2\xb0C'/></timestamp></node></fields>"
    b"</message>"
)
LOG: Final = (
    b"<message xmlns='jabber:client' to='gw' xml:lang='en'><log xmlns='urn:xmpp:eventlog' id='T'>"
    b"<message>a &lt; b &#38; c? no!\r\n</message><tag name='v' value='1&apos;'/></log></message>"
)
PLAIN: Final[dict[str, bytes]] = {
    "deliver": b"<iq type='set' id='1' to='gw'><deliver xmlns='urn:xmpp:qos' msgId='9'/></iq>",
    "assured": b"<iq type='set' id='1' to='gw'><assured xmlns='urn:xmpp:qos' msgId='9'>"
    + READING
    + b"</assured></iq>",
    "acknowledged": b"<iq type='set' id='2'><acknowledged xmlns='urn:nf:iot:qos:1.0'>"
    + LOG
    + b"</acknowledged></iq>",
    "double quotes": b'<iq id="1" type="set">'
    b'<deliver msgId="a>b" xmlns="urn:ieee:iot:qos:1.0"/></iq>',
    "namespace and language": b"<iq xmlns='jabber:client' xml:lang='de' from='a@b/c' type='get'>"
    b"<assured a.b-c_d='\"' xmlns='urn:xmpp:qos'><message xmlns='jabber:client' a=''></message>"
    b"</assured></iq>",
    "own prefix": b"<iq id='1'><assured xmlns='urn:xmpp:qos'><message xmlns='jabber:client'>"
    b"<p:a xmlns:p='u' p:b='c'/> stream:x='y'</message></assured></iq>",
    "other default": b"<iq id='1'><assured xmlns='urn:xmpp:qos'><message xmlns='jabber:client'>"
    b"<a xmlns=''><b/></a><c xmlns='urn:xmpp:qos'/></message></assured></iq>",
    "nested namesakes": b"<iq id='1'><assured xmlns='urn:xmpp:qos'><message xmlns='jabber:client'>"
    b"<assured><message><iq/></message></assured></message></assured></iq>",
}
"""Envelopes that are accepted."""

WRAPPED: Final = b"<iq id='1'><assured xmlns='urn:xmpp:qos'>%b</assured></iq>"


def deliver(iq: bytes = b" id='1'", child: bytes = b" xmlns='urn:xmpp:qos' msgId='9'") -> bytes:
    """Return a `deliver` with the given attributes."""
    return b"<iq%b><deliver%b/></iq>" % (iq, child)


def compare(pieces: Iterable[bytes], *limits: int, header: bytes = HEADER) -> list[Stanza]:
    """Parse a stream with and without a parser of envelopes; return the stanzas.

    Raises:
        AssertionError: the items, errors or pending bytes differ after a piece.
    """
    fast, slow = StreamParser(*limits, envelopes=EnvelopeParser()), StreamParser(*limits)
    stanzas: list[Stanza] = []
    for piece in (header, *pieces):
        (items, error), (expected, expected_error) = _feed(fast, piece), _feed(slow, piece)
        assert [*map(flat, items)] == [*map(flat, expected)]
        assert [*map(type, items)] == [*map(type, expected)]
        assert error == expected_error
        assert fast.pending == slow.pending
        for item in items:
            if isinstance(item, Stanza):
                check_trees(item)
                stanzas.append(item)
        if error is not None:
            break
    fast.close()
    slow.close()
    return stanzas


def _feed(parser: StreamParser, piece: bytes) -> tuple[list[Item], Flat | None]:
    try:
        return parser.feed(piece), None
    except ParseError as error:
        return error.items, (*flat(error), error.text)


def check_trees(stanza: Stanza) -> None:
    """Check that the trees built with a stanza are those of the elements' bytes."""
    for child in stanza.children:
        for grandchild in child.children:
            if grandchild.parsed is not None:
                assert same(grandchild.parsed, parse_fragment(grandchild.raw))
