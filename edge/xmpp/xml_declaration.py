"""The XML declaration before a stream's header (RFC 6120, sections 11.5 and 11.6).

The declaration is checked here and not passed to expat, which would use the encoding that it names.
"""

from __future__ import annotations

import re

from edge.xmpp.errors import StreamError

MAX_DECLARATION = 128
"""Maximum bytes of an XML declaration; with all attributes it has 60."""

_DECLARATION = re.compile(
    rb"""<\?xml\s+version\s*=\s*(?:'1\.[0-9]+'|"1\.[0-9]+")"""
    rb"""(?:\s+encoding\s*=\s*(?:'([A-Za-z][\w.-]*)'|"([A-Za-z][\w.-]*)"))?"""
    rb"""(?:\s+standalone\s*=\s*(?:'(?:yes|no)'|"(?:yes|no)"))?\s*\?>"""
)
_BEGINNING = re.compile(rb"<(?:\?(?:x(?:m(?:l(?:\s|\Z)|\Z)|\Z)|\Z)|\Z)")
_OTHER_ENCODINGS = re.compile(rb"[\x00\xfe\xff]|<\x00")


def declaration_length(head: bytes) -> int | None:
    """Return the length of the XML declaration at the beginning of a stream.

    Args:
        head: the first bytes that are not whitespace: at least one, at most `MAX_DECLARATION`.

    Returns:
        The length in bytes; 0 if there is no declaration; None if more bytes are needed.

    Raises:
        StreamError: `unsupported-encoding`, or `not-well-formed`.
    """
    if _OTHER_ENCODINGS.match(head):
        raise StreamError("unsupported-encoding", "the encoding must be UTF-8")
    if not head.startswith(b"<"):
        raise StreamError("not-well-formed", "text before the stream header")
    if not _BEGINNING.match(head):
        return 0
    if b">" not in head and len(head) < MAX_DECLARATION:
        return None
    match = _DECLARATION.match(head)
    if match is None:
        raise StreamError("not-well-formed", "invalid XML declaration")
    if (match[1] or match[2] or b"utf-8").lower() != b"utf-8":
        raise StreamError("unsupported-encoding", "the encoding must be UTF-8")
    return match.end()
