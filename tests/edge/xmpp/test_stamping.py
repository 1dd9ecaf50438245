from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.xmpp import serialize
from edge.xmpp.errors import UsageError
from edge.xmpp.parser import StreamParser
from edge.xmpp.stanza import Stanza, parse_fragment, stamped, stamped_with, stamper
from tests.helpers.parser_corpus import HEADER, STREAMS

ME = "pump1@gw.example/fw"
YOU = "gw.example"
EXTRA = b"<x xmlns='u:extra'/>"


def stanza(raw: bytes, header: bytes = HEADER) -> Stanza:
    item = StreamParser().feed(header + raw)[-1]
    assert isinstance(item, Stanza)
    return item


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
    assert stamped(stanza(raw), ME) == expected % ME.encode()
    assert stamped(raw, ME) == expected % ME.encode()


def test_the_recipient_is_replaced() -> None:
    raw = b"<message to='x' from='y' id='1'>t</message>"
    expected = b"<message from='pump1@gw.example/fw' to='gw.example' id='1'>t</message>"
    assert stamped(stanza(raw), ME, YOU) == expected
    assert stamped(b"<message/>", ME, YOU) == b"<message from='%b' to='%b'/>" % (
        ME.encode(),
        YOU.encode(),
    )


def test_a_resource_is_escaped() -> None:
    assert b"from='a@b/&apos;&lt;&amp;'" in stamped(b"<message from='x'/>", "a@b/'<&")


def test_outside_declarations_are_added() -> None:
    header = HEADER.replace(b"xml:lang", b"xmlns:p='u:p' xml:lang")
    raw = stamped(stanza(b"<p:message p:from='x' from='y'><p:a/></p:message>", header), ME)
    tree = parse_fragment(raw)
    assert tree.tag == "{u:p}message"
    assert tree.attrib == {"{u:p}from": "x", "from": ME}
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
    assert stamped_with(stanza(raw), ME, EXTRA) == expected % ME.encode()


def test_a_child_is_appended_with_another_recipient() -> None:
    assert stamped_with(b"<message to='a'/>", ME, EXTRA, "b").startswith(
        b"<message from='pump1@gw.example/fw' to='b'>"
    )


def canonical(element: ElementTree.Element) -> str:
    return ElementTree.canonicalize(ElementTree.tostring(element, encoding="unicode"))


@pytest.mark.parametrize("name", STREAMS)
def test_everything_else_is_unchanged(name: str) -> None:
    items = StreamParser().feed(HEADER + STREAMS[name])
    for item in (one for one in items if isinstance(one, Stanza)):
        before, after = item.tree(), parse_fragment(stamped(item, ME, YOU))
        stamp = stamper(item, ME)
        assert [stamp(to) for to in (YOU, "a'<b")] == [
            stamped(item, ME, to) for to in (YOU, "a'<b")
        ]
        more = parse_fragment(stamped_with(item, ME, EXTRA, YOU))
        assert more[-1].tag == "{u:extra}x"
        more.remove(more[-1])
        for tree in (after, more):
            assert tree.attrib.pop("from") == ME
            assert tree.attrib.pop("to") == YOU
        before.attrib.pop("to", None)
        before.attrib.pop("from", None)
        assert canonical(after) == canonical(before)
        assert canonical(more) == canonical(before)


@given(st.dictionaries(st.sampled_from(["from", "to", "id", "type", "from1", "x-to"]), st.text()))
def test_any_attribute_values(attrs: dict[str, str]) -> None:
    raw = serialize.tag("message", attrs, b"<body from='b'>b</body>")
    tree = parse_fragment(stamped(raw, ME, YOU))
    kept = parse_fragment(raw).attrib
    assert tree.attrib == {**kept, "from": ME, "to": YOU}
    assert tree[0].attrib == {"from": "b"}


def test_blanks_take_linear_time() -> None:
    """Quadratic time would take minutes."""
    blanks = b" " * 60_000
    for raw in (
        b"<message%b/>" % blanks,
        b"<message a='b'%bfrom='x'%bc='d'%b></message>" % (blanks, blanks, blanks),
        b"<message><body>%b</body%b></message%b>" % (blanks, blanks, blanks),
    ):
        tree = parse_fragment(stamped_with(stanza_of(raw), ME, EXTRA))
        assert tree.attrib["from"] == ME
        assert tree[-1].tag == "{u:extra}x"


def stanza_of(raw: bytes) -> Stanza:
    item = StreamParser(1_000_000).feed(HEADER + raw)[-1]
    assert isinstance(item, Stanza)
    return item


def test_bytes_without_a_stanza_are_a_usage_error() -> None:
    with pytest.raises(UsageError):
        stamped(b"text", ME)


# Built stanzas


def test_built_stanzas() -> None:
    assert serialize.message("chat", "a", "b", b"<body>x</body>", id="1") == (
        b"<message type='chat' id='1' to='b' from='a'><body>x</body></message>"
    )
    assert serialize.message(None, None, "b", b"") == b"<message to='b'/>"
    assert serialize.presence() == b"<presence/>"
    assert serialize.presence("subscribed", "a", "b") == (
        b"<presence type='subscribed' to='b' from='a'/>"
    )
    assert serialize.presence(None, "a/r", "b", b"<show>away</show>", "2") == (
        b"<presence id='2' to='b' from='a/r'><show>away</show></presence>"
    )
    assert serialize.iq_set("p1", "a/r", "a", EXTRA) == (
        b"<iq type='set' id='p1' to='a/r' from='a'><x xmlns='u:extra'/></iq>"
    )


def test_delays_are_in_utc() -> None:
    assert serialize.timestamp(0) == "1970-01-01T00:00:00.000Z"
    assert serialize.timestamp(1_031_699_305_042) == "2002-09-10T23:08:25.042Z"
    assert serialize.delay("gw.example", 1_031_699_305_000) == (
        b"<delay xmlns='urn:xmpp:delay' from='gw.example' stamp='2002-09-10T23:08:25.000Z'/>"
    )
