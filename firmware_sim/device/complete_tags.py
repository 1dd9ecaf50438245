"""Splitting of received XML after its last complete tag.

expat since 2.6.0, and older versions that distributions have patched, may hold back a token that
came in pieces until more bytes follow (reparse deferral). A stanza would then wait for the next
one. A parser that is fed complete tags only is not affected.
"""

from __future__ import annotations

import re
from typing import Final

MOST_KEPT: Final = 128 * 1024
"""Bytes kept while a tag is incomplete, twice a stanza's default limit; more go to the parser."""

# Tags, CDATA sections and XML declarations, each with the text before it. A quoted value may have a
# `>`. No two parts of the expression match the same bytes, so it fails in linear time.
_COMPLETE: Final = re.compile(
    rb"""(?:[^<]*<(?:"""
    rb"""[^!>"'][^>"']*(?:(?:"[^"]*"|'[^']*')[^>"']*)*>"""
    rb"""|!\[CDATA\[[^\]]*(?:\](?!\]>)[^\]]*)*\]\]>))*"""
)


class CompleteTags:
    """The bytes of one XML stream, in pieces that end with a complete tag."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def split(self, data: bytes) -> bytes:
        """Return the received bytes up to the end of the last complete tag, and keep the others."""
        self._kept += data
        match = _COMPLETE.match(self._kept) if b">" in data else None
        end = 0 if match is None else match.end()
        if len(self._kept) - end > MOST_KEPT:
            end = len(self._kept)
        complete = bytes(self._kept[:end])
        del self._kept[:end]
        return complete
