"""A pull parser for the elements of a stream, which may come in any pieces."""

from __future__ import annotations

from typing import Any
from xml.etree.ElementTree import Element, XMLPullParser

from firmware_sim.device.complete_tags import CompleteTags


class PullParser:
    """A parser that reports the start and end of an element with the last byte of its tag.

    A newer expat alone may wait for more bytes if the tag came in pieces.
    """

    def __init__(self) -> None:
        self._tags = CompleteTags()
        self._parser: Any = XMLPullParser(("start", "end"))  # typeshed knows all kinds of events

    def feed(self, data: str | bytes) -> None:
        self._parser.feed(self._tags.split(data.encode() if isinstance(data, str) else data))

    def read_events(self) -> list[tuple[str, Element]]:
        """Return the next events, `start` or `end`, with their elements."""
        return list(self._parser.read_events())
