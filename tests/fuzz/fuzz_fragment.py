"""Target: stored fragments, which should be one element and may be any bytes.

- Only `FragmentError` is raised.
- What is accepted is exactly one element, whatever surrounds it: the bytes cannot close the element
  that they are inserted into.
"""

from __future__ import annotations

from typing import Final
from xml.etree import ElementTree

from edge.xmpp.errors import FragmentError
from edge.xmpp.stanza import parse_fragment
from tests.fuzz.fuzz_parser import same

MAX_BYTES: Final = 4096
_AROUND: Final = b"<x xmlns='jabber:client'><before/>%b<after/></x>"


def check(data: bytes) -> None:
    """Parse a fragment alone and between other elements."""
    try:
        tree = parse_fragment(data)
    except FragmentError:
        return
    whole = ElementTree.fromstring(_AROUND % data)  # noqa: S314 - this is the tested input
    before, other, after = whole
    assert (before.tag, after.tag) == ("{jabber:client}before", "{jabber:client}after")
    assert same(tree, other)
