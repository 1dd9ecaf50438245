"""The parser of a wire of XMPP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from edge.config.limits import Limits
from edge.xmpp.envelopes import EnvelopeParser
from edge.xmpp.errors import StreamError
from edge.xmpp.parser import ParseError, StreamParser
from edge.xmpp.stanza import Item

Input: TypeAlias = Item | StreamError
"""An item of the stream, or the error after which nothing more can be read."""


class StreamInput:
    """A parser of streams (`edge.server.wire.Parser`) whose faults are items.

    Args:
        envelopes: the parser of plain envelopes, which all wires share.
    """

    __slots__ = ("_failed", "_parser")

    def __init__(self, limits: Limits, envelopes: EnvelopeParser) -> None:
        self._failed = False
        self._parser = StreamParser(
            limits.stranger_stanza_bytes,
            limits.stanza_depth,
            limits.stanza_elements,
            limits.stanza_attributes,
            envelopes=envelopes,
        )

    @property
    def pending(self) -> int:
        """Number of received bytes that do not belong to a complete item yet."""
        return self._parser.pending

    def feed(self, data: bytes | memoryview) -> Sequence[Input]:
        """Return the items that end in this part of the input, and an error if there is one."""
        if self._failed:
            return ()
        try:
            return self._parser.feed(data)
        except ParseError as error:
            self._failed = True
            return [*error.items, error]

    def set_limit(self, max_bytes: int) -> None:
        """Set the maximum bytes of a stanza."""
        self._parser.set_limit(max_bytes)

    def reset(self) -> None:
        """Prepare for a new stream."""
        self._parser.reset()

    def release(self) -> None:
        """Free expat and the last stanza."""
        self._parser.release()

    def release_if_idle(self) -> None:
        """Call `release` if there was no input since the last call of this method."""
        self._parser.release_if_idle()

    def close(self) -> None:
        """Free expat, because there is no more input."""
        self._failed = True
        self._parser.close()
