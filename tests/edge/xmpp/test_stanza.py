from __future__ import annotations

from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.xmpp import serialize
from edge.xmpp.embedded import as_client_stanza
from edge.xmpp.errors import FragmentError, UsageError
from edge.xmpp.parser import StreamParser
from edge.xmpp.stanza import (
    MAX_FRAGMENT_BYTES,
    Stanza,
    id_of,
    parse_fragment,
    stamped,
    stamped_with,
    stamper,
    with_namespace,
)
from edge.xmpp.subelements import parse_element
from tests.fuzz import fuzz_stamped
from tests.fuzz.oracle import parse_stanzas
from tests.helpers.parser_corpus import HEADER, STREAMS

SENDER = "pump1@gw.example/fw"
RECIPIENT = "gw.example"
EXTRA = b"<x xmlns='u:extra'/>"


def stanza(raw: bytes, header: bytes = HEADER) -> Stanza:
    item = StreamParser(1_000_000).feed(header + raw)[-1]
    assert isinstance(item, Stanza)
    return item


def canonical(element: ElementTree.Element) -> str:
    return ElementTree.canonicalize(ElementTree.tostring(element, encoding="unicode"))


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"<message/>", b"<message from='%b'/>"),
        (b"<message><a/></message>", b"<message from='%b'><a/></message>"),
        (b"<message from='x'/>", b"<message from='%b'/>"),
        (b'<message from="x" id="1"/>', b"<message from='%b' id=\"1\"/>"),
        (b"<message id='1'\n\tfrom\n=\n'x'\n/>", b"<message from='%b' id='1'\n/>"),
        (b"<message id=\" from='x'\"/>", b"<message from='%b' id=\" from='x'\"/>"),
        (b"<message id='a> from=\"x\"'/>", b"<message from='%b' id='a> from=\"x\"'/>"),
        (b"<message a:from='x' xmlns:a='u'/>", b"<message from='%b' a:from='x' xmlns:a='u'/>"),
        (b"<message afrom='x'/>", b"<message from='%b' afrom='x'/>"),
        (b"<message><b from='x'/></message>", b"<message from='%b'><b from='x'/></message>"),
        (b"<message to='y' from='x'> </message >", b"<message from='%b' to='y'> </message >"),
    ],
)
def test_the_sender_is_replaced(raw: bytes, expected: bytes) -> None:
    assert stamped(stanza(raw), SENDER) == expected % SENDER.encode()
    assert stamped(raw, SENDER) == expected % SENDER.encode()


def test_the_recipient_is_replaced() -> None:
    raw = b"<message to='x' from='y' id='1'>t</message>"
    expected = b"<message from='pump1@gw.example/fw' to='gw.example' id='1'>t</message>"
    assert stamped(stanza(raw), SENDER, RECIPIENT) == expected
    assert stamped(b"<message/>", SENDER, RECIPIENT) == b"<message from='%b' to='%b'/>" % (
        SENDER.encode(),
        RECIPIENT.encode(),
    )


def test_a_resource_is_escaped() -> None:
    assert b"from='a@b/&apos;&lt;&amp;'" in stamped(b"<message from='x'/>", "a@b/'<&")


def test_declarations_of_the_stream_header_are_added() -> None:
    header = HEADER.replace(b"xml:lang", b"xmlns:p='u:p' xml:lang")
    raw = stamped(stanza(b"<p:message p:from='x' from='y'><p:a/></p:message>", header), SENDER)
    tree = parse_fragment(raw)
    assert tree.tag == "{u:p}message"
    assert tree.attrib == {"{u:p}from": "x", "from": SENDER}
    assert tree[0].tag == "{u:p}a"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"<message/>", b"<message from='%b'><x xmlns='u:extra'/></message>"),
        (b"<message id='/>' />", b"<message from='%b' id='/>' ><x xmlns='u:extra'/></message>"),
        (b"<message></message>", b"<message from='%b'><x xmlns='u:extra'/></message>"),
        (b"<message><body>/></body></message\n>",
         b"<message from='%b'><body>/></body><x xmlns='u:extra'/></message\n>"),
        (b"<message><![CDATA[</]]></message>",
         b"<message from='%b'><![CDATA[</]]><x xmlns='u:extra'/></message>"),
        (b"<message><a/></message>", b"<message from='%b'><a/><x xmlns='u:extra'/></message>"),
    ],
)  # fmt: skip
def test_a_child_is_appended(raw: bytes, expected: bytes) -> None:
    assert stamped_with(stanza(raw), SENDER, EXTRA) == expected % SENDER.encode()


def test_a_child_is_appended_with_another_recipient() -> None:
    assert stamped_with(b"<message to='a'/>", SENDER, EXTRA, "b").startswith(
        b"<message from='pump1@gw.example/fw' to='b'>"
    )


@pytest.mark.parametrize("name", STREAMS)
def test_stamping_changes_only_the_addresses(name: str) -> None:
    fuzz_stamped.check(STREAMS[name])
    for item in parse_stanzas(STREAMS[name]):
        stamp = stamper(item, SENDER)
        for to in (RECIPIENT, "a'<b"):
            assert stamp(to) == stamped(item, SENDER, to)


@given(st.dictionaries(st.sampled_from(["from", "to", "id", "type", "from1", "x-to"]), st.text()))
def test_any_attribute_values_are_kept(attrs: dict[str, str]) -> None:
    fuzz_stamped.check(serialize.tag("message", attrs, b"<body from='b'>b</body>"))


def test_blanks_take_linear_time() -> None:
    """Quadratic time would take minutes."""
    blanks = b" " * 60_000
    for raw in (
        b"<message%b/>" % blanks,
        b"<message a='b'%bfrom='x'%bc='d'%b></message>" % (blanks, blanks, blanks),
        b"<message><body>%b</body%b></message%b>" % (blanks, blanks, blanks),
    ):
        tree = parse_fragment(stamped_with(stanza(raw), SENDER, EXTRA))
        assert tree.attrib["from"] == SENDER
        assert tree[-1].tag == "{u:extra}x"


def test_bytes_without_a_stanza_are_a_usage_error() -> None:
    with pytest.raises(UsageError):
        stamped(b"text", SENDER)


# Elements within stanzas

PUBLISH = (
    b"<publish xmlns='urn:p' node='a'><item id='1'><entry xmlns='urn:x'><b>t</b></entry></item>"
    b"<item id='2'/></publish>"
)


def test_children_and_grandchildren_are_slices() -> None:
    element = parse_element(PUBLISH)
    assert (element.name, element.attrs) == ("{urn:p}publish", {"node": "a"})
    assert [child.attrs["id"] for child in element.children] == ["1", "2"]
    (entry,) = element.children[0].children
    assert entry.raw == b"<entry xmlns='urn:x'><b>t</b></entry>"
    assert not element.children[1].children


GERMAN = HEADER.replace(b"xml:lang='en'", b"xml:lang='de-CH'")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"<message id='1'/>", b"<message xml:lang='de-CH' id='1'/>"),
        (b'<message\n id="1"/>', b"<message xml:lang='de-CH'\n id=\"1\"/>"),
        (b"<presence/>", b"<presence xml:lang='de-CH'/>"),
        (b"<message xml:lang='fr'/>", b"<message xml:lang='fr'/>"),
        (b"<message xml:lang=''/>", b"<message xml:lang=''/>"),
    ],
)
def test_a_stanza_without_a_language_has_that_of_the_stream(raw: bytes, expected: bytes) -> None:
    found = stanza(raw, GERMAN)
    assert found.with_stream_language == expected
    assert found.raw == raw


@pytest.mark.parametrize("lang", [b"", b"a b", b"x" * 36, b"&apos;"])
def test_a_language_that_is_no_tag_is_not_added(lang: bytes) -> None:
    header = HEADER.replace(b"xml:lang='en'", b"xml:lang='%b'" % lang)
    assert stanza(b"<presence/>", header).with_stream_language == b"<presence/>"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"<a/>", False),
        (b"<a></a>", False),
        (b"<a b='>'/>", False),
        (b"<a b='>'> \n </a>", False),
        (b"<a><b/></a>", False),
        (b"<a> <b>text</b>\n<c d='/>'/> </a>", False),
        (b"<a>text</a>", True),
        (b"<a>text<b/></a>", True),
        (b"<a><b/>text<c/></a>", True),
        (b"<a><b></b>/></a>", True),
        (b"<a><![CDATA[</b>]]></a>", True),
        (b"<a>&#32;</a>", True),
    ],
)
def test_content_beside_the_children_is_found(raw: bytes, expected: bool) -> None:
    assert parse_element(raw).has_other_content() == expected
    assert parse_element(b"<e>%b</e>" % raw).children[0].has_other_content() == expected


@pytest.mark.parametrize("content", [b"text", b"<b/>"])
def test_any_content_of_a_grandchild_is_found(content: bytes) -> None:
    full, empty = parse_element(b"<e><f><a>%b</a><a/></f></e>" % content).children[0].children
    assert full.has_other_content()
    assert not empty.has_other_content()


@pytest.mark.parametrize(
    "raw", [b"", b"<a", b"<a>", b"<a/><b/>", b"text", b"<a/>x", b"</s:stream>", b"<a/></s:stream>"]
)
def test_only_one_element_is_accepted(raw: bytes) -> None:
    with pytest.raises(FragmentError):
        parse_element(raw)


@pytest.mark.parametrize("parse", [parse_element, parse_fragment])
def test_the_size_of_an_element_is_limited(parse: Callable[[bytes], object]) -> None:
    largest = b"<a>%b</a>" % (b"x" * (MAX_FRAGMENT_BYTES - 7))
    assert parse(largest) is not None
    with pytest.raises(FragmentError):
        parse(largest.replace(b"x", b"xx", 1))


@pytest.mark.parametrize(
    "raw",
    [
        b"<a><b/></a>",
        b"<a xmlns='urn:x'/>",
        b"<c:a xmlns:c='urn:c' x='1'><b/></c:a>",
        b"<c:a xmlns:c='jabber:client'><b xmlns='urn:x'/></c:a>",
        b"<a xmlns=''><b/></a>",
    ],
)
@pytest.mark.parametrize("around", [b"jabber:client", b"urn:p"])
def test_an_element_with_its_namespace_may_be_moved(raw: bytes, around: bytes) -> None:
    (child,) = parse_element(b"<p xmlns='%b'>%b</p>" % (around, raw)).children
    expected = parse_fragment(b"<p xmlns='%b'>%b</p>" % (around, raw))[0]
    moved = parse_fragment(b"<q xmlns='urn:elsewhere'>%b</q>" % with_namespace(child))[0]
    assert canonical(moved) == canonical(expected)


def test_message_in_the_namespace_of_clients_is_unchanged() -> None:
    body = b"<message xmlns='jabber:client'><body>x</body></message>"
    assert as_client_stanza(body) == body


def test_inherited_qos_namespace_is_replaced_and_others_are_kept() -> None:
    body = b"<message xmlns='urn:xmpp:qos'><body>x</body><own xmlns='urn:own'/></message>"
    tree = ElementTree.fromstring(as_client_stanza(body))  # noqa: S314 - our own output
    assert [element.tag for element in tree.iter()] == [
        "{jabber:client}message",
        "{jabber:client}body",
        "{urn:own}own",
    ]


def test_only_bytes_that_can_be_parsed_have_an_id() -> None:
    assert [id_of(b"<message id='7'/>"), id_of(b"<message/>"), id_of(b"<message")] == [
        "7",
        None,
        None,
    ]
