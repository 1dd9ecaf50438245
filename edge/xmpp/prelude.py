"""What may come before a stream's header: an XML declaration, and no encoding but UTF-8 (RFC 6120,
sections 11.5 and 11.6).

The declaration is checked here and never shown to expat, which would believe the encoding that it
tells of.
"""

from __future__ import annotations

import re

from edge.xmpp.errors import StreamError

MAX_DECLARATION = 128
"""Bytes of an XML declaration; written in full, with all it may say, it has 60."""

_DECLARATION = re.compile(
    rb"""<\?xml\s+version\s*=\s*(?:'1\.[0-9]+'|"1\.[0-9]+")"""
    rb"""(?:\s+encoding\s*=\s*(?:'([A-Za-z][\w.-]*)'|"([A-Za-z][\w.-]*)"))?"""
    rb"""(?:\s+standalone\s*=\s*(?:'(?:yes|no)'|"(?:yes|no)"))?\s*\?>"""
)
_BEGINNING = re.compile(rb"<(?:\?(?:x(?:m(?:l(?:\s|\Z)|\Z)|\Z)|\Z)|\Z)")
_OTHER_ENCODINGS = re.compile(rb"[\x00\xfe\xff]|<\x00")


def declaration(head: bytes) -> int | None:
    """Measure the XML declaration at the beginning of a stream.

    Args:
        head: the first bytes that are not whitespace, at least one, and `MAX_DECLARATION` if so
        many are there.

    Returns:
        The declaration's length in bytes; 0 if there is none; None if more bytes must come before
        that can be told.

    Raises:
        StreamError: `unsupported-encoding`, or `not-well-formed`.
    """
    if _OTHER_ENCODINGS.match(head):
        raise StreamError("unsupported-encoding", "UTF-8 is the only encoding")
    if not head.startswith(b"<"):
        raise StreamError("not-well-formed", "text before the stream's header")
    if not _BEGINNING.match(head):
        return 0
    if b">" not in head and len(head) < MAX_DECLARATION:
        return None
    match = _DECLARATION.match(head)
    if match is None:
        raise StreamError("not-well-formed", "the XML declaration")
    if (match[1] or match[2] or b"utf-8").lower() != b"utf-8":
        raise StreamError("unsupported-encoding", "UTF-8 is the only encoding")
    return match.end()
