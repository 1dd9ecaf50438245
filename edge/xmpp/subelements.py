"""Parsing of an element inside a stanza as if it were a stanza of its own.

The parser parses a stanza two levels deep; this module gives access to deeper levels as raw
bytes.
"""

from __future__ import annotations

from edge.xmpp.errors import FragmentError, StreamError, UnexpectedText
from edge.xmpp.namespaces import CLIENT, STREAMS
from edge.xmpp.parser import StreamParser
from edge.xmpp.stanza import MAX_FRAGMENT_BYTES, Child, Stanza

_STREAM = f"<s:stream xmlns='{CLIENT}' xmlns:s='{STREAMS}'>".encode()


def parse_element(raw: bytes) -> Stanza:
    """Parse an element with its children and grandchildren.

    Args:
        raw: the bytes of exactly one element, as `raw` of a stanza or child returns them.

    Raises:
        FragmentError: `raw` is too large, not well-formed, or not exactly one element.
    """
    parser = StreamParser(MAX_FRAGMENT_BYTES)
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


def subelements(element: Child) -> list[Child]:
    """Return the children of an element inside a stanza, with their own children.

    An element with one child and at most one grandchild is not parsed again if its tree was built
    when the stanza was received.

    Raises:
        UnexpectedText: there is text beside the children or beside their own children.
    """
    only = _only_child(element)
    if only is not None:
        return [only]
    parsed = parse_element(element.raw)
    for one in (parsed, *parsed.children):
        if one.has_other_content():
            raise UnexpectedText(f"text in {one.name}, which may contain elements only")
    return parsed.children


def _only_child(element: Child) -> Child | None:
    """Return the only child of an element, built from `Child.parsed`; `None` if that is not set
    or does not show where the bytes of the child and the grandchild begin and end."""
    tree = element.parsed
    if tree is None or len(tree) != 1 or tree.text or len(tree[0]) > 1:
        return None
    only = tree[0]
    if only.tail or only.text or not only.tag.startswith("{"):
        return None
    whole, start = element._whole, element._start
    raw = whole.raw
    child = Child(only.tag, only.attrib, whole, raw.index(b"<", start + 1))
    child._stop = _stop(raw, child._start, element._stop)
    if len(only) == 1:
        payload = only[0]
        if payload.tail or not payload.tag.startswith("{"):
            return None
        inner = Child(payload.tag, payload.attrib, whole, raw.index(b"<", child._start + 1))
        inner._stop = _stop(raw, inner._start, child._stop)
        child.children.append(inner)
    return child


def _stop(raw: bytes, start: int, end: int) -> int:
    """Return the offset of the end tag of an element's only child, or `end` if the child has none.
    The child begins at `start`; the element's content ends at `end`."""
    last = raw.rindex(b"<", start, end)
    return last if raw.startswith(b"</", last) else end
