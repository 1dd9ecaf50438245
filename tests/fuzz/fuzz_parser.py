"""Target: the stream parser, with any bytes in any split.

An input is what follows a valid header, or a whole stream if it begins with `!`; with `~` the
parser is tolerant and has low limits. The checksum of the input determines the splits.

- Only `StreamError` is raised, and at most one stanza is kept.
- The split makes no difference to the items. (If the bytes are not well-formed, it may change when
  that is noticed, because an extra quote hides a tag's end.)
- ElementTree's parser finds the same stanzas.
- The raw bytes of each stanza and child are self-contained: parsed again they give the same tree.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from edge.xmpp.parser import MAX_STANZA_BYTES, ParseError, StreamParser
from edge.xmpp.stanza import Child, Item, Stanza
from tests.helpers.parser_corpus import HEADER, flat

MAX_BYTES: Final = 12 * 1024

BYTEWISE_BYTES: Final = 512
"""Inputs up to this size are also fed byte by byte."""


def check(data: bytes) -> None:
    """Parse a stream in several splits and by two parsers, and compare."""
    mode = data[:1] if data[:1] in (b"!", b"~") else b""
    header, body = b"" if mode == b"!" else HEADER, data[len(mode) :]
    tolerant = mode == b"~"
    result = _run([header + body], tolerant=tolerant)
    others, well_formed = _by_element_tree(header + body)
    for pieces in _splits(header, body, random.Random(zlib.crc32(body))):
        again = _run(pieces, tolerant=tolerant)
        assert [*map(flat, again.items)] == [*map(flat, result.items)], (
            "the split made a difference"
        )
        assert again.fault == result.fault or not well_formed, "the split made a difference"
    stanzas = [item for item in result.items if isinstance(item, Stanza)]
    for stanza, other in zip(stanzas, others[: len(stanzas)], strict=True):
        if type(stanza) is Stanza:  # an oversized stanza has only its first tag
            check_bytes(stanza, other)


class _Result(NamedTuple):
    """The result of a parser: its items, and the condition of its error, if any."""

    items: list[Item]
    fault: str | None


def _run(pieces: list[bytes], *, tolerant: bool) -> _Result:
    parser = StreamParser(MAX_STANZA_BYTES, 8, 32, 8, tolerant=True) if tolerant else StreamParser()
    items: list[Item] = []
    fault = None
    try:
        for piece in pieces:
            items += parser.feed(piece)
            assert parser.pending < MAX_STANZA_BYTES
    except ParseError as error:
        items += error.items
        fault = error.condition
    parser.close()
    assert fault is None or parser.pending == 0
    return _Result(items, fault)


def _splits(header: bytes, body: bytes, rng: random.Random) -> Iterator[list[bytes]]:
    if len(body) <= BYTEWISE_BYTES:
        yield [header, *(body[at : at + 1] for at in range(len(body)))]
    stream = header + body
    cuts = sorted(rng.randrange(len(stream) + 1) for _ in range(rng.randrange(1, 9)))
    yield [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


def _by_element_tree(stream: bytes) -> tuple[list[Element], bool]:
    """Return the stanzas that ElementTree finds, and whether the stream may be well-formed."""
    parser: Any = ElementTree.XMLPullParser(("start", "end"))
    depth = 0
    found: list[Element] = []
    try:
        parser.feed(stream)
        for event, element in parser.read_events():
            depth += 1 if event == "start" else -1
            if event == "end" and depth == 1:
                found.append(element)
    except (ElementTree.ParseError, LookupError, ValueError):  # the latter for other encodings
        return found, False
    return found, True


def check_bytes(stanza: Stanza, expected: Element) -> None:
    """Check that a stanza and its children have the names, attributes and trees of `expected`."""
    assert same(stanza.tree(), expected)
    assert len(stanza.children) == len(expected)
    for child, other in zip(stanza.children, expected, strict=True):
        _check_child(child, other)
        assert len(child.children) == len(other)
        for grandchild, inner in zip(child.children, other, strict=True):
            _check_child(grandchild, inner)


def _check_child(child: Child, expected: Element) -> None:
    assert child.name == expected.tag
    assert child.attrs == expected.attrib
    assert same(child.tree(), expected, tail=False)


def same(one: Element, other: Element, *, tail: bool = False) -> bool:
    """Return whether two trees are equal; the tail of the root counts if `tail`."""
    return (
        one.tag == other.tag
        and one.attrib == other.attrib
        and (one.text or "") == (other.text or "")
        and (not tail or (one.tail or "") == (other.tail or ""))
        and len(one) == len(other)
        and all(same(a, b, tail=True) for a, b in zip(one, other, strict=True))
    )
