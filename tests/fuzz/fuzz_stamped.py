"""Target: stamping of stanzas with another sender.

An input is what follows the header of a stream; each stanza in it is stamped.

- The tree is the same except for `from` (and `to`, if replaced), whatever the other attributes,
  quotes and prefixes are.
- There is one sender, and it is ours. Stamping twice gives the same bytes.
- An added child is the last; nothing before it changes.
"""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import Element

from edge.xmpp.stanza import Stanza, parse_fragment, stamped, stamped_with
from tests.fuzz.fuzz_parser import same
from tests.fuzz.oracle import parse_stanzas

MAX_BYTES: Final = 4096

FROM: Final = "o'neil\"&<>@gw.example/\u00e4 from='x'"
TO: Final = "pump1@gw.example/to='y'"
EXTRA: Final = b"<delay xmlns='urn:xmpp:delay' stamp='2026-01-01T00:00:00Z'>d</delay>"
DELAY: Final = "{urn:xmpp:delay}delay"


def check(data: bytes) -> None:
    """Stamp the stanzas of a stream."""
    for item in parse_stanzas(data):
        _check(item, {"from": FROM}, None)
        _check(item, {"from": FROM, "to": TO}, TO)


def _check(stanza: Stanza, replaced: dict[str, str], to: str | None) -> None:
    expected = stanza.tree()
    expected.attrib.update(replaced)
    once = stamped(stanza, FROM, to)
    assert once == stamped(stanza.raw, FROM, to)
    assert same(parse_fragment(once), expected)
    assert stamped(once, FROM, to) == once
    _check_extra(parse_fragment(stamped_with(stanza, FROM, EXTRA, to)), expected)


def _check_extra(tree: Element, expected: Element) -> None:
    assert tree[-1].tag == DELAY
    assert (tree[-1].text, tree[-1].tail) == ("d", None)
    tree.remove(tree[-1])
    assert same(tree, expected)
