"""A scanner that finds the end of the last complete tag in received XML.

expat may defer a token that is split over several reads until much more data has come (reparse
deferral), so a stanza that arrives in small pieces would stall. expat is therefore fed only up to
the end of the last complete tag or CDATA section. The scanner keeps its state between calls and
reads each byte a bounded number of times, however small the pieces are.

The scanner refuses comments, document types and processing instructions at their first bytes (RFC
6120, section 11.1). expat checks that the XML is well-formed.
"""

from __future__ import annotations

import re
from enum import Enum

from edge.xmpp.errors import StreamError
from edge.xmpp.stanza import TAG

# Complete tags and CDATA sections, each with the text before it. No two parts of the expression can
# match the same bytes, so it fails in linear time. (Possessive quantifiers would be clearer, but
# Python 3.11 before 3.11.5 matches them wrongly.)
_COMPLETE = re.compile(
    rb"""(?:[^<]*<(?:"""
    rb"""[^!?>"'][^>"']*(?:(?:"[^"]*"|'[^']*')[^>"']*)*>"""
    rb"""|!\[CDATA\[[^\]]*(?:\](?!\]>)[^\]]*)*\]\]>))*"""
)


class _Context(Enum):
    """The context of the scanner's position, which determines what it searches for."""

    TEXT = "text"
    TAG = "tag"
    SINGLE = "single-quoted value"
    DOUBLE = "double-quoted value"
    CDATA = "CDATA section"


# Markup, as soon as its kind is known. A prefix of `<![CDATA[` at the end does not match yet.
_MARKUP = re.compile(
    rb"<(?:(?=[^!?])|\?|!\[CDATA\[|!(?:[^\[]|\[(?:[^C]|C(?:[^D]|D(?:[^A]|A(?:[^T]|T(?:[^A]|A[^\[])))))))"
)
_ENDS = {
    _Context.TEXT: _MARKUP,
    _Context.TAG: re.compile(rb"""[>"']"""),
    _Context.SINGLE: re.compile(rb"'"),
    _Context.DOUBLE: re.compile(rb'"'),
    _Context.CDATA: re.compile(rb"]]>"),
}
_NEXT = {
    (_Context.TEXT, b"<"): _Context.TAG,
    (_Context.TEXT, b"<![CDATA["): _Context.CDATA,
    (_Context.TAG, b'"'): _Context.DOUBLE,
    (_Context.TAG, b"'"): _Context.SINGLE,
    (_Context.TAG, b">"): _Context.TEXT,
    (_Context.SINGLE, b"'"): _Context.TAG,
    (_Context.DOUBLE, b'"'): _Context.TAG,
    (_Context.CDATA, b"]]>"): _Context.TEXT,
}
_OVERLAP = {
    _Context.TEXT: len(b"<![CDATA"),
    _Context.TAG: 0,
    _Context.SINGLE: 0,
    _Context.DOUBLE: 0,
    _Context.CDATA: len(b"]]"),
}
"""By context, how many last bytes of the input may begin a delimiter that is not complete yet.
They are read again with the next bytes."""


class Scanner:
    """A scanner of one stream.

    Attributes:
        scanned: bytes read so far; a test compares it with the size of the input.
    """

    __slots__ = ("_context", "_seen", "scanned")

    def __init__(self) -> None:
        self._context = _Context.TEXT
        self._seen = 0  # bytes of the incomplete part that need not be read again
        self.scanned = 0

    def advance(self, buffer: bytes | bytearray, begin: int, end: int) -> int:
        """Return the index after the last complete tag in `buffer[begin:end]`, or `begin` if there
        is none.

        Args:
            begin: where the incomplete part begins: the index that the last call returned, or the
                new one if the caller has moved the data since.
            end: end of the bytes to scan; not before the `end` of the last call.

        Raises:
            StreamError: `restricted-xml`: forbidden markup follows.
        """
        if not self._seen:
            cut = self._last_tag(buffer, begin, end)
            if cut > begin:
                return cut
        return self._read_on(buffer, begin, end)

    def _last_tag(self, buffer: bytes | bytearray, begin: int, end: int) -> int:
        """Return the end of the last complete tag in bytes that begin outside of a tag.

        Without `<!` and `<?`, each `<` begins a tag (a quoted value must not contain one), and the
        last tag is found from the end. Otherwise all tags are matched from the beginning.
        """
        self.scanned += end - begin
        if (buffer.find(b"!", begin, end) < 0 or buffer.find(b"<!", begin, end) < 0) and (
            buffer.find(b"?", begin, end) < 0 or buffer.find(b"<?", begin, end) < 0
        ):
            last = buffer.rfind(b"<", begin, end)
            match = TAG.match(buffer, last, end) if last >= 0 else None
            if match is not None:
                return match.end()
        match = _COMPLETE.match(buffer, begin, end)
        return begin if match is None else match.end()

    def _read_on(self, buffer: bytes | bytearray, begin: int, end: int) -> int:
        at = begin + self._seen
        while (match := _ENDS[self._context].search(buffer, at, end)) is not None:
            self.scanned += match.end() - at
            at = match.end()
            then = _NEXT.get((self._context, match[0]))
            if then is None:
                raise StreamError(
                    "restricted-xml",
                    "comments, document types and processing instructions are not allowed",
                )
            self._context = then
            if then is _Context.TEXT:
                self._seen = 0
                return at
        self.scanned += end - at
        self._seen = max(at, end - _OVERLAP[self._context]) - begin
        return begin
