"""Streams for tests of the parser, and its items in a comparable form.

`python -m tests.helpers.parser_corpus` feeds every stream split at every point and byte by byte,
and fails if a split makes a difference. It needs only the standard library.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TypeAlias

from edge.xmpp.errors import StreamError
from edge.xmpp.parser import ParseError, StreamParser
from edge.xmpp.stanza import Child, Item, Stanza, StreamOpen

HEADER = (
    b"<?xml version='1.0' encoding='UTF-8'?>\n<stream:stream to='gw.example' version='1.0' "
    b"xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' xml:lang='en'>"
)

STREAMS: dict[str, bytes] = {
    "assured": b"<iq id='1' type='set' to='gw.example'><assured xmlns='urn:xmpp:qos' msgId='9'>"
    b"<message xmlns='jabber:client'><log xmlns='urn:xmpp:eventlog' id='T'><message>Hi</message>"
    b"<tag name='v' value='1'/></log></message></assured></iq>",
    "prefixed": b"<iq id='1' type='set'><qos:assured xmlns:qos='urn:xmpp:qos' qos:a='b' msgId='9'>"
    b"<message><qos:x/><body>t</body></message></qos:assured></iq>",
    "greater in values": b"<iq id='x>y' to=\"a'>'b\"><q a='>' b=\">'>\"/></iq><iq id='/>'/>",
    "text with marks": b"<message><body>a > b ' \" /> ]] ]> c</body></message>",
    "entities": b"<message id='&lt;&#x41;&quot;'>"
    b"<body>&amp;&#x41;&#65;&lt;&gt;&apos;</body></message>",
    "cdata": b"<message><body><![CDATA[<not a='tag>]] ]>&amp;]]]></body><x/></message>",
    "empty cdata": b"<message><body><![CDATA[]]></body></message>",
    "self-closing": b"<presence/><iq id='1'/><presence ><show/ ></presence>".replace(b"/ >", b"/>"),
    "looks self-closing": b"<a>/></a><b><c>/></c></b><d><e x='/'>/></e></d>",
    "spaces in tags": b"<iq\n id = 'a'\t><q  xmlns = 'u' \n/></iq\n>",
    "deep": b"<a>" * 30 + b"</a>" * 30,
    "inherited default": b"<iq><q xmlns='u:1'><i><j/></i><k xmlns='u:2'/></q></iq>",
    "undeclared default": b"<iq><q xmlns=''><i a='1'/></q></iq>",
    "language": b"<message xml:lang='de'><body xml:lang='fr'>x</body></message>",
    "keep-alive": b" \n<presence/>\r\n \t<presence/>   ",
    "not ASCII": "<message id='\u00e9'><bödy>\u20ac \U0001f600</bödy></message>".encode(),
    "closed": b"<presence/> </stream:stream> \n",
    "nothing": b"",
}

Flat: TypeAlias = tuple[object, ...]


def flat_child(child: Child) -> Flat:
    inner = tuple(flat_child(grandchild) for grandchild in child.children)
    return (child.name, dict(child.attrs), child.raw, inner)


def flat(item: Item | StreamError) -> Flat:
    """Return an item or error in a comparable form."""
    if isinstance(item, StreamOpen):
        return ("open", item.name, dict(item.attrs), item.namespace, item.prefixed)
    if isinstance(item, Stanza):
        return flat_child(item)
    return (item.condition,) if isinstance(item, StreamError) else ("close",)


def run(*pieces: bytes, parser: StreamParser | None = None, release: bool = False) -> list[Flat]:
    """Feed pieces to a parser; return its items, the last of which may be an error.

    With `release`, the parser is asked to free its memory after each piece.
    """
    parser = parser or StreamParser()
    items: list[Flat] = []
    for piece in pieces:
        try:
            items += map(flat, parser.feed(piece))
        except ParseError as error:
            return [*items, *map(flat, error.items), flat(error)]
        if release:
            parser.release()
    return items


def feed_all(parser: StreamParser, pieces: Iterable[bytes]) -> list[Item]:
    return [item for piece in pieces for item in parser.feed(piece)]


def splits(data: bytes) -> list[str]:
    """Return the ways of splitting a stream whose result differs from that of the whole."""
    whole = run(data)
    wrong = [f"split at {at}" for at in range(len(data) + 1) if run(data[:at], data[at:]) != whole]
    single = [data[at : at + 1] for at in range(len(data))]
    if run(*single) != whole:
        wrong.append("pieces of one byte")
    if run(*single, release=True) != whole:
        wrong.append("pieces of one byte, with a release after each")
    return wrong


def main() -> int:
    """Check the corpus; return 1 if a split makes a difference."""
    status = 0
    for name, body in STREAMS.items():
        for difference in splits(HEADER + body):
            print(f"{name}: {difference}")  # noqa: T201
            status = 1
    print(f"{len(STREAMS)} streams, Python {sys.version.split()[0]}")  # noqa: T201
    return status


if __name__ == "__main__":
    sys.exit(main())
