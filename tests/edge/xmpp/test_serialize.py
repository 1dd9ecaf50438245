from __future__ import annotations

from xml.etree import ElementTree

import pytest

from edge.xmpp import replies, serialize
from edge.xmpp.errors import (
    STANZA_CONDITIONS,
    STREAM_CONDITIONS,
    FragmentError,
    StanzaError,
    StreamError,
    UsageError,
)
from edge.xmpp.namespaces import BIND, CLIENT, STANZA_ERRORS, STREAM_ERRORS, STREAMS, XML, clark
from edge.xmpp.parser import StreamParser
from edge.xmpp.stanza import MAX_FRAGMENT_BYTES, Stanza, StreamOpen, parse_fragment
from tests.helpers.parser_corpus import HEADER

NASTY = "<>&'\"\t\r\n]]>\u00e9\U0001f600"


def stanza(data: bytes) -> Stanza:
    parser = StreamParser()
    item = parser.feed(HEADER + data)[1]
    assert isinstance(item, Stanza)
    return item


def tree(data: bytes) -> ElementTree.Element:
    return parse_fragment(data)


def stream(data: bytes) -> ElementTree.Element:
    """Parse an element that uses the `stream` prefix."""
    document = b"<s xmlns:stream='%b'>%b</s>" % (STREAMS.encode(), data)
    return ElementTree.fromstring(document)[0]  # noqa: S314 (our own)


def test_text_and_values_survive_a_round_trip() -> None:
    written = serialize.tag("a", {"b": NASTY, "c": None}, serialize.escape(NASTY), xmlns="u<'")
    assert tree(written).tag == clark("u<'", "a")
    assert tree(written).attrib == {"b": NASTY}
    assert tree(written).text == NASTY


@pytest.mark.parametrize("illegal", ["\0", "\x08", "\x0b", "\x1f", "\ud800", "\ufffe", "\uffff"])
def test_illegal_characters_are_replaced(illegal: str) -> None:
    assert serialize.escape(f"a{illegal}b").decode() == "a\ufffdb"
    assert serialize.attribute("k", f"a{illegal}b").decode() == " k='a\ufffdb'"


def test_an_empty_element_is_self_closing() -> None:
    assert serialize.tag("a") == b"<a/>"
    assert serialize.attribute("a", None) == b""


def test_stream_header() -> None:
    written = serialize.stream_header("gw.example", "id'1", to="a&b")
    item = StreamParser().feed(written)[0]
    assert isinstance(item, StreamOpen)
    assert item.name == clark(STREAMS, "stream")
    assert item.namespace == CLIENT
    assert item.attrs == {
        "from": "gw.example",
        "id": "id'1",
        "to": "a&b",
        "version": "1.0",
        clark(XML, "lang"): "en",
    }
    assert b" to=" not in serialize.stream_header("gw.example", "1", "de")


@pytest.mark.parametrize("condition", sorted(STREAM_CONDITIONS))
def test_stream_errors(condition: str) -> None:
    written = stream(serialize.stream_error(StreamError(condition, "a<b")))
    assert written.tag == clark(STREAMS, "error")
    assert [child.tag for child in written] == [
        clark(STREAM_ERRORS, condition),
        clark(STREAM_ERRORS, "text"),
    ]
    assert (written[1].text, written[1].attrib) == ("a<b", {clark(XML, "lang"): "en"})
    assert len(stream(serialize.stream_error(StreamError(condition)))) == 1
    assert str(StreamError(condition)) == condition
    assert str(StreamError(condition, "why")) == f"{condition}: why"


def test_iq_result() -> None:
    written = tree(serialize.iq_result("1'", "a@b/c", "gw.example", b"<q xmlns='u'/>"))
    assert written.tag == clark(CLIENT, "iq")
    assert written.attrib == {"type": "result", "id": "1'", "to": "a@b/c", "from": "gw.example"}
    assert written[0].tag == "{u}q"
    assert serialize.iq_result("1") == b"<iq type='result' id='1'/>"
    assert serialize.iq_result(None) == b"<iq type='result'/>"


@pytest.mark.parametrize(("condition", "kind"), sorted(STANZA_CONDITIONS.items()))
def test_iq_error_conditions(condition: str, kind: str) -> None:
    request = stanza(b"<iq type='set' id='7'><q xmlns='u'><r/></q></iq>")
    written = tree(replies.iq_error(request, StanzaError(condition)))
    assert written.attrib == {"type": "error", "id": "7"}
    assert [child.tag for child in written] == [clark(CLIENT, "error")]
    assert written[0].attrib == {"type": kind}
    assert [child.tag for child in written[0]] == [clark(STANZA_ERRORS, condition)]


def test_iq_error_with_all_parts() -> None:
    request = stanza(b"<iq type='set' id='7'><q xmlns='u'><r/></q></iq>")
    extra = b"<x xmlns='v'/>"
    error = StanzaError("conflict", "a<b", type="wait", application=extra, echo=True)
    written = tree(replies.iq_error(request, error, to="a@b", from_="c"))
    assert written.attrib == {"type": "error", "id": "7", "to": "a@b", "from": "c"}
    assert [child.tag for child in written] == ["{u}q", clark(CLIENT, "error")]
    assert written[1].attrib == {"type": "wait"}
    assert [child.tag for child in written[1]] == [
        clark(STANZA_ERRORS, "conflict"),
        clark(STANZA_ERRORS, "text"),
        "{v}x",
    ]
    assert written[1][1].text == "a<b"
    assert str(error) == "wait/conflict: a<b"
    assert str(StanzaError("gone")) == "cancel/gone"
    empty = replies.iq_error(stanza(b"<iq id='1'/>"), error)
    assert len(tree(empty)) == 1
    other = StanzaError("gone", echo=True, instead=b"<q xmlns='w'/>")
    assert tree(replies.iq_error(request, other))[0].tag == "{w}q"


def test_message_error() -> None:
    request = stanza(b"<message id='7'><body>x</body></message>")
    written = tree(replies.message_error(request, StanzaError("forbidden"), to="a@b", from_="c"))
    assert written.tag == clark(CLIENT, "message")
    assert written.attrib == {"type": "error", "id": "7", "to": "a@b", "from": "c"}
    assert [child.tag for child in written] == [clark(CLIENT, "error")]


def test_bind_result() -> None:
    written = tree(serialize.bind_result("1", "a@b/c<d"))
    assert written.findtext(f"{clark(BIND, 'bind')}/{clark(BIND, 'jid')}") == "a@b/c<d"


def test_unknown_conditions_are_usage_errors() -> None:
    with pytest.raises(UsageError):
        StreamError("bad-request")
    with pytest.raises(UsageError):
        StanzaError("not-well-formed")
    with pytest.raises(UsageError):
        StanzaError("gone", type="never")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"text",
        b"<a/>text",
        b"text<a/>",
        b"<a/><b/>",
        b"<a>",
        b"</e><e>",
        b"<a/></e><e/>",
        b"<p:a/>",
        b"<a>&nbsp;</a>",
        b"<!DOCTYPE a><a/>",
        b"\xff",
        b"<?xml version='1.0'?><a/>",
        b"<a>" + b"x" * MAX_FRAGMENT_BYTES + b"</a>",
    ],
)
def test_invalid_fragments_are_refused(raw: bytes) -> None:
    with pytest.raises(FragmentError):
        parse_fragment(raw)


def test_the_size_of_a_fragment_is_limited() -> None:
    assert parse_fragment(b"<a/>", 4).tag == clark(CLIENT, "a")
    with pytest.raises(FragmentError):
        parse_fragment(b"<a />", 4)
