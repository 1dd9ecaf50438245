"""Items of streams and packets that go from one process to another, and bytes that are no items."""

from __future__ import annotations

from typing import Any, TypeAlias
from xml.etree.ElementTree import Element

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from edge.xmpp import transferred
from edge.xmpp.envelopes import EnvelopeParser
from edge.xmpp.errors import StreamError, UsageError
from edge.xmpp.parser import ParseError, StreamParser
from edge.xmpp.stanza import Child, Item, OversizedStanza, Stanza, StreamOpen
from edge.xmpp.transfer import GROWTH, GROWTH_FREE, StreamReceiver, StreamSender
from tests.helpers.envelopes import PLAIN
from tests.helpers.parser_corpus import HEADER, STREAMS, flat
from tests.property.test_envelope_streams import CUTS, envelopes, mutated
from tests.property.test_parser_streams import pieces, stanzas

Flat: TypeAlias = tuple[object, ...]

OTHER_HEADER = HEADER.replace(b" xml:lang='en'", b" xmlns:p='u:1' xmlns:stream2='u:2'")


def flat_tree(tree: Element | None) -> Flat | None:
    if tree is None:
        return None
    return tree.tag, tree.attrib, tree.text, tree.tail, *(flat_tree(each) for each in tree)


def everything(child: Child) -> Flat:
    """Return all that the gateway reads of an element."""
    inner = tuple(everything(each) for each in child.children)
    tree = flat_tree(child.tree())
    own: Flat = (child.name, child.attrs, child.raw, child.has_other_content(), tree)
    if isinstance(child, Stanza):
        text = child.text if isinstance(child, OversizedStanza) else None
        own += (child.size, child.lang, child.with_stream_language, child.acknowledged, text)
        own += (type(child), child.payload is None or child.payload is child.children[0])
    return (*own, flat_tree(child.parsed), inner)


def compared(item: Item | StreamError) -> Flat:
    if isinstance(item, StreamError):
        return item.condition, item.text
    if isinstance(item, OversizedStanza):  # its end was not received
        return item.name, item.attrs, item.text, item.size, item.lang
    return everything(item) if isinstance(item, Stanza) else (type(item), *flat(item))


def check_transfer(data: list[bytes], *limits: int, tolerant: bool = False) -> None:
    parser = StreamParser(65_536, *limits, tolerant=tolerant, envelopes=EnvelopeParser())
    sender, receiver = StreamSender(), StreamReceiver()
    for part in data:
        fault: list[StreamError] = []
        try:
            items: list[Item] = parser.feed(part)
        except ParseError as error:
            items, fault = error.items, [error]
        sent: list[Item | StreamError] = [*items, *fault]
        received = receiver.decode(sender.encode(sent))
        assert list(map(compared, received)) == list(map(compared, sent))
        if fault:
            break


HEADERS = st.sampled_from([HEADER, OTHER_HEADER])


@given(HEADERS, st.lists(st.one_of(envelopes(), stanzas().map(str.encode)), max_size=3), CUTS)
def test_received_items_equal_those_that_were_sent(
    header: bytes, found: list[bytes], cuts: list[int]
) -> None:
    check_transfer(pieces(header + b"".join(found), cuts))


@given(HEADERS, mutated(), CUTS, st.booleans())
def test_faults_and_oversized_stanzas_are_received(
    header: bytes, found: bytes, cuts: list[int], tolerant: bool
) -> None:
    check_transfer(pieces(header + found, cuts), 3, 6, 2, tolerant=tolerant)


def test_known_streams_are_received() -> None:
    for stream in STREAMS.values():
        check_transfer([HEADER + stream])
        check_transfer([bytes((one,)) for one in OTHER_HEADER + stream])


LONG = b"u" * 4000
REPEATED = (
    b"<iq><x xmlns='%b'>%b</x></iq>" % (LONG, b"<b/>" * 900),
    b"<iq><x xmlns:p='%b'>%b</x></iq>" % (LONG, b"<b p:a=''/>" * 900),
)


def test_long_names_end_the_stream_before_they_fill_the_link() -> None:
    for stream in [*REPEATED, b"<p:b/>" * 2000]:
        parser = StreamParser(1 << 20, 32, 1000, 32)
        items: list[Any] = []
        items += parser.feed(HEADER.replace(b" xml:lang", b" xmlns:p='%b' xml:lang" % LONG))
        items += parser.feed(PLAIN["deliver"] + stream)
        data = StreamSender().encode(items)
        assert len(data) <= GROWTH_FREE + GROWTH * sum(
            item.size for item in items if isinstance(item, Stanza)
        )
        opened, first, *_, last = StreamReceiver().decode(data)
        assert isinstance(opened, StreamOpen)
        assert isinstance(first, Stanza)
        assert compared(first) == compared(items[1])
        assert isinstance(last, StreamError)
        assert last.condition == "policy-violation"


NUMBERS = st.one_of(st.integers(0, 40), st.sampled_from([-1, 1 << 31, 1 << 63, -(1 << 63)]))
NAMES = st.sampled_from(["iq", "{jabber:client}iq", "", "{", "\0"])
ATTRS = st.dictionaries(NAMES, st.text(max_size=3), max_size=2)
RAWS = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"<iq><a/></iq>", b"<iq><a>>></a><b/>", b"<iq xmlns:p='u'><p:a></p:a></iq>"]),
)
PREFIXES = st.lists(st.binary(max_size=3), max_size=2).map(tuple)
TREES = st.recursive(
    st.builds(transferred.Tree, NAMES, ATTRS, st.none(), st.text(max_size=2), st.just([])),
    lambda inner: st.builds(
        transferred.Tree, NAMES, ATTRS, st.none(), st.none(), st.lists(inner, max_size=2)
    ),
    max_leaves=3,
)
PARTS = st.recursive(
    st.builds(
        transferred.Part,
        *(NAMES, ATTRS, NUMBERS, NUMBERS, st.booleans(), st.one_of(st.none(), TREES), st.just([])),
    ),
    lambda inner: st.builds(
        transferred.Part,
        *(NAMES, ATTRS, NUMBERS, NUMBERS, st.booleans(), st.none(), st.lists(inner, max_size=2)),
    ),
    max_leaves=4,
)
ANYTHING = st.one_of(
    st.builds(transferred.Header, RAWS, PREFIXES, NAMES),
    st.builds(transferred.Whole, NAMES, ATTRS, RAWS, st.lists(PARTS, max_size=2), NAMES),
    st.builds(transferred.Open, NAMES, ATTRS, NAMES, st.booleans()),
    st.builds(transferred.Close),
    st.builds(transferred.Error, st.sampled_from(["reset", "unknown"]), st.text(max_size=2)),
)


def check_received(data: bytes) -> None:
    """Receive any bytes; what is accepted can be read as far as a parser's items can."""
    try:
        items = StreamReceiver().decode(data)
    except (UsageError, msgspec.DecodeError):
        return
    for item in items:
        if isinstance(item, Stanza):
            for element in (item, *item.children):
                assert len(element.children) >= 0
                element.has_other_content()


def nested(depth: int) -> bytes:
    """Return a stanza with elements in each other."""
    part = transferred.encode(["a", {}, 0, 1, False, None, []])
    empty, deeper = part, part[:-1] + b"\x91"
    return b"\x91\x96\x02\xa1a\x80\xc4\x02<>\x91" + deeper * depth + empty + b"\xa0"


@example(nested(100_000))
@example(nested(900))
@example(b"\x91" * 100_000)
@example(b"\x91\x93\x05\xa1\xff\xa1\xff")
@given(st.one_of(st.binary(max_size=64), st.lists(ANYTHING, max_size=3).map(transferred.encode)))
def test_other_bytes_are_refused(data: bytes) -> None:
    check_received(data)
