"""How far a piece of XML can be fed to expat: to the end of its last complete tag, and no further.

expat may hold back a token that is split over several reads until much more has come (reparse
deferral), so a stanza that arrives in small pieces would stall. The scanner finds the end of the
last tag, or CDATA section, that is complete; what follows is held back. It reads each byte a
bounded number of times, however small the pieces are: a part that is held back is remembered by its
state and not read again.

It refuses at once, without waiting for their end, what XMPP forbids (RFC 6120, section 11.1):
comments, document types and processing instructions. It does not check that the XML is well-formed:
expat does.
"""

from __future__ import annotations

import re
from enum import Enum

from edge.xmpp.errors import StreamError
from edge.xmpp.stanza import TAG

# Complete tags and CDATA sections, each with the text before it. No two parts of it can match the
# same bytes, so what fails, fails in linear time. (Possessive quantifiers would say that better,
# but Python 3.11 before 3.11.5 matches them wrongly.)
_COMPLETE = re.compile(
    rb"""(?:[^<]*<(?:"""
    rb"""[^!?>"'][^>"']*(?:(?:"[^"]*"|'[^']*')[^>"']*)*>"""
    rb"""|!\[CDATA\[[^\]]*(?:\](?!\]>)[^\]]*)*\]\]>))*"""
)


class _In(Enum):
    """What the place of the scanner lies in, and so what it looks for."""

    TEXT = "text"
    TAG = "tag"
    SINGLE = "single-quoted value"
    DOUBLE = "double-quoted value"
    CDATA = "CDATA section"


# Markup as soon as it can be told apart. A proper beginning of `<![CDATA[` at the very end is not
# matched: it waits.
_MARKUP = re.compile(
    rb"<(?:(?=[^!?])|\?|!\[CDATA\[|!(?:[^\[]|\[(?:[^C]|C(?:[^D]|D(?:[^A]|A(?:[^T]|T(?:[^A]|A[^\[])))))))"
)
_ENDS = {
    _In.TEXT: _MARKUP,
    _In.TAG: re.compile(rb"""[>"']"""),
    _In.SINGLE: re.compile(rb"'"),
    _In.DOUBLE: re.compile(rb'"'),
    _In.CDATA: re.compile(rb"]]>"),
}
_NEXT = {
    (_In.TEXT, b"<"): _In.TAG,
    (_In.TEXT, b"<![CDATA["): _In.CDATA,
    (_In.TAG, b'"'): _In.DOUBLE,
    (_In.TAG, b"'"): _In.SINGLE,
    (_In.TAG, b">"): _In.TEXT,
    (_In.SINGLE, b"'"): _In.TAG,
    (_In.DOUBLE, b'"'): _In.TAG,
    (_In.CDATA, b"]]>"): _In.TEXT,
}
_OVERLAP = {
    _In.TEXT: len(b"<![CDATA"),
    _In.TAG: 0,
    _In.SINGLE: 0,
    _In.DOUBLE: 0,
    _In.CDATA: len(b"]]"),
}
"""Bytes at the end that may begin what is looked for: they are read again with what follows."""


class Scanner:
    """Keeps its place in what is held back, between calls.

    `scanned` counts the bytes that were looked at: a test holds it to a multiple of the input.
    """

    __slots__ = ("_in", "_seen", "scanned")

    def __init__(self) -> None:
        self._in = _In.TEXT
        self._seen = 0  # bytes of the held part that need not be read again
        self.scanned = 0

    def advance(self, buffer: bytes | bytearray, begin: int, end: int) -> int:
        """Find how far `buffer[begin:end]` is complete.

        Args:
            buffer: what came.
            begin: where the held part begins: the last answer, or where the caller has since moved
                that byte to.
            end: how far to look; not before where the last call looked to.

        Returns:
            The index after the last complete tag, or `begin` if none is complete.

        Raises:
            StreamError: `restricted-xml`, where what comes next is forbidden.
        """
        if not self._seen:
            cut = self._last_tag(buffer, begin, end)
            if cut > begin:
                return cut
        return self._read_on(buffer, begin, end)

    def _last_tag(self, buffer: bytes | bytearray, begin: int, end: int) -> int:
        """Find the end of the last complete tag in text that begins outside of one.

        Where neither `<!` nor `<?` can be, each `<` begins a tag (none may stand in a quoted
        value), and the last is found from the end. Else all are read from the beginning.
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
        while (match := _ENDS[self._in].search(buffer, at, end)) is not None:
            self.scanned += match.end() - at
            at = match.end()
            then = _NEXT.get((self._in, match[0]))
            if then is None:
                raise StreamError(
                    "restricted-xml", "comments, document types and instructions are forbidden"
                )
            self._in = then
            if then is _In.TEXT:
                self._seen = 0
                return at
        self.scanned += end - at
        self._seen = max(at, end - _OVERLAP[self._in]) - begin
        return begin
