"""Plain envelopes for tests, and the comparison of their parser with the stream parser."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from xml.etree.ElementTree import canonicalize

from edge.xmpp.envelopes import EnvelopeParser
from edge.xmpp.errors import UnexpectedText
from edge.xmpp.parser import ParseError, StreamParser
from edge.xmpp.stanza import Child, Item, Stanza, parse_fragment, with_namespace
from edge.xmpp.subelements import parse_element, subelements
from tests.fuzz.fuzz_parser import same
from tests.helpers.parser_corpus import HEADER, Flat, flat

READING: Final = (
    b"<message xmlns='jabber:client'><fields xmlns='urn:xmpp:iot:sensordata' seqnr='47'>"
    b"<node nodeId='boiler-1'><timestamp value='2026-06-07T16:24:30Z'>"
    b"<numeric name='Temperature' value='63.4' unit='\xc2\xb0C'/></timestamp></node></fields>"
    b"</message>"
)
FIELDS: Final = READING[len(b"<message xmlns='jabber:client'>") : -len(b"</message>")]
REQUEST: Final = (
    b"<iq type='set' id='1' to='pubsub.gw'><pubsub xmlns='http://jabber.org/protocol/pubsub'>"
    b"%b</pubsub></iq>"
)
LOG: Final = (
    b"<message xmlns='jabber:client' to='gw' xml:lang='en'><log xmlns='urn:xmpp:eventlog' id='T'>"
    b"<message>a &lt; b &#38; c? no!\r\n</message><tag name='v' value='1&apos;'/></log></message>"
)
PLAIN: Final[dict[str, bytes]] = {
    "deliver": b"<iq type='set' id='1' to='gw'><deliver xmlns='urn:xmpp:qos' msgId='9'/></iq>",
    "result": b"<iq type='result' id='1' to='gw' from='a@b/c'/>",
    "result in double quotes": b'<iq xmlns="jabber:client" id="1" xml:lang="de"/>',
    "received": b"<iq type='result' id='1'><received xmlns='urn:xmpp:qos' msgId='9'/></iq>",
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
    "text with the header's prefix": b"<iq id='1'><assured xmlns='urn:xmpp:qos'>"
    b"<message xmlns='jabber:client'>stream:x</message></assured></iq>",
    "other default": b"<iq id='1'><assured xmlns='urn:xmpp:qos'><message xmlns='jabber:client'>"
    b"<a xmlns=''><b/></a><c xmlns='urn:xmpp:qos'/></message></assured></iq>",
    "nested namesakes": b"<iq id='1'><assured xmlns='urn:xmpp:qos'><message xmlns='jabber:client'>"
    b"<assured><message><iq/></message></assured></message></assured></iq>",
    "publish": REQUEST % (b"<publish node='a'><item id='1'>%b</item></publish>" % FIELDS),
    "publish without ItemID": REQUEST % (b"<publish node='a'><item>%b</item></publish>" % FIELDS),
    "publish with two payloads": REQUEST
    % (b"<publish node='a'><item>%b<b/></item></publish>" % FIELDS),
    "publish with two items": REQUEST % b"<publish node='a'><item/><item id='2'/></publish>",
    "publish with text": REQUEST % b"<publish node='a'>x<item>y<a/>z</item></publish>",
    "publish with text after the item": REQUEST % b"<publish node='a'><item/>x</publish>",
    "publish with text after the payload": REQUEST
    % (b"<publish node='a'><item>%bx</item></publish>" % FIELDS),
    "publish with an inherited namespace": REQUEST
    % b"<publish node='a'><item><a/></item></publish>",
    "publish with a prefix": REQUEST
    % b"<publish xmlns:p='u' node='a'><item><p:a p:b='c'><p:a/></p:a></item></publish>",
    "retract": REQUEST % b"<retract node='a'><item id='1'/></retract>",
    "retract with end tags": REQUEST % b"<retract node='a' ><item id='1'></item ></retract >",
    "empty request": REQUEST % b"<items node='a' max_items='1'/>",
}
"""Envelopes that are accepted."""

WRAPPED: Final = b"<iq id='1'><assured xmlns='urn:xmpp:qos'>%b</assured></iq>"


def deliver(iq: bytes = b" id='1'", child: bytes = b" xmlns='urn:xmpp:qos' msgId='9'") -> bytes:
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
                _check_subelements(grandchild)


def _check_subelements(element: Child) -> None:
    """Check that an element's children are the same as if it was parsed again."""
    expected = parse_element(element.raw).children
    try:
        found = subelements(element)
    except UnexpectedText:
        return  # it was parsed again
    assert _flat(found) == _flat(expected)
    assert [_flat(one.children) for one in found] == [_flat(one.children) for one in expected]


def _flat(elements: Iterable[Child]) -> list[tuple[str, dict[str, str], str]]:
    return [(one.name, one.attrs, canonicalize(with_namespace(one))) for one in elements]
