from __future__ import annotations

import pytest

from edge.ops.data.payloads import read
from edge.xmpp import containers

JSON = "<json xmlns='urn:xmpp:json:0'>{}</json>"
BODY = "<body xmlns='jabber:client'>{}</body>"


@pytest.mark.parametrize(
    ("payload", "content_type", "short", "fields"),
    [
        ("", "", "", {"text": ""}),
        ("<x xmlns='urn:x'/>", "", "<x xmlns='urn:x'/>", {}),
        ("<a/><b/>", "", "<a/><b/>", {}),
        (BODY.format("a &lt; b"), "", "a < b", {"text": "a < b"}),
        (JSON.format('{"watts": 7}'), "", '{"watts": 7}', {"json": {"watts": 7}}),
        (JSON.format("no JSON"), "", "no JSON", {"text": "no JSON"}),
        ("<!-- a --><a/>", "", "<!-- a --><a/>", {}),
        ("a < b", "text/plain", "a < b", {"text": "a < b"}),
        ('{"watts":7}', "application/json", '{"watts": 7}', {"json": {"watts": 7}}),
        ("7 ", "application/json; charset=utf-8", "7", {"json": 7}),
        ('{"watts": 7}', "application/senml+json", '{"watts": 7}', {"json": {"watts": 7}}),
        ("no JSON", "application/json", "no JSON", {"text": "no JSON"}),
        ("7;8", "application/x-own", "7;8", {}),
    ],
)
def test_a_payload_is_shown_by_its_content_type(
    payload: str, content_type: str, short: str, fields: dict[str, object]
) -> None:
    found = read(payload.encode(), content_type)
    type_ = {"content_type": content_type} if content_type else {}
    assert (found.short, found.fields()) == (short, {"payload": payload, **type_, **fields})


def test_text_of_another_protocol_is_shown_as_xmpp_carries_it() -> None:
    found = read(containers.element("21 °C".encode(), "text/csv; header=absent"))
    assert found.text is None, "only plain text has an element of its own"
    assert read(containers.element("21 °C".encode(), "text/plain")).short == "21 °C"


def test_text_of_another_encoding_is_shown_in_base64() -> None:
    found = read("21 °C".encode("latin-1"), "text/plain; charset=iso-8859-1")
    assert (found.short, found.encoding) == ("MjEgsEM=", "base64")


def test_bytes_that_are_not_text_are_shown_in_base64() -> None:
    found = read(b"\xff\x00", "application/octet-stream")
    assert found.short == "/wA="
    assert found.fields() == {
        "payload": "/wA=",
        "content_type": "application/octet-stream",
        "encoding": "base64",
    }
