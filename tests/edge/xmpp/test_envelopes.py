from __future__ import annotations

import pytest

from edge.xmpp import envelopes
from edge.xmpp.envelopes import EnvelopeParser
from edge.xmpp.stanza import Item, StreamHeader
from tests.helpers.envelopes import PLAIN, READING, REQUEST, WRAPPED, compare, deliver
from tests.helpers.parser_corpus import HEADER
from tests.helpers.parser_corpus import STREAMS as CORPUS

STREAM = StreamHeader(HEADER, (b"stream:",))
FIELDS = b"<message xmlns='jabber:client'>%b</message>"

OTHER_FORMS: dict[str, bytes] = {
    # whitespace, quotes and names in the envelope's own tags
    "two spaces": deliver(b"  id='1'"),
    "newline in a tag": deliver(b"\nid='1'"),
    "space around =": deliver(b" id = '1'"),
    "space before >": deliver(b" id='1' "),
    "both quotes": deliver(b" id=\"1\""),
    "quote in a value": deliver(b" id=\"it's\"", b" xmlns=\"urn:xmpp:qos\""),
    "no attribute": deliver(b""),
    "no space": deliver(b" id='1'type='set'"),
    "no value": deliver(b" id"),
    "no quotes": deliver(b" id=1"),
    "value without name": deliver(b" '1'"),
    "duplicate attribute": deliver(b" id='1' id='2'"),
    "duplicate namespace": deliver(b" id='1'", b" xmlns='urn:xmpp:qos' xmlns='urn:xmpp:qos'"),
    "duplicate language": deliver(b" xml:lang='a' xml:lang='b'"),
    "prefixed attribute": deliver(b" stream:id='1'"),
    "undeclared prefix": deliver(b" x:id='1'"),
    "declared prefix": deliver(b" xmlns:x='u'"),
    "reserved declaration": deliver(b" xmlns:xml='u'"),
    "other attribute of xml": deliver(b" xml:space='preserve'"),
    "digit first in a name": deliver(b" 1d='1'"),
    "name not ASCII": deliver(b" \xc3\xa9='1'"),
    "nine attributes": deliver(b"".join(b" a%d='1'" % n for n in range(9))),
    # values
    "reference in a value": deliver(b" id='&lt;'"),
    "unknown entity in a value": deliver(b" id='&x;'"),
    "< in a value": deliver(b" id='<'"),
    "tag in a value": deliver(b" id='><deliver xmlns='"),
    "value not ASCII": deliver(b" id='\xc3\xa9'"),
    "value not UTF-8": deliver(b" id='\xe9'"),
    "tab in a value": deliver(b" id='\t'"),
    "newline in a value": deliver(b" id='\r\n'"),
    "NUL in a value": deliver(b" id='\0'"),
    "control character in a value": deliver(b" id='\x1f'"),
    "delete in a value": deliver(b" id='\x7f'"),
    # namespaces
    "iq of another namespace": deliver(b" xmlns='urn:xmpp:qos'"),
    "iq of no namespace": deliver(b" xmlns=''"),
    "no namespace": deliver(b" id='1'", b" msgId='9'"),
    "other namespace": deliver(b" id='1'", b" xmlns='urn:xmpp:qos:2'"),
    "separator in the namespace": deliver(b" id='1'", b" xmlns='}'"),
    # the parts around and within the iq
    "other iq": b"<iq id='1' type='get'><ping xmlns='urn:xmpp:ping'/></iq>",
    "empty iq with a reference": b"<iq id='&gt;' type='result'/>",
    "empty iq with > in a value": b"<iq id='a/>b' type='result'/>",
    "empty iq without attributes": b"<iq />",
    "empty iq with a duplicate": b"<iq id='1' id='1'/>",
    "empty iq of another namespace": b"<iq id='1' xmlns='urn:xmpp:qos'/>",
    "empty iq with both quotes": b"<iq id='1' type=\"result\"/>",
    "empty iq with <": b"<iq id='<' type='result'/>",
    "empty iq not ASCII": b"<iq id='\xc3\xa9'/>",
    "received in another namespace": b"<iq id='1'><received xmlns='u' msgId='9'/></iq>",
    "iq without attributes": b"<iq><deliver xmlns='urn:xmpp:qos'/></iq>",
    "prefixed iq": b"<c:iq xmlns:c='jabber:client' id='1'><deliver xmlns='urn:xmpp:qos'/></c:iq>",
    "end tag with space": b"<iq id='1'><deliver xmlns='urn:xmpp:qos'/></iq >",
    "text in the iq": b"<iq id='1'>x<deliver xmlns='urn:xmpp:qos'/></iq>",
    "text after the child": b"<iq id='1'><deliver xmlns='urn:xmpp:qos'/> </iq>",
    "quote after the child": b"<iq id='1'><deliver xmlns='urn:xmpp:qos'/>'</iq>",
    "two children": b"<iq id='1'><deliver xmlns='urn:xmpp:qos'/><a/></iq>",
    "deliver with an end tag": b"<iq id='1'><deliver xmlns='urn:xmpp:qos'></deliver></iq>",
    "deliver with content": b"<iq id='1'><deliver xmlns='urn:xmpp:qos'>"
    + FIELDS % b""
    + b"</deliver></iq>",
    "deliver unclosed": b"<iq id='1'><deliver xmlns='urn:xmpp:qos'></iq>",
    "assured empty": b"<iq id='1'><assured xmlns='urn:xmpp:qos'/></iq>",
    "assured unclosed": b"<iq id='1'><assured xmlns='urn:xmpp:qos'></iq>",
    "space between tags": WRAPPED % (b" " + READING),
    "quote and text in assured": WRAPPED % (b"']]>" + READING),
    "keep-alive before": b"\n" + PLAIN["deliver"],
    # bodies
    "no body": WRAPPED % b"",
    "two messages": WRAPPED % (READING + READING),
    "another element first": WRAPPED % (b"<a/>" + READING),
    "text between messages": WRAPPED % (READING + b"x" + READING),
    "message inherits QoS": WRAPPED % b"<message><a/></message>",
    "message of no namespace": WRAPPED % b"<message xmlns=''><a/></message>",
    "message of another namespace": WRAPPED % b"<message xmlns='urn:xmpp:qos'></message>",
    "other body": WRAPPED % b"<iq xmlns='jabber:client'></iq>",
    "empty message": WRAPPED % b"<message xmlns='jabber:client'/>",
    "message not closed": WRAPPED % b"<message xmlns='jabber:client'><message></message>",
    "message closed twice": WRAPPED % b"<message xmlns='jabber:client'></message></message>",
    "only an end tag": WRAPPED % b"</message>",
    "closes what is around": WRAPPED % (b"</root>" + READING),
    "spaced end tag": WRAPPED % b"<message xmlns='jabber:client'></message >",
    "comment": WRAPPED % (FIELDS % b"<!-- x -->"),
    "CDATA": WRAPPED % (FIELDS % b"<![CDATA[x]]>"),
    "end in CDATA": WRAPPED % (FIELDS % b"<![CDATA[</message></assured></iq>]]>"),
    "processing instruction": WRAPPED % (FIELDS % b"<?x y?>"),
    "document type": WRAPPED % (FIELDS % b"<!DOCTYPE a>"),
    "entity": WRAPPED % (FIELDS % b"&x;"),
    "forbidden reference": WRAPPED % (FIELDS % b"&#0;"),
    "forbidden character": WRAPPED % (FIELDS % b"\x01"),
    "noncharacter": WRAPPED % (FIELDS % b"\xef\xbf\xbf"),
    "surrogate": WRAPPED % (FIELDS % b"\xed\xa0\x80"),
    "not UTF-8": WRAPPED % (FIELDS % b"\xe9"),
    "overlong UTF-8": WRAPPED % (FIELDS % b"\xc0\xaf"),
    "cut UTF-8": WRAPPED % (FIELDS % b"\xe2\x82"),
    "]]> in text": WRAPPED % (FIELDS % b"]]>"),
    "body's duplicate attribute": WRAPPED % (FIELDS % b"<a b='1' b='2'/>"),
    "body's duplicate by prefix": WRAPPED
    % (FIELDS % b"<a xmlns:p='u' xmlns:q='u' p:b='1' q:b='2'/>"),
    "body's undeclared prefix": WRAPPED % (FIELDS % b"<p:a/>"),
    "body uses the header's prefix": WRAPPED % (FIELDS % b"<stream:a/>"),
    "body's undeclared prefix of an attribute": WRAPPED % (FIELDS % b"<a p:b='1'/>"),
    "body undeclares a prefix": WRAPPED % (FIELDS % b"<a xmlns:p=''/>"),
    "body declares xmlns": WRAPPED % (FIELDS % b"<a xmlns='http://www.w3.org/2000/xmlns/'/>"),
    "body's namespace with separator": WRAPPED % (FIELDS % b"<a xmlns='u}v'/>"),
    "iq in the body": WRAPPED % (FIELDS % b"<iq></iq>"),
    "not nested": WRAPPED % (FIELDS % b"<a><b></a></b>"),
    # publish-subscribe requests
    "two elements": REQUEST % b"<create node='a'/><configure/>",
    "no element": REQUEST % b"",
    "text before the element": REQUEST % b"x<items node='a'/>",
    "text after the element": REQUEST % b"<items node='a'/>x",
    "element of no namespace": REQUEST % b"<items xmlns='' node='a'/>",
    "request not nested": REQUEST % b"<items></pubsub><pubsub></items>",
    "request of an owner": b"<iq id='1'><pubsub xmlns='http://jabber.org/protocol/pubsub#owner'>"
    b"<purge node='a'/></pubsub></iq>",
    "no stanza": b"",
    "unfinished": PLAIN["assured"][:-1],
}  # fmt: skip


def parse(data: bytes, max_tags: int = 64, parser: EnvelopeParser | None = None) -> list[Item]:
    """Parse envelopes; check that all bytes were parsed, or none."""
    items: list[Item] = []
    parsed = (parser or EnvelopeParser()).parse(data, STREAM, 8192, max_tags, 32, items)
    assert parsed == (len(data) if items else 0)
    return items


@pytest.mark.parametrize("data", PLAIN.values(), ids=PLAIN)
def test_plain_envelopes_are_accepted_and_equal_the_stream_parsers(data: bytes) -> None:
    assert len(parse(data)) == 1
    assert len(compare([data])) == 1


@pytest.mark.parametrize("data", OTHER_FORMS.values(), ids=OTHER_FORMS)
def test_other_forms_are_left_to_the_stream_parser(data: bytes) -> None:
    assert parse(data) == []
    compare([data, PLAIN["assured"]])


@pytest.mark.parametrize("name", CORPUS)
def test_other_streams_are_unchanged(name: str) -> None:
    compare([CORPUS[name], PLAIN["assured"]])


@pytest.mark.parametrize("data", PLAIN.values(), ids=PLAIN)
def test_every_split_gives_the_same_stanza(data: bytes) -> None:
    for at in range(len(data) + 1):
        assert len(compare([data[:at], data[at:] + data, data])) == 3
    compare([data[at : at + 1] for at in range(len(data))])


def test_several_envelopes_in_one_read_are_parsed_until_another_form() -> None:
    first = PLAIN["assured"] + PLAIN["deliver"] + PLAIN["acknowledged"]
    rest = OTHER_FORMS["CDATA"] + PLAIN["assured"]
    items: list[Item] = []
    assert EnvelopeParser().parse(first + rest, STREAM, 8192, 64, 32, items) == len(first)
    assert len(items) == 3
    assert len(compare([first + rest + PLAIN["deliver"][:9], PLAIN["deliver"][9:]])) == 6
    assert len(compare([first + b"</stream:stream>"])) == 3
    assert len(compare([first + b"</iq>"])) == 3


def test_a_stanza_after_a_fault_in_the_same_read_is_not_parsed() -> None:
    assert len(compare([PLAIN["deliver"] + b"<a></b>" + PLAIN["deliver"]])) == 1


@pytest.mark.parametrize(
    "header",
    [
        b"<stream:stream xmlns:stream='http://etherx.jabber.org/streams'>",
        b"<stream:stream xmlns='jabber:server' xmlns:stream='http://etherx.jabber.org/streams'>",
        b"<s:stream xmlns='jabber:client' xmlns:s='u:s' "
        + b" ".join(b"xmlns:p%d='u:%d'" % (n, n) for n in range(12))
        + b">",
        b"<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'/>",
        b"",
    ],
    ids=["no default", "other default", "many prefixes", "closed", "none"],
)
def test_the_header_defines_the_namespaces_of_names(header: bytes) -> None:
    for data in PLAIN.values():
        compare([data, data], header=header)


def test_limits_are_those_of_the_stream_parser() -> None:
    nested = WRAPPED % (FIELDS % (b"<a>" * 5 + b"</a>" * 5))
    wide = WRAPPED % (FIELDS % (b"<a/>" * 5))
    attributes = WRAPPED % (FIELDS % b"<a b='' c='' d='' e=''/>")
    own = deliver(b" a='' b='' c='' d=''")
    header = HEADER[: HEADER.index(b" xml:lang")].replace(b" to='gw.example' version='1.0'", b"")
    header += b">"
    for limit in range(1, 12):
        for data in (nested, wide, attributes, own):
            compare([data], 8192, limit, 100, 100, header=header)
            compare([data], 8192, 100, limit, 100, header=header)
            compare([data], 8192, 100, 100, limit, header=header)
    for data in (nested, wide, attributes, own):
        for limit in (len(data) - 1, len(data), len(data) + 1):
            compare([data + data], limit)


def test_long_envelopes_and_many_tags_are_left_to_the_stream_parser() -> None:
    long = envelopes.MAX_ENVELOPE_BYTES - len(WRAPPED % (FIELDS % b""))
    assert parse(WRAPPED % (FIELDS % (b"x" * long)))
    assert not parse(WRAPPED % (FIELDS % (b"x" * (long + 1))))
    tags = envelopes.MAX_TAGS - (WRAPPED % (FIELDS % b"")).count(b"<")
    assert parse(WRAPPED % (FIELDS % (b"<a/>" * tags)), 1000)
    assert not parse(WRAPPED % (FIELDS % (b"<a/>" * (tags + 1))), 1000)


def test_a_fault_does_not_affect_the_next_envelope() -> None:
    parser = EnvelopeParser()
    for data in OTHER_FORMS.values():
        assert not parse(data, parser=parser)
        assert parse(PLAIN["assured"], parser=parser)


def test_skeletons_are_bounded_and_relearned() -> None:
    parser = EnvelopeParser()
    for number in range(2 * envelopes.MAX_SKELETONS + 1):
        assert parse(deliver(b" id='1' a%d='2'" % number), parser=parser)
        assert len(parser._skeletons) <= envelopes.MAX_SKELETONS
    assert parse(deliver(b" id='1' a0='2'"), parser=parser)
    for number in range(2 * envelopes.MAX_SKELETONS + 1):
        assert parse(b"<iq type='result' id='1' a%d='2'/>" % number, parser=parser)
        assert len(parser._empty) <= envelopes.MAX_SKELETONS
    name = b"a" * envelopes.MAX_SKELETON_LENGTH
    assert not parse(deliver(b" %b='1'" % name), parser=parser)
