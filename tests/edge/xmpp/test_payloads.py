from __future__ import annotations

import pytest

from edge.xmpp.payloads import Format, PayloadError, message, payload_of, read_item, unwrap


def test_the_only_element_is_the_payload() -> None:
    item = read_item(message('{"watts": 7}', "json"))
    assert (item.id, item.payload.tag) == ("", "{urn:xmpp:json:0}json")
    assert item.payload.text == '{"watts": 7}'


def test_an_item_has_its_own_id() -> None:
    typed = "<item xmlns='http://jabber.org/protocol/pubsub' id='i7'><x xmlns='urn:x'/></item>"
    item = read_item(message(typed, "xml"))
    assert (item.id, item.payload.tag) == ("i7", "{urn:x}x")


@pytest.mark.parametrize(
    "typed",
    [
        "<message/>",
        "<message><a xmlns='urn:a'/><b xmlns='urn:b'/></message>",
        "<item xmlns='http://jabber.org/protocol/pubsub'/>",
    ],
)
def test_a_message_without_one_payload_is_no_item(typed: str) -> None:
    with pytest.raises(PayloadError, match="one payload"):
        read_item(message(typed, "xml"))


@pytest.mark.parametrize(
    ("typed", "format_", "content_type", "content"),
    [
        ("a <b> & c", "text", "text/plain", "a <b> & c"),
        ('{"watts": 7}', "json", "application/json", '{"watts": 7}'),
        ("<x xmlns='urn:x'/>", "xml", "", None),
        ("<message><body>b</body></message>", "xml", "text/plain", "b"),
        ("<message><a/><b/></message>", "xml", "", None),
    ],
)
def test_a_typed_payload_is_read_back(
    typed: str, format_: Format, content_type: str, content: str | None
) -> None:
    payload = payload_of(message(typed, format_))
    assert unwrap(payload) == (content_type, payload if content is None else content)


@pytest.mark.parametrize(
    ("typed", "format_", "problem"),
    [
        ("{", "json", "this is not JSON"),
        ("<a>", "xml", "not one XML element"),
        ("<!DOCTYPE a><a/>", "xml", "a document type"),
        ("\x00", "text", "not one XML element"),
    ],
)
def test_an_invalid_payload_is_refused(typed: str, format_: Format, problem: str) -> None:
    with pytest.raises(PayloadError, match=problem):
        message(typed, format_)
