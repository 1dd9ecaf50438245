"""Turn the items of a stream into bytes for another process, and back.

The other process has what the parser found: names, attributes, trees, and where in the stanza's
bytes an element begins and ends. It checks that these are of the right types and lie in the stanza.
It parses bytes again only to check what it passes on (`stanza.check_element`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Final
from xml.etree.ElementTree import Element

from edge.xmpp import transferred
from edge.xmpp.errors import FragmentError, StreamError, UsageError
from edge.xmpp.stanza import (
    Child,
    Item,
    OversizedStanza,
    Stanza,
    StanzaBytes,
    StreamClose,
    StreamHeader,
    StreamOpen,
    check_element,
)
from edge.xmpp.transferred import Close, Error, Header, Open, Part, Transferred, Tree, Whole

GROWTH: Final = 16
GROWTH_FREE: Final = 128 * 1024
MAX_BYTES: Final = 4 * 1024 * 1024
"""Maximum bytes of encoded items: for each byte that was received, beside these, and in all, which
is what a link takes at once. Real stanzas take three times their size."""

_RESERVED: Final = 1024  # for the error

_NO_HEADER = StreamHeader(b"", ())


class StreamSender:
    """Encodes the items of one connection; the other process has a `StreamReceiver` for it."""

    __slots__ = ("_header",)

    def __init__(self) -> None:
        self._header = _NO_HEADER

    def encode(self, items: Sequence[Item | StreamError]) -> bytes:
        """Return the bytes of items. If they take far more room than what was received, because a
        long namespace is repeated in many names, the stream ends with an error."""
        header = self._header
        data, size = self._encode(items)
        if len(data) <= _most(size):
            return data
        self._header = header
        received = encoded = 0

        def fits(item: Item | StreamError) -> bool:
            nonlocal received, encoded
            data, size = self._encode((item,))
            received += size
            encoded += len(data)
            return encoded <= _most(received)

        accepted = list(takewhile(fits, items))
        accepted.append(StreamError("policy-violation", "the names are too long"))
        self._header = header
        return self._encode(accepted)[0]

    def _encode(self, items: Sequence[Item | StreamError]) -> tuple[bytes, int]:
        """Return the bytes of items, and how many they had as received."""
        found: list[Transferred] = []
        size = 0
        for item in items:
            if isinstance(item, Stanza):
                size += item.size
                header = item._whole.header
                if header is not self._header:
                    self._header = header
                    found.append(Header(header.raw, header.prefixes, header.lang))
                excess = item.text if isinstance(item, OversizedStanza) else ""
                parts = [_part(child) for child in item.children]
                found.append(Whole(item.name, item.attrs, item._whole.raw, parts, excess))
            elif isinstance(item, StreamOpen):
                found.append(Open(item.name, item.attrs, item.namespace, item.prefixed))
            elif isinstance(item, StreamClose):
                found.append(Close())
            else:
                found.append(Error(item.condition, item.text))
        return transferred.encode(found), size


class StreamReceiver:
    """Decodes the items of one connection."""

    __slots__ = ("_header",)

    def __init__(self) -> None:
        self._header = _NO_HEADER

    def decode(self, data: bytes | memoryview) -> list[Item | StreamError]:
        """Return the items that a `StreamSender` has encoded.

        Raises `UsageError` or `msgspec.DecodeError` if these are no such items.
        """
        try:
            return self._items(transferred.decode(data))
        except (RecursionError, UnicodeDecodeError, FragmentError) as error:
            raise UsageError(str(error)) from None

    def _items(self, found: list[Transferred]) -> list[Item | StreamError]:
        items: list[Item | StreamError] = []
        for one in found:
            if isinstance(one, Whole):
                items.append(self._stanza(one))
            elif isinstance(one, Header):
                self._header = StreamHeader(one.raw, one.prefixes, one.lang)
            elif isinstance(one, Open):
                items.append(StreamOpen(one.name, one.attrs, one.namespace, prefixed=one.prefixed))
            elif isinstance(one, Close):
                items.append(StreamClose())
            else:
                items.append(StreamError(one.condition, one.text))
        return items

    def _stanza(self, one: Whole) -> Stanza:
        whole = StanzaBytes(self._header, one.raw, is_parsed=False)
        stanza = Stanza(one.name, one.attrs, whole)
        for part in one.children:
            stanza.children.append(_child(part, whole, 0))
        return OversizedStanza(stanza, one.excess) if one.excess else stanza


def _most(size: int) -> int:
    """Return the maximum bytes of items that were received in `size` bytes."""
    return min(GROWTH_FREE + GROWTH * size, MAX_BYTES - _RESERVED)


def _part(child: Child) -> Part:
    tree = None if child.parsed is None else _tree(child.parsed)
    parts = [_part(each) for each in child.children]
    known = bool(child._raw)
    return Part(child.name, child.attrs, child._start, child._stop, known, tree, parts)


def _tree(element: Element) -> Tree:
    children = [_tree(each) for each in element]
    return Tree(element.tag, element.attrib, element.text, element.tail, children)


def _child(part: Part, whole: StanzaBytes, after: int) -> Child:
    start, stop = part.start, part.stop
    if not after <= start <= stop <= len(whole.raw):
        raise UsageError("an element lies outside of its stanza")
    child = Child(part.name, part.attrs, whole, start)
    child._stop = stop
    if whole.raw.find(b">", max(stop - 1, start)) < 0:
        raise UsageError("an element has no end")
    if part.parsed is not None:
        child.parsed = _element(part.parsed)
    if part.is_known:
        child._raw = whole.raw[start : child._end()]
        check_element(child._raw)
    for each in part.children:
        child.children.append(_child(each, whole, start))
    return child


def _element(tree: Tree) -> Element:
    element = Element(tree.tag, tree.attrib)
    element.text = tree.text
    element.tail = tree.tail
    for each in tree.children:
        element.append(_element(each))
    return element
