from __future__ import annotations

import pytest

from edge.ops.data.payloads import (
    Format,
    Payload,
    PayloadError,
    message,
    read,
    read_item,
    read_message,
)


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
    ("typed", "format_", "text", "value"),
    [
        ("a <b> & c", "text", "a <b> & c", None),
        ('{"watts": 7}', "json", None, {"watts": 7}),
        ("<x xmlns='urn:x'/>", "xml", None, None),
        ("<message><body>b</body></message>", "xml", "b", None),
    ],
)
def test_a_typed_payload_is_read_back(
    typed: str, format_: Format, text: str | None, value: object
) -> None:
    payload = read_message(message(typed, format_))
    assert (payload.text, payload.json) == (text, value)
    assert payload.short == (typed if format_ != "xml" else text or payload.xml)
    assert payload.fields()["payload"] == payload.xml


def test_the_payload_of_an_item_is_read() -> None:
    assert read("").text == ""
    assert read("<json xmlns='urn:xmpp:json:0'>no JSON</json>").text == "no JSON"
    assert read("<x xmlns='urn:x'/>") == Payload("<x xmlns='urn:x'/>")


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
