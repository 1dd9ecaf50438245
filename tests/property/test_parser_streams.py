from __future__ import annotations

from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from edge.xmpp.errors import StreamError
from edge.xmpp.parser import StreamParser
from edge.xmpp.stanza import Item, OversizedStanza, Stanza
from tests.fuzz import fuzz_escape
from tests.fuzz.fuzz_parser import check_bytes
from tests.helpers.parser_corpus import HEADER, STREAMS, feed_all, flat, run

NAMES = st.sampled_from(["a", "b", "iq", "message", "q-1", "\u00e9l\u00e9", "x.y"])
PREFIXES = st.sampled_from(["p", "q", "stream", "xmlnsx"])
NAMESPACES = st.sampled_from(["jabber:client", "u:1", "u:2", "http://x/?a=1&b='2'"])
ANY_TEXT = st.text(
    st.one_of(
        st.sampled_from("<>&'\"/]=! \n:"),
        st.characters(
            codec="utf-8", exclude_categories=("Cc", "Cs"), exclude_characters="\ufffe\uffff"
        ),
    ),
    max_size=12,
)
LOOKALIKES = st.sampled_from(["='' xmlns='u:1'", " p:a='", "<p:b", "xmlns:p=", "/>", "]]>", "<!--"])
TEXTS = st.one_of(ANY_TEXT, LOOKALIKES)
Draw = Callable[..., Any]


def quote(draw: Draw, value: str) -> str:
    """Write a value in either kind of quotes, with minimal escapes."""
    value = value.replace("&", "&amp;").replace("<", "&lt;").replace("\n", "&#xA;")
    if draw(st.booleans()):
        return "'" + value.replace("'", "&apos;") + "'"
    return '"' + value.replace('"', "&#34;") + '"'


def write_text(draw: Draw, text: str) -> str:
    """Write text plainly, as CDATA or as references."""
    form = draw(st.sampled_from(["plain", "cdata", "numbers"]))
    if form == "cdata" and "]]>" not in text:
        return f"<![CDATA[{text}]]>"
    if form == "numbers":
        return "".join(f"&#{ord(c)};" for c in text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("]]>", "]]&gt;")


def attributes(draw: Draw, scope: dict[str, str]) -> list[str]:
    """Write unique attributes, with and without prefixes."""
    found: dict[tuple[str, str], str] = {}
    for name in draw(st.lists(NAMES, max_size=3)):
        prefix: str = draw(st.sampled_from(["", "xml", *(p for p in scope if p)]))
        qualified = f"{prefix}:{name}" if prefix else name
        found[scope.get(prefix, "xml") if prefix else "", name] = (
            f"{qualified}={quote(draw, draw(TEXTS))}"
        )
    return list(found.values())


def element(draw: Draw, scope: dict[str, str], depth: int) -> str:
    """Write an element; `scope` maps declared prefixes to namespaces."""
    scope = dict(scope)
    parts = []
    if draw(st.booleans()):
        scope[""] = draw(st.one_of(NAMESPACES, st.just("")))
        parts.append(f"xmlns={quote(draw, scope[''])}")
    for prefix in set(draw(st.lists(PREFIXES, max_size=1))):
        scope[prefix] = draw(NAMESPACES)
        parts.append(f"xmlns:{prefix} = {quote(draw, scope[prefix])}")
    parts += attributes(draw, scope)
    prefix = draw(st.sampled_from(list(scope)))
    name = draw(NAMES)
    qualified = f"{prefix}:{name}" if prefix else name
    head = draw(st.sampled_from([" ", "\n", "  "])).join([qualified, *parts])
    content = [write_text(draw, text) for text in draw(st.lists(TEXTS, max_size=1))]
    if depth:
        for _ in range(draw(st.integers(0, 2))):
            content += [element(draw, scope, depth - 1), write_text(draw, draw(TEXTS))]
    if not "".join(content):
        return f"<{head}/>" if draw(st.booleans()) else f"<{head}></{qualified}>"
    return f"<{head}>{''.join(content)}</{qualified} >"


@st.composite
def stanzas(draw: Draw) -> str:
    return element(draw, {"": "jabber:client", "stream": "http://etherx.jabber.org/streams"}, 3)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


@given(st.lists(stanzas(), min_size=1, max_size=3), st.lists(st.integers(0, 2000), max_size=8))
def test_trees_survive_splitting(sources: list[str], cuts: list[int]) -> None:
    data = HEADER + "\n ".join(sources).encode()
    parser = StreamParser(max_stanza_bytes=64 * 1024)
    items = feed_all(parser, pieces(data, cuts))[1:]
    assert parser.pending == 0
    whole = ElementTree.fromstring(data + b"</stream:stream>")  # noqa: S314 (our own)
    for item, tree in zip(items, whole, strict=True):
        assert isinstance(item, Stanza)
        assert (item.name, item.attrs) == (tree.tag, tree.attrib)
        check_bytes(item, tree)


@given(st.lists(stanzas(), min_size=1, max_size=5), st.integers(1, 40))
def test_a_tolerant_parser_differs_from_a_strict_one_for_oversized_stanzas_only(
    sources: list[str], size: int
) -> None:
    data = "".join(sources).encode()
    found = parse(pieces(data, [*range(size, len(data), size)]), tolerant=True)
    assert len(found) == len(sources)
    for source, item in zip(sources, found, strict=True):
        try:
            (wanted,) = parse([source.encode()], tolerant=False)
        except StreamError:
            assert isinstance(item, OversizedStanza)
            assert (item.children, item.size) == ([], len(source.encode()))
        else:
            assert type(item) is Stanza
            assert flat(item) == flat(wanted)


def parse(data: list[bytes], *, tolerant: bool) -> list[Item]:
    """Parse stanzas with a parser that has low limits."""
    parser = StreamParser(65_536, 3, 5, 2, tolerant=tolerant)
    parser.feed(HEADER.replace(b" to='gw.example' version='1.0'", b""))
    return feed_all(parser, data)


@st.composite
def mutated_streams(draw: Draw) -> bytes:
    """Draw a stream of the corpus with a few bytes replaced, added or removed."""
    data = bytearray(HEADER + b"".join(draw(st.lists(st.sampled_from(list(STREAMS.values()))))))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        with_ = draw(st.one_of(st.binary(max_size=2), st.sampled_from([b"<", b">", b"'", b'"'])))
        data[at : at + draw(st.integers(0, 2))] = with_
    return bytes(data)


@given(mutated_streams(), st.lists(st.integers(0, 2000), max_size=8))
def test_mutated_streams_raise_stream_errors_only(data: bytes, cuts: list[int]) -> None:
    whole = run(data)
    split = run(*pieces(data, cuts))
    before = [item for item in whole if len(item) != 1 or item == ("close",)]
    assert [item for item in split if len(item) != 1 or item == ("close",)] == before
    assert run(*pieces(data, cuts), release=True) == split


@given(TEXTS)
def test_text_survives_a_round_trip(text: str) -> None:
    fuzz_escape.check(text.encode())
