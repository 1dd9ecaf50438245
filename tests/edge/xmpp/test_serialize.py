from __future__ import annotations

import pytest

from edge.xmpp import replies, serialize
from edge.xmpp.errors import (
    STANZA_CONDITIONS,
    STREAM_CONDITIONS,
    StanzaError,
    StreamError,
    UsageError,
)
from edge.xmpp.namespaces import BIND, CLIENT, STANZA_ERRORS, STREAM_ERRORS, STREAMS, XML, clark
from edge.xmpp.parser import StreamParser
from edge.xmpp.stanza import StreamOpen, parse_fragment
from tests.helpers.store import stanza

REQUEST = stanza("<iq type='set' id='7'><q xmlns='u'><r/></q></iq>")
NASTY = "<>&'\"\t\r\n]]>\u00e9\U0001f600"


def test_text_and_values_survive_a_round_trip() -> None:
    written = serialize.tag("a", {"b": NASTY, "c": None}, serialize.escape(NASTY), xmlns="u<'")
    tree = parse_fragment(written)
    assert (tree.tag, tree.attrib, tree.text) == (clark("u<'", "a"), {"b": NASTY}, NASTY)


@pytest.mark.parametrize("illegal", ["\0", "\x08", "\x0b", "\x1f", "\ud800", "\ufffe", "\uffff"])
def test_illegal_characters_are_replaced(illegal: str) -> None:
    assert serialize.escape(f"a{illegal}b").decode() == "a\ufffdb"
    assert serialize.attribute("k", f"a{illegal}b").decode() == " k='a\ufffdb'"


def test_an_empty_element_is_self_closing() -> None:
    assert serialize.tag("a") == b"<a/>"
    assert serialize.attribute("a", None) == b""


def test_stream_header() -> None:
    written = serialize.stream_header("gw.example", "id'1", "a&b")
    item = StreamParser().feed(written)[0]
    assert isinstance(item, StreamOpen)
    assert (item.name, item.namespace) == (clark(STREAMS, "stream"), CLIENT)
    attrs = {"from": "gw.example", "id": "id'1", "to": "a&b", "version": "1.0"}
    assert item.attrs == {**attrs, clark(XML, "lang"): "en"}
    assert b" to=" not in serialize.stream_header("gw.example", "1", None)


@pytest.mark.parametrize("condition", sorted(STREAM_CONDITIONS))
def test_stream_errors(condition: str) -> None:
    element = f"<{condition} xmlns='{STREAM_ERRORS}'/>"
    text = f"<text xmlns='{STREAM_ERRORS}' xml:lang='en'>a&lt;b</text>"
    for error, content, described in (
        (StreamError(condition), element, condition),
        (StreamError(condition, "a<b"), element + text, f"{condition}: a<b"),
    ):
        written = serialize.stream_error(error).decode()
        assert written == f"<stream:error>{content}</stream:error>"
        assert str(error) == described


def test_iq_result() -> None:
    assert serialize.iq_result("1'", "a@b/c", "gw.example", b"<q/>") == (
        b"<iq type='result' id='1&apos;' to='a@b/c' from='gw.example'><q/></iq>"
    )
    assert serialize.iq_result("1") == b"<iq type='result' id='1'/>"
    assert serialize.iq_result(None) == b"<iq type='result'/>"


@pytest.mark.parametrize(("condition", "kind"), sorted(STANZA_CONDITIONS.items()))
def test_iq_error_conditions(condition: str, kind: str) -> None:
    assert replies.iq_error(REQUEST, StanzaError(condition)).decode() == (
        f"<iq type='error' id='7'><error type='{kind}'><{condition} xmlns='{STANZA_ERRORS}'/>"
        "</error></iq>"
    )


def test_iq_error_with_all_parts() -> None:
    extra = b"<x xmlns='v'/>"
    error = StanzaError("conflict", "a<b", type="wait", application=extra, echo=True)
    written = (
        f"<error type='wait'><conflict xmlns='{STANZA_ERRORS}'/>"
        f"<text xmlns='{STANZA_ERRORS}' xml:lang='en'>a&lt;b</text><x xmlns='v'/></error></iq>"
    )
    assert replies.iq_error(REQUEST, error, to="a@b", from_="c").decode() == (
        f"<iq type='error' id='7' to='a@b' from='c'><q xmlns='u'><r/></q>{written}"
    )
    empty = replies.iq_error(stanza("<iq id='1'/>"), error)
    assert empty.decode() == f"<iq type='error' id='1'>{written}"
    other = replies.iq_error(REQUEST, StanzaError("gone", echo=True, instead=b"<q/>"))
    assert other.startswith(b"<iq type='error' id='7'><q/><error ")
    assert (str(error), str(StanzaError("gone"))) == ("wait/conflict: a<b", "cancel/gone")


def test_message_error() -> None:
    request = stanza("<message id='7'><body>x</body></message>")
    written = replies.message_error(request, StanzaError("forbidden"), to="a@b", from_="c")
    assert written.decode() == (
        "<message type='error' id='7' to='a@b' from='c'><error type='auth'>"
        f"<forbidden xmlns='{STANZA_ERRORS}'/></error></message>"
    )


def test_bind_result() -> None:
    assert serialize.bind_result("1", "a@b/c<d").decode() == (
        f"<iq type='result' id='1'><bind xmlns='{BIND}'><jid>a@b/c&lt;d</jid></bind></iq>"
    )


def test_unknown_conditions_are_usage_errors() -> None:
    with pytest.raises(UsageError):
        StreamError("bad-request")
    with pytest.raises(UsageError):
        StanzaError("not-well-formed")
    with pytest.raises(UsageError):
        StanzaError("gone", type="never")


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
    assert serialize.iq_set("p1", "a/r", "a", b"<x/>") == (
        b"<iq type='set' id='p1' to='a/r' from='a'><x/></iq>"
    )


def test_delays_are_in_utc() -> None:
    assert serialize.timestamp(0) == "1970-01-01T00:00:00.000Z"
    assert serialize.timestamp(1_031_699_305_042) == "2002-09-10T23:08:25.042Z"
    assert serialize.delay("gw.example", 1_031_699_305_000) == (
        b"<delay xmlns='urn:xmpp:delay' from='gw.example' stamp='2002-09-10T23:08:25.000Z'/>"
    )
