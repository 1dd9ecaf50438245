from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edge.xmpp.errors import StreamError
from edge.xmpp.parser import StreamParser
from edge.xmpp.stanza import OversizedStanza, Stanza

HEADER = (
    b"<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' id='1'>"
)
BOUNDS = (65_536, 4, 8, 3)

names = st.sampled_from(["a", "b", "query"])
attributes = st.integers(0, 4).map(lambda count: "".join(f" k{n}='v'" for n in range(count)))
texts = st.sampled_from(["", "text", "&lt;", "é"])
leaves = st.builds("<{0}{1}>{2}</{0}>".format, names, attributes, texts)
elements = st.recursive(
    leaves,
    lambda inner: st.builds(
        lambda name, attrs, inside: f"<{name}{attrs}>{''.join(inside)}</{name}>",
        names,
        attributes,
        st.lists(inner, max_size=4),
    ),
    max_leaves=12,
)
stanzas = st.builds(
    lambda attrs, inside: f"<message{attrs}>{''.join(inside)}</message>".encode(),
    attributes,
    st.lists(elements, max_size=3),
)


def strict(stanza: bytes) -> Stanza | None:
    """Parse a stanza with a strict parser; None if that fails."""
    parser = StreamParser(*BOUNDS)
    parser.feed(HEADER)
    try:
        (found,) = parser.feed(stanza)
    except StreamError:
        return None
    assert isinstance(found, Stanza)
    return found


@given(st.lists(stanzas, min_size=1, max_size=5), st.integers(1, 40))
def test_it_differs_from_a_strict_parser_for_oversized_stanzas_only(
    sent: list[bytes], size: int
) -> None:
    parser = StreamParser(*BOUNDS, tolerant=True)
    parser.feed(HEADER)
    data = b"".join(sent)
    found = [
        item
        for start in range(0, len(data), size)
        for item in parser.feed(data[start : start + size])
    ]
    assert len(found) == len(sent)
    for stanza, item in zip(sent, found, strict=True):
        wanted = strict(stanza)
        assert isinstance(item, Stanza)
        assert item.size == len(stanza)
        if wanted is None:
            assert isinstance(item, OversizedStanza)
            assert item.children == []
        else:
            assert type(item) is Stanza
            assert [child.raw for child in item.children] == [c.raw for c in wanted.children]
            assert [len(c.children) for c in item.children] == [
                len(c.children) for c in wanted.children
            ]
