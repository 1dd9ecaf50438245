"""The item in a message that `fieldpost send` publishes."""

from __future__ import annotations

import pytest

from edge.ops.payloads import PayloadError, message, read_item


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
