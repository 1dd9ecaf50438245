from __future__ import annotations

import gc
import threading
import weakref
from xml.etree import ElementTree

import pytest

from edge.xmpp import stanza, tree_parser
from edge.xmpp.errors import FragmentError
from edge.xmpp.stanza import parse_fragment
from edge.xmpp.tree_parser import TreeParser
from tests.fuzz.fuzz_parser import same
from tests.helpers.envelopes import LOG, READING

ELEMENTS = {
    "reading": READING,
    "log": LOG,
    "empty": b"<a/>",
    "default namespace": b"<a><b xmlns=''/></a>",
    "prefix": b"<p:a xmlns:p='u' p:b='1'/>",
    "CDATA": b"<a><![CDATA[<b>]]></a>",
    "comment": b"<!-- a --><a><!-- b --></a><!-- c -->",
    "like the probe": b"<end/>",
}
NOT_ONE_ELEMENT = {
    "nothing": b"",
    "text": b"x",
    "text before": b"x<a/>",
    "text after": b"<a/>x",
    "space after": b"<a/> ",
    "two elements": b"<a/><b/>",
    "an element and an unclosed one": b"<a/><b>",
    "an element and a part of another": b"<a/><b><c/>",
    "an element and an unclosed probe": b"<a/><end>",
    "unclosed": b"<a>",
    "unclosed namesake": b"<a><a></a>",
    "closed twice": b"<a></a></a>",
    "closes the root": b"</root>",
    "closes the root and begins another": b"<a/></root><root>",
    "closes the envelope and begins another": b"</e><e>",
    "an element between envelopes": b"<a/></e><e/>",
    "declaration": b"<?xml version='1.0'?><a/>",
    "not UTF-8": b"\xff",
    "unclosed tag": b"<a",
    "unclosed value": b"<a b='",
    "unclosed comment": b"<a/><!--",
    "unclosed CDATA": b"<a/><![CDATA[",
    "unclosed instruction": b"<a/><?x",
    "undeclared prefix": b"<p:a/>",
    "entity": b"<a>&x;</a>",
    "document type": b"<!DOCTYPE a><a/>",
    "cut UTF-8": b"<a/>\xe2\x82",
}


@pytest.mark.parametrize("raw", ELEMENTS.values(), ids=ELEMENTS)
def test_one_element_is_parsed_as_by_a_new_parser(raw: bytes) -> None:
    parser = TreeParser("jabber:client")
    (expected,) = ElementTree.fromstring(b"<e xmlns='jabber:client'>%b</e>" % raw)  # noqa: S314
    for _ in range(3):
        tree = parser.parse(raw)
        assert tree is not None
        assert same(tree, expected)


@pytest.mark.parametrize("raw", NOT_ONE_ELEMENT.values(), ids=NOT_ONE_ELEMENT)
def test_other_bytes_are_refused_without_effect_on_the_next_element(raw: bytes) -> None:
    parser = TreeParser()
    for _ in range(2):
        assert parser.parse(raw) is None
        tree = parser.parse(READING)
        assert tree is not None
        assert same(tree, ElementTree.fromstring(READING))  # noqa: S314
    with pytest.raises(FragmentError):
        parse_fragment(raw)


@pytest.mark.parametrize("rebuild", [3 * len(READING), tree_parser.REBUILD_BYTES])
def test_only_the_last_tree_is_kept(rebuild: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_parser, "REBUILD_BYTES", rebuild)
    parser = TreeParser()

    def parse() -> weakref.ref[ElementTree.Element]:
        tree = parser.parse(READING)
        assert tree is not None
        return weakref.ref(tree)

    refs = [parse() for _ in range(10)]
    gc.collect()
    assert [ref() for ref in refs[:-1]] == [None] * 9


def test_each_thread_has_a_parser_of_its_own() -> None:
    parsers: list[TreeParser] = []
    for _ in range(2):
        parsers.append(stanza._tree_parser())
        thread = threading.Thread(target=lambda: parsers.append(stanza._tree_parser()))
        thread.start()
        thread.join()
    own, first, own_again, second = parsers
    assert own is own_again
    assert len({id(own), id(first), id(second)}) == 3
