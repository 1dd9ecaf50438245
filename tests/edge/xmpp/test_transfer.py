"""Items of a stream from one process to another; `tests/property/test_transfer.py` has the rest."""

from __future__ import annotations

from typing import Any

import pytest

from edge.server.link.messages import MAX_ITEMS
from edge.xmpp import transfer, transferred
from edge.xmpp.envelopes import EnvelopeParser
from edge.xmpp.errors import FragmentError, StreamError, UsageError
from edge.xmpp.parser import StreamParser
from edge.xmpp.stanza import Stanza, stamped
from edge.xmpp.transfer import MAX_BYTES, StreamReceiver, StreamSender
from edge.xmpp.transferred import Header, Part, Whole
from tests.helpers.envelopes import PLAIN
from tests.helpers.parser_corpus import HEADER
from tests.property.test_transfer import compared


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_envelope_keeps_its_tree(name: str) -> None:
    parser = StreamParser(envelopes=EnvelopeParser())
    sent: list[Any] = [*parser.feed(HEADER), *parser.feed(PLAIN[name])]
    received = StreamReceiver().decode(StreamSender().encode(sent))
    assert list(map(compared, received)) == list(map(compared, sent))
    assert isinstance(received[1], Stanza)


FORGED = {
    "two": b"<message><body/></message><iq type='set' from='gw.example'/>",
    "cut": b"<message><body>",
    "text": b"<message/>and more",
    "comment": b"<message><!-- --></message>",
    "instruction": b"<message/><?a?>",
    "declaration": b"<?xml version='1.0'?><message/>",
    "doctype": b"<!DOCTYPE message><message/>",
    "prefix": b"<message><a:b/></message>",
    "twice": b"<message to='a' to='b'/>",
    "end of stream": b"</stream:stream>",
}


@pytest.mark.parametrize("name", FORGED)
def test_bytes_that_are_not_one_element_are_not_passed_on(name: str) -> None:
    """Another process could otherwise send others what no device may send."""
    raw = FORGED[name]
    forged = transferred.encode([Whole("{jabber:client}message", {}, raw, [], "")])
    (stanza,) = StreamReceiver().decode(forged)
    assert isinstance(stanza, Stanza)
    with pytest.raises(FragmentError):
        _ = stanza.raw
    with pytest.raises(FragmentError):
        stamped(stanza, "a@gw.example/fw")
    whole = b"<iq>" + raw + b"</iq>"
    part = Part("{jabber:client}message", {}, 4, 4 + len(raw), True, None, [])
    with pytest.raises(UsageError):
        StreamReceiver().decode(transferred.encode([Whole("iq", {}, whole, [part], "")]))


def test_a_language_that_the_attributes_deny_is_not_passed_on() -> None:
    header = Header(b"<stream:stream>", (), "en")
    stanza = Whole("{jabber:client}message", {}, b"<message xml:lang='de'/>", [], "")
    _header, found = [None, *StreamReceiver().decode(transferred.encode([header, stanza]))]
    assert isinstance(found, Stanza)
    with pytest.raises(FragmentError):
        _ = found.with_stream_language
    raw = b"<iq><message xml:lang='de'/></iq>"
    part = Part("{jabber:client}message", {}, 4, 28, True, None, [])
    (iq,) = StreamReceiver().decode(transferred.encode([Whole("iq", {}, raw, [part], "")]))
    assert isinstance(iq, Stanza)
    assert iq.children[0].raw == raw[4:28]
    with pytest.raises(FragmentError):
        iq.children[0].raw_with_language("en")


def test_encoded_items_have_a_limit_whatever_the_stanza_may_have() -> None:
    parser = StreamParser(max_stanza_bytes=1024 * 1024, max_elements=1000)
    header = parser.feed(HEADER)
    wide = b"<message xmlns:n='%b'>%b%b</message>" % (
        b"n" * 5000,
        b"<n:a/>" * 900,
        b" " * 300_000,
    )
    items = parser.feed(wide)
    assert MAX_BYTES < len(StreamSender()._encode(items)[0]) < 16 * len(wide)
    found = StreamReceiver().decode(data := StreamSender().encode([*header, *items]))
    assert len(data) <= MAX_BYTES <= MAX_ITEMS
    assert isinstance(found[-1], StreamError)


def test_the_header_of_the_stream_counts_towards_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "MAX_BYTES", 20_000)
    parser = StreamParser(max_elements=1000)
    parser.feed(HEADER.replace(b" xmlns=", b" a='%b' xmlns=" % (b"h" * 9000), 1))
    wide = b"<message xmlns:n='%b'>%b</message><message/>" % (b"n" * 300, b"<n:a/>" * 40)
    items = parser.feed(wide)
    assert 20_000 < len(StreamSender()._encode(items)[0]) < 27_000  # with its 9,000
    data = StreamSender().encode(items)
    assert len(data) <= 20_000
    assert isinstance(StreamReceiver().decode(data)[-1], StreamError)


@pytest.mark.parametrize(
    ("start", "stop", "raw", "fault"),
    [
        (0, 9, b"<a/>", "outside of its stanza"),
        (3, 2, b"<a/>", "outside of its stanza"),
        (0, 3, b"<a ", "has no end"),
    ],
)
def test_offsets_must_lie_in_the_stanza(start: int, stop: int, raw: bytes, fault: str) -> None:
    part = Part("b", {}, start, stop, False, None, [])
    data = transferred.encode([Whole("a", {}, raw, [part], "")])
    with pytest.raises(UsageError, match=fault):
        StreamReceiver().decode(data)
