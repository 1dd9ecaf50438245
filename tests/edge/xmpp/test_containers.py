"""Payloads of other content types as elements."""

from __future__ import annotations

from base64 import b64decode
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import content_types
from edge.xmpp import containers
from edge.xmpp.namespaces import CONTENT, JSON, clark
from edge.xmpp.pubsub import item

TEXT = clark(CONTENT, "text")
DATA = clark(CONTENT, "data")


def read(payload: bytes, content_type: str) -> Element:
    return ElementTree.fromstring(containers.element(payload, content_type))  # noqa: S314


@pytest.mark.parametrize(
    ("payload", "content_type", "tag"),
    [
        (
            b'{"t": "\xc2\xbd <&\r\n"}'.replace(b"\r\n", b"\\n"),
            "application/json",
            clark(JSON, "json"),
        ),
        (b"[1]", "application/senml+json; charset=UTF-8", clark(JSON, "json")),
        (b"21.5 \xc2\xb0C\r\n<&>", "text/plain", TEXT),
        (b"a", "Text/Plain;charset=utf-8", TEXT),
        (b'{"t":', "application/json", DATA),
        (b'"\xff"', "application/json", DATA),
        (b'"\xef\xbf\xbf"', "application/json", DATA),
        (b"\xe9", "text/plain", DATA),
        (b"\xc3\xa9", "text/plain; charset=iso-8859-1", DATA),
        (b"\x00", "text/plain", DATA),
        (b"\x00\xff", "image/png", DATA),
        (b"a,b", "text/csv", DATA),
    ],
)
def test_a_payload_arrives_in_the_element_of_its_content_type(
    payload: bytes, content_type: str, tag: str
) -> None:
    found = read(payload, content_type)
    text = found.text or ""
    assert found.tag == tag
    assert (b64decode(text) if tag == DATA else text.encode()) == payload
    assert found.get("type") == (None if tag == clark(JSON, "json") else content_type)


def test_an_item_without_content_type_has_its_element_or_nothing() -> None:
    assert item("1", b"<v xmlns='urn:v'/>", None) == b"<item id='1'><v xmlns='urn:v'/></item>"
    assert item("1", b"", None, "text/plain") == b"<item id='1'/>"


@given(st.binary(min_size=1), st.text(min_size=1) | st.just("text/plain") | st.just("a/b+json"))
def test_all_bytes_arrive_whatever_the_content_type(payload: bytes, content_type: str) -> None:
    found = read(payload, content_type)
    text = found.text or ""
    assert (b64decode(text) if found.tag == DATA else text.encode()) == payload


def test_deeply_nested_json_arrives_as_data() -> None:
    payload = b"[" * 100_000 + b"]" * 100_000
    assert read(payload, "application/json").tag == DATA


@pytest.mark.parametrize(
    ("payload", "tag", "type_"),
    [
        (b'{"t": 21.5}', clark(JSON, "json"), None),
        (b"21.5", clark(JSON, "json"), None),
        (b"ON", TEXT, "text/plain"),
        (b"\xff", DATA, "application/octet-stream"),
    ],
)
def test_a_payload_of_which_nothing_is_said_arrives_as_what_it_looks_like(
    payload: bytes, tag: str, type_: str | None
) -> None:
    found = read(payload, content_types.UNKNOWN)
    assert (found.tag, found.get("type")) == (tag, type_)
    assert containers.read(containers.element(payload, content_types.UNKNOWN))[0] == payload


@given(payload=st.binary(min_size=1), content_type=st.sampled_from(["image/png", "text/plain"]))
def test_an_element_is_read_as_the_payload_from_which_it_was_made(
    payload: bytes, content_type: str
) -> None:
    found = containers.element(payload, content_type)
    assert containers.read(found) == (payload, content_type)


@pytest.mark.parametrize(
    "payload", [b"<v xmlns='urn:v'>1</v>", b"<data xmlns='urn:x-fieldpost:content'>?</data>"]
)
def test_other_elements_are_read_as_xml(payload: bytes) -> None:
    assert containers.read(payload) == (payload, "application/xml")
