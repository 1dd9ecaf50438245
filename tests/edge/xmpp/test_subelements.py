from __future__ import annotations

from xml.etree import ElementTree

import pytest

from edge.xmpp.errors import FragmentError
from edge.xmpp.stanza import parse_fragment, with_namespace
from edge.xmpp.subelements import parse_element

PUBLISH = (
    b"<publish xmlns='urn:p' node='a'><item id='1'><entry xmlns='urn:x'><b>t</b></entry></item>"
    b"<item id='2'/></publish>"
)


def test_children_and_grandchildren_are_slices() -> None:
    found = parse_element(PUBLISH)
    assert (found.name, found.attrs) == ("{urn:p}publish", {"node": "a"})
    assert [child.attrs["id"] for child in found.children] == ["1", "2"]
    (entry,) = found.children[0].children
    assert entry.raw == b"<entry xmlns='urn:x'><b>t</b></entry>"
    assert not found.children[1].children


@pytest.mark.parametrize(
    "raw", [b"", b"<a", b"<a>", b"<a/><b/>", b"text", b"<a/>x", b"</s:stream>", b"<a/></s:stream>"]
)
def test_only_one_element_is_accepted(raw: bytes) -> None:
    with pytest.raises(FragmentError):
        parse_element(raw)


def test_the_size_is_limited() -> None:
    with pytest.raises(FragmentError):
        parse_element(PUBLISH, max_bytes=len(PUBLISH) - 1)
    assert parse_element(PUBLISH, max_bytes=200).name == "{urn:p}publish"


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
    meant = parse_fragment(b"<p xmlns='%b'>%b</p>" % (around, raw))[0]
    moved = parse_fragment(b"<q xmlns='urn:elsewhere'>%b</q>" % with_namespace(child))[0]
    assert ElementTree.canonicalize(ElementTree.tostring(moved)) == ElementTree.canonicalize(
        ElementTree.tostring(meant)
    )
