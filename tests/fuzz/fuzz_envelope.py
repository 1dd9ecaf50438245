"""Target: the parser of plain envelopes, compared with the stream parser.

The first byte of an input selects where the rest is inserted (`_TEMPLATES`) and which limits apply;
the inserted bytes cannot be seen from the outside, so that an envelope around any content is tried.

- What is accepted yields the same stanzas as the stream parser returns, and no error.
- Only whole stanzas are accepted.
- Trees are those of the elements' bytes.
"""

from __future__ import annotations

from typing import Final

from edge.xmpp.envelopes import EnvelopeParser
from edge.xmpp.parser import ParseError, StreamParser
from edge.xmpp.stanza import Item, Stanza, StreamHeader
from tests.helpers.envelopes import PLAIN, check_trees
from tests.helpers.parser_corpus import HEADER, flat

MAX_BYTES: Final = 1024

_TEMPLATES: Final = (
    b"%b",
    b"<iq id='1'><assured xmlns='urn:xmpp:qos' msgId='9'>%b</assured></iq>",
    b"<iq id='1'><assured xmlns='urn:xmpp:qos'><message xmlns='jabber:client'>%b</message>"
    b"</assured></iq>",
    b"<iq id='%b'><deliver xmlns='urn:xmpp:qos' msgId='9'/></iq>",
    b"<iq type='set'%b><deliver xmlns='urn:xmpp:qos' msgId='9'/></iq>",
    b"<iq id='1'><deliver xmlns='urn:xmpp:qos'%b/></iq>",
    b"<iq id='1'><acknowledged xmlns='urn:xmpp:qos'><message%b></message></acknowledged></iq>",
    b"<iq id='1'><deliver xmlns='urn:xmpp:qos'/></iq>%b<iq id='2'><deliver xmlns='urn:xmpp:qos'/>"
    b"</iq>",
    b"<iq id='1'%b/>",
)
_LIMITS: Final = ((8192, 32, 1000, 32), (200, 5, 6, 3))
"""The limits of the gateway and low ones: bytes, depth, elements, attributes."""


class _Streams:
    """The parsers of envelopes and of streams with some limits."""

    def __init__(self, limits: tuple[int, int, int, int]) -> None:
        self.limits = limits
        self.envelopes = EnvelopeParser()
        self._slow = StreamParser(*limits)
        self.open()

    def open(self) -> None:
        """Begin a new stream for comparison."""
        max_bytes = self.limits[0]
        self._slow.set_limit(len(HEADER))
        self._slow.reset()
        self._slow.feed(HEADER)
        self._slow.set_limit(max_bytes)

    def expected(self, data: bytes) -> list[Item]:
        """Return what the stream parser returns for whole stanzas."""
        try:
            items = self._slow.feed(data)
        except ParseError:
            self.open()
            raise
        assert not self._slow.pending
        return items


_STREAMS: Final = [_Streams(limits) for limits in _LIMITS]
_HEADER: Final = StreamHeader(HEADER[HEADER.index(b"<stream:") :], (b"stream:",))


def check(data: bytes) -> None:
    """Parse an input by both parsers and compare."""
    kind = data[0] if data else 0
    stream = _STREAMS[kind // len(_TEMPLATES) % len(_STREAMS)]
    whole = _TEMPLATES[kind % len(_TEMPLATES)] % data[1:]
    max_bytes, depth, elements, attributes = stream.limits
    items: list[Item] = []
    parsed = stream.envelopes.parse(
        whole, _HEADER, max_bytes, min(elements, 2 * depth), attributes, items
    )
    if not parsed:
        assert not items
        return
    expected = stream.expected(whole[:parsed])
    assert [*map(type, items)] == [*map(type, expected)]
    assert [*map(flat, items)] == [*map(flat, expected)]
    for item in items:
        assert isinstance(item, Stanza)
        check_trees(item)


def seeds() -> list[bytes]:
    """Return the plain envelopes, and their contents in the other templates."""
    found = [bytes([len(_TEMPLATES) * low]) + data for data in PLAIN.values() for low in (0, 1)]
    for kind in range(1, len(_TEMPLATES)):
        found += [bytes([kind]), bytes([kind]) + PLAIN["acknowledged"][34:-20]]
    return found
