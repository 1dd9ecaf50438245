"""Parsing of an element inside a stanza as if it were a stanza of its own.

The parser parses a stanza's envelope two levels deep; this gives access to deeper levels as raw
slices.
"""

from __future__ import annotations

from edge.xmpp.errors import FragmentError, StreamError
from edge.xmpp.namespaces import CLIENT, STREAMS
from edge.xmpp.parser import StreamParser
from edge.xmpp.stanza import MAX_FRAGMENT_BYTES, Stanza

_STREAM = f"<s:stream xmlns='{CLIENT}' xmlns:s='{STREAMS}'>".encode()


def parse_element(raw: bytes, max_bytes: int = MAX_FRAGMENT_BYTES) -> Stanza:
    """Parse an element with its children and grandchildren.

    Args:
        raw: the bytes of exactly one element, as `raw` of a stanza or child returns them.

    Raises:
        FragmentError: it is too large, not well-formed, or not exactly one element.
    """
    parser = StreamParser(max_bytes)
    try:
        items = parser.feed(_STREAM + raw)
        whole = not parser.pending
    except StreamError as error:
        raise FragmentError(str(error)) from error
    finally:
        parser.close()
    found = items[1] if len(items) == 2 else None
    if not whole or not isinstance(found, Stanza):
        raise FragmentError("not exactly one element")
    return found
