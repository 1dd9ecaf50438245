"""Parse single elements into trees, with one parser for many elements."""

from __future__ import annotations

from typing import Final
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

REBUILD_BYTES: Final = 256 * 1024
"""Bytes after which expat is replaced, because it keeps every name that it reads."""

_PROBE: Final = b"<end/>"


class TreeParser:
    """A parser of elements for one thread; building one costs more than parsing a usual element.

    An element's bytes are parsed as a child of one root, followed by an empty element (`_PROBE`).
    They are one complete element if the root then has two children, of which the second is empty:
    a second element that the bytes begin would contain `_PROBE`. Parts of earlier trees stay in
    memory, because the builder keeps the last element of each depth.

    Args:
        namespace: the default namespace around the elements; "" is none.
    """

    __slots__ = ("_last", "_left", "_parser", "_root", "_start")

    def __init__(self, namespace: str = "") -> None:
        self._start = f"<root xmlns='{namespace}'>".encode()
        self._build()

    def _build(self) -> None:
        builder = ElementTree.TreeBuilder()
        self._parser = ElementTree.XMLParser(target=builder, encoding="UTF-8")  # noqa: S314 (no DTD)
        self._parser.feed(self._start + _PROBE)
        self._root: Element = builder.close()  # the builder returns its root at any time
        self._last = self._root[0]  # text before the next element becomes its tail
        self._root.clear()
        self._left = REBUILD_BYTES

    def parse(self, raw: bytes) -> Element | None:
        """Return the tree of an element, or `None` if the bytes are not exactly one element."""
        root = self._root
        try:
            self._parser.feed(raw + _PROBE)
        except ElementTree.ParseError:
            self._build()
            return None
        if len(root) != 2 or len(root[1]) or self._last.tail or root[0].tail:
            self._build()
            return None
        tree, self._last = root[0], root[1]  # unpacking would end by an exception
        root.clear()
        self._left -= len(raw)
        if self._left < 0:
            self._build()
        return tree
