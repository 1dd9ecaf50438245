"""Stored fragments: bytes that should be one element, and may be anything.

- Nothing is raised but `FragmentError`.
- What is accepted is exactly one element, whatever stands around it: the bytes cannot close what
  they are put into. Put between others they are still one, and the same.
- The limit of bytes holds.
"""

from __future__ import annotations

from typing import Final
from xml.etree import ElementTree

import pytest

from edge.xmpp.errors import FragmentError
from edge.xmpp.stanza import parse_fragment
from tests.fuzz.fuzz_parser import same

MAX_BYTES: Final = 4096
_AROUND: Final = b"<x xmlns='jabber:client'><before/>%b<after/></x>"


def check(data: bytes) -> None:
    """Parse a fragment, alone and within others."""
    try:
        tree = parse_fragment(data)
    except FragmentError:
        return
    whole = ElementTree.fromstring(_AROUND % data)  # noqa: S314 - what is tested
    before, other, after = whole
    assert (before.tag, after.tag) == ("{jabber:client}before", "{jabber:client}after")
    assert same(tree, other)
    with pytest.raises(FragmentError):
        parse_fragment(data, len(data) - 1)
