"""Target: writing of any text, as an element's text and as an attribute's value, in either quotes.

What is written can be parsed, and gives the text back, except that a character that XML cannot
carry becomes U+FFFD. So text never becomes markup.
"""

from __future__ import annotations

import re
from typing import Final

from edge.xmpp import serialize
from edge.xmpp.stanza import parse_fragment

MAX_BYTES: Final = 4096
_ILLEGAL: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def check(data: bytes) -> None:
    """Write a text and parse it."""
    text = data.decode("utf-8", "surrogateescape")
    expected = _ILLEGAL.sub("\ufffd", text)
    escaped = serialize.escape(text)
    value = serialize.attribute("b", text).removeprefix(b" b='").removesuffix(b"'")
    tree = parse_fragment(serialize.tag("a", {"b": text}, escaped, xmlns=None))
    assert (tree.text or "", tree.get("b")) == (expected, expected)
    assert not len(tree)
    for written in (b"<a b='%b'>%b</a>", b'<a b="%b">%b</a>'):
        tree = parse_fragment(written % (value, escaped))
        assert (tree.text or "", tree.attrib) == (expected, {"b": expected})
        assert not len(tree)
